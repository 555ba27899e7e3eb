"""gives_operand: functions of other libraries that do nothing outside of training."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, Node, Proxy
from torch.fx.node import map_arg
from torch.fx.proxy import GraphAppendingTracer

from fusion_core.passes.shapes import shape_of


def gives_operand(node: Node) -> bool:
    """Whether ``node`` calls a function that gives its first operand itself, whatever that is.

    The function is called twice. A proxy shows that it asks for no value or shape and does nothing on
    the way; a tensor without memory, that it does the same for a tensor.

    Args:
        node: A call of a function of the user's or of a library, whose other arguments are constants.
    """
    graph = Graph()
    tracer = GraphAppendingTracer(graph)
    operand = node.args[0] if node.args else None
    if not isinstance(operand, Node) or node.all_input_nodes != [operand]:
        return False
    proxy = Proxy(graph.placeholder("operand"), tracer)
    tensor = torch.empty(shape_of(operand) or (1,), device="meta")
    return _gives(node, proxy) and len(graph.nodes) == 1 and _gives(node, tensor)


def _gives(node: Node, stand_in: Any) -> bool:
    args, kwargs = map_arg((node.args, node.kwargs), lambda _: stand_in)
    try:
        return node.target(*args, **kwargs) is stand_in  # type: ignore[operator]  # a function's node
    except Exception:  # noqa: BLE001  whatever it raises, it does not give its operand
        return False
