"""Which rule of a qconfig mapping decides on each operation, and which it overrides, in words."""

from __future__ import annotations

from collections.abc import Iterable

from torch.fx import GraphModule

from fusion_core.configs import QConfigMapping, Rule
from fusion_core.passes.groups import Group
from fusion_core.passes.record import Member, members


def rules_of(
    model: GraphModule, mapping: QConfigMapping, groups: Iterable[Group]
) -> dict[str, tuple[str, ...]]:
    """For each operation the rule that decides on it, then those it overrides.

    Args:
        model: A fused graph.
        mapping: The rules.
        groups: What is quantized together; the qconfig of the first member counts for all.
    """
    roots: dict[str, Member] = {}
    for group in groups:
        together = members(reversed(group.match.nodes))
        roots.update((each.name, together[0]) for each in together[1:])
    return {
        each.name: _in_words(mapping, each, roots.get(each.name))
        for each in members(model.graph.nodes)
    }


def _in_words(mapping: QConfigMapping, member: Member, root: Member | None) -> tuple[str, ...]:
    own, *others = _rules(mapping, member)
    decided = own.name if own.qconfig is not None else f"{own.name}, which leaves it in float"
    if root is not None:
        theirs = _rules(mapping, root)[0]
        if theirs.qconfig != own.qconfig:
            decided = f"{own.name}; but {root.name} decides for all that its pattern takes ({theirs.name})"
    return (decided, *(each.name for each in others))


def _rules(mapping: QConfigMapping, member: Member) -> list[Rule]:
    return list(
        mapping.rules(member.path, member.object_types, scope=member.scope, order=member.order)
    )
