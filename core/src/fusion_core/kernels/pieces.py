"""A piece of a reference graph as a module of its own, which computes what the reference computes."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence

from torch import nn
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg

from fusion_core.configs import Skip

Modules = Mapping[str, nn.Module]


def piece_of(
    calls: Sequence[Node], operands: Sequence[Node], modules: Modules
) -> GraphModule | Skip:
    """``calls`` as a module that takes ``operands``, whatever their settings and spelling.

    Args:
        calls: Nodes in execution order; the last one's value is the module's.
        operands: The values that are given to the module, in this order; each once.
        modules: Modules by path; those that are called are copied.

    Returns:
        A module without gradients, or a refusal if ``calls`` read anything else that is computed.
    """
    inside = {*calls, *operands}
    others = {value for call in calls for value in call.all_input_nodes if value not in inside}
    if others:
        names = ", ".join(sorted(each.name for each in others))
        return Skip(f"its operand {names} is no constant number and not quantized")
    graph = Graph()
    copies = {operand: graph.placeholder(f"value{at}") for at, operand in enumerate(operands)}
    for call in calls:
        copies[call] = graph.node_copy(call, copies.__getitem__)
        copies[call].meta = {}
    graph.output(map_arg(calls[-1], copies.__getitem__))
    called = {str(call.target) for call in calls if call.op == "call_module"}
    held = {path: copy.deepcopy(modules[path]) for path in called}
    return GraphModule(held, graph, "Piece").eval().requires_grad_(requires_grad=False)
