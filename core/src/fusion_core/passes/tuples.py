"""one_part_per_call: where one call gives a tuple of tensors, each reader of an item gets a call of its own."""

from __future__ import annotations

import operator

from torch.fx import GraphModule, Node

from fusion_core.catalog.families import PARTS
from fusion_core.matcher import CallGraph, CallSite, scan
from fusion_core.passes.indices import quantization_index
from fusion_core.patterns import Operator
from fusion_core.registry import Backend

_GIVING = frozenset(Operator("operation", name) for name in PARTS)


def one_part_per_call(model: GraphModule, backend: Backend) -> None:
    """Give each ``getitem`` of a chunk, split or unbind a call of its own, which costs a view.

    The call and its item are then one operation of one tensor, as patterns can say it, and its
    item has the input's parameters like that of any operation which only moves values. A call that
    a pattern of the backend takes with all its items, as one of a gated unit does, stays one.

    Args:
        model: A fused graph; changed in place.
        backend: Whose patterns count.
    """
    shared = [each for each in model.graph.nodes if len(each.users) > 1]
    taken_apart = [each for each in shared if all(map(_is_item, each.users))]
    if not taken_apart:
        return
    calls = CallGraph.of(model)
    divided = [each for each in taken_apart if _gives_parts(calls.site(each))]
    if not divided:
        return
    matches = scan(calls, quantization_index(backend)).matches
    whole = {node for match in matches for node in match.nodes}
    for node in divided:
        for item in [] if node in whole else list(node.users)[1:]:
            with model.graph.inserting_after(node):
                item.replace_input_with(node, model.graph.node_copy(node))


def _gives_parts(site: CallSite | None) -> bool:
    return site is not None and not _GIVING.isdisjoint(site.operators)


def _is_item(node: Node) -> bool:
    return node.target is operator.getitem and isinstance(node.args[1], int)
