"""one_part_per_call: where one call gives a tuple of tensors, each reader of an item gets a call of its own."""

from __future__ import annotations

import operator

from torch.fx import GraphModule, Node

from fusion_core.matcher import CallGraph
from fusion_core.patterns import Operator

_GIVING = frozenset(Operator("operation", name) for name in ("chunk", "split", "unbind"))


def one_part_per_call(model: GraphModule) -> None:
    """Give each ``getitem`` of a chunk, split or unbind a call of its own, which costs a view.

    The call and its item are then one operation of one tensor, as patterns can say it, and its
    item has the input's parameters like that of any operation which only moves values.

    Args:
        model: The graph; changed in place.
    """
    calls = CallGraph.of(model)
    for node in list(model.graph.nodes):
        site = calls.site(node)
        if site is None or _GIVING.isdisjoint(site.operators) or not all(map(_is_item, node.users)):
            continue
        for item in list(node.users)[1:]:
            with model.graph.inserting_after(node):
                item.replace_input_with(node, model.graph.node_copy(node))


def _is_item(node: Node) -> bool:
    return node.target is operator.getitem and isinstance(node.args[1], int)
