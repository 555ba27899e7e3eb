"""Values that depend on no input, such as the weights of functions: they can be observed without data."""

from __future__ import annotations

from collections.abc import Collection
from operator import attrgetter

import torch
from torch.fx import GraphModule, Interpreter, Node


def observe_constants(model: GraphModule, observers: Collection[str]) -> None:
    """Run the observers of ``model`` that observe a value which depends on no input.

    Calibration runs them again, on the same values.

    Args:
        model: A prepared graph; its observers are updated in place.
        observers: Paths of the observers.
    """
    paths = set(observers)
    constant: set[Node] = set()
    for node in model.graph.nodes:
        if node.op == "get_attr" or (
            node.op.startswith("call_")
            and node.all_input_nodes
            and all(each in constant for each in node.all_input_nodes)
        ):
            constant.add(node)
    wanted = [node for node in constant if node.op == "call_module" and node.target in paths]
    needed = _needed(wanted)
    if any(_is_without_values(model, node) for node in needed):
        return
    run = Interpreter(model, garbage_collect_values=False)
    with torch.no_grad():
        for node in model.graph.nodes:
            if node in needed:
                run.env[node] = run.run_node(node)


def _needed(nodes: Collection[Node]) -> set[Node]:
    """``nodes`` and all that they are computed from."""
    found, waiting = set(nodes), list(nodes)
    while waiting:
        for each in waiting.pop().all_input_nodes:
            if each not in found:
                found.add(each)
                waiting.append(each)
    return found


def _is_without_values(model: GraphModule, node: Node) -> bool:
    """Whether ``node`` reads a tensor on the meta device."""
    if node.op != "get_attr":
        return False
    return bool(getattr(attrgetter(str(node.target))(model), "is_meta", False))
