"""Values that hold infinity on purpose, as the mask of an attention does: no code stands for it."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor
from torch.fx import GraphModule, Node

from fusion_core.matcher import CallGraph

_FILLING = frozenset({"masked_fill", "where", "pad", "full", "full_like", "new_full"})
"""Operations that put a constant into a tensor."""

_KEEPING = frozenset(
    {
        *("add", "sub", "cat", "stack", "masked_fill", "where", "triu", "tril", "pad", "getitem"),
        *("reshape", "flatten", "permute", "transpose", "squeeze", "unsqueeze", "contiguous"),
        *("identity", "chunk", "split", "unbind", "narrow", "expand", "movedim", "unflatten"),
        *("view", "clone", "to", "float", "type_as", "expand_as", "repeat", "detach"),
    }
)
"""Operations whose result is infinite where an operand is."""


def infinite_values(model: GraphModule, calls: CallGraph) -> frozenset[Node]:
    """Values in ``model`` that hold infinity whatever the inputs are.

    Args:
        model: A fused graph.
        calls: Its calls.
    """
    found = set[Node]()
    for node in model.graph.nodes:
        if node.op == "get_attr":
            is_infinite = _holds_infinity(model, str(node.target))
        else:
            names = _names(node, calls)
            fills = not names.isdisjoint(_FILLING) and any(map(_is_infinite, _given(node, calls)))
            keeps = not names.isdisjoint(_KEEPING) and not found.isdisjoint(node.all_input_nodes)
            is_infinite = fills or keeps
        if is_infinite:
            found.add(node)
    return frozenset(found)


def _holds_infinity(model: GraphModule, path: str) -> bool:
    owner, _, name = path.rpartition(".")
    value = getattr(model.get_submodule(owner), name, None)
    if not isinstance(value, Tensor) or value.is_meta:  # a meta tensor has no values
        return False
    return value.is_floating_point() and bool(value.isinf().any())


def _names(node: Node, calls: CallGraph) -> set[str]:
    """What the operation of a call is known by."""
    site = calls.site(node)
    if site is None:
        return set()
    names = {str(each.target) for each in site.operators if each.kind in {"operation", "method"}}
    return {*names, getattr(node.target, "__name__", "")}


def _given(node: Node, calls: CallGraph) -> tuple[Any, ...]:
    """Arguments of a call, and the constant that a module of padding fills with."""
    return (*node.args, *node.kwargs.values(), getattr(calls.module(node), "value", None))


def _is_infinite(value: Any) -> bool:
    return isinstance(value, float) and math.isinf(value)
