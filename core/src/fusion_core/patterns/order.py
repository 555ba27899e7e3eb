"""What a pattern is made of, and which of two goes first: more operators, then fewer wildcards."""

from __future__ import annotations

from collections.abc import Iterator

from fusion_core.patterns.grammar import (
    AnyOf,
    MatchAllNode,
    Op,
    Operator,
    Pattern,
    Step,
    all_parts,
    parts_of,
)


def operators_in(pattern: Pattern) -> Iterator[Operator]:
    """Every operator that ``pattern`` names, in any place and any alternative."""
    return (each.operator for each in all_parts(pattern) if isinstance(each, Op))


def operator_count(pattern: Pattern) -> int:
    """How many graph nodes a match of ``pattern`` claims at the most."""
    if isinstance(pattern, Op):
        return 1 + sum(map(operator_count, pattern.inputs or ()))
    if isinstance(pattern, Step):
        return max(map(operator_count, pattern.heads)) + sum(map(operator_count, pattern.inputs))
    if isinstance(pattern, AnyOf):
        return max(map(operator_count, pattern.choices))
    return sum(map(operator_count, parts_of(pattern)))


def wildcard_count(pattern: Pattern) -> int:
    """How many ``MatchAllNode`` places ``pattern`` has at the most."""
    if isinstance(pattern, MatchAllNode):
        return 1
    if isinstance(pattern, AnyOf):
        return max(map(wildcard_count, pattern.choices))
    if isinstance(pattern, Step):
        return sum(map(wildcard_count, pattern.inputs))
    return sum(map(wildcard_count, parts_of(pattern)))


def precedence(
    pattern: Pattern, *, priority: int, plugin: str, index: int
) -> tuple[int, int, int, str, int]:
    """Sort key of a contributed pattern; smaller goes first.

    The author's priority, then more operators, then fewer wildcards, then the plugin's name, then
    the place within the plugin's own list. No two contributions of one backend have the same key,
    and neither the order of installation nor of import has a part in it.

    A pattern that may match nodes in more or less number is placed by the most; where it matches
    fewer, the matcher counts those (see :func:`fusion_core.matcher.scan`).
    """
    return (-priority, -operator_count(pattern), wildcard_count(pattern), plugin, index)
