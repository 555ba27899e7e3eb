"""What a pattern is made of, and which of two goes first: more operators, then fewer wildcards."""

from __future__ import annotations

from collections.abc import Iterator

from fusion_core.patterns.grammar import AnyOf, MatchAllNode, Op, Operator, Pattern


def operators_in(pattern: Pattern) -> Iterator[Operator]:
    """Every operator that ``pattern`` names, in any place and any alternative."""
    if isinstance(pattern, Op):
        yield pattern.operator
    parts = pattern.inputs if isinstance(pattern, Op) else getattr(pattern, "choices", ())
    for part in parts or ():
        yield from operators_in(part)


def operator_count(pattern: Pattern) -> int:
    """How many graph nodes a match of ``pattern`` claims at the least."""
    if isinstance(pattern, Op):
        return 1 + sum(operator_count(each) for each in pattern.inputs or ())
    if isinstance(pattern, AnyOf):
        return min(operator_count(each) for each in pattern.choices)
    return 0


def wildcard_count(pattern: Pattern) -> int:
    """How many ``MatchAllNode`` places ``pattern`` has at the most."""
    if isinstance(pattern, Op):
        return sum(wildcard_count(each) for each in pattern.inputs or ())
    if isinstance(pattern, AnyOf):
        return max(wildcard_count(each) for each in pattern.choices)
    return int(isinstance(pattern, MatchAllNode))


def precedence(
    pattern: Pattern, *, priority: int, plugin: str, index: int
) -> tuple[int, int, int, str, int]:
    """Sort key of a contributed pattern; smaller goes first.

    The author's priority, then more operators, then fewer wildcards, then the plugin's name, then
    the place within the plugin's own list. No two contributions of one backend have the same key,
    and neither the order of installation nor of import has a part in it.
    """
    return (-priority, -operator_count(pattern), wildcard_count(pattern), plugin, index)
