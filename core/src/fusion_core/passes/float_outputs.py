"""settle_float_outputs: layers whose results nobody reads quantized give float, also through what moves values."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import TYPE_CHECKING

from torch.fx import Node

from fusion_core.catalog.families import PARTS, SHAPE
from fusion_core.configs import Mode, ObservationType
from fusion_core.passes.dtypes import allows_float_output
from fusion_core.passes.fixed_range import name_of_call

if TYPE_CHECKING:
    from fusion_core.passes.groups import Group

IDLE = "a layer before it gives float, and nothing behind it reads codes"
"""Why an operation that only moves values stays in float, though what it moves comes from a kernel."""

_MOVING = frozenset((*SHAPE, *PARTS, "identity", "detach", "narrow")) - {"pad"}
_SHARED = ObservationType.OUTPUT_SHARE_OBSERVER_WITH_INPUT


def settle_float_outputs(groups: list[Group], read_quantized: Iterable[Node]) -> list[Group]:
    """Say of each group whether it gives float.

    Args:
        groups: All groups in execution order; they are changed.
        read_quantized: Values that are wanted as codes outside of them.

    Returns:
        Groups that are none any more: they share the parameters of one input, which a layer gives in
        float, and nobody reads codes of them.
    """
    idle = _idle(groups, set(read_quantized))
    in_float: set[Node] = set()
    dropped: list[Group] = []
    for group in groups:
        anchor = group.match.anchor
        if id(group) not in idle:
            continue
        if _moves(group) and group.inputs[0] in in_float:
            dropped.append(group)
            in_float.add(anchor)
        elif group.weight is not None and allows_float_output(
            group.match.entry.config.dtype_configs, group.qconfig
        ):
            group.gives_float = True
            in_float.add(anchor)
    for group in groups:
        group.gives_float = group.gives_float or group.mode is not Mode.STATIC
    return dropped


def _idle(groups: list[Group], wanted: set[Node]) -> set[int]:
    """Static groups of which nobody reads codes, but for others that nobody reads and that only move values."""
    found = set()
    for group in reversed(groups):
        if group.mode is not Mode.STATIC:
            continue
        is_idle = group.match.anchor not in wanted
        if is_idle:
            found.add(id(group))
        if not (is_idle and _moves(group)):
            wanted.update(group.inputs)
    return found


def _moves(group: Group) -> bool:
    if group.observation is not _SHARED or len(group.inputs) != 1:
        return False
    nodes = group.match.nodes
    return all(each.target is operator.getitem or name_of_call(each) in _MOVING for each in nodes)
