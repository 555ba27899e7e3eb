"""What no canonical pattern may be, checked once when it is made."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter

from fusion_core.errors import PatternError
from fusion_core.patterns.grammar import (
    AnyOf,
    Capture,
    MatchAllNode,
    Op,
    Pattern,
    Step,
    Where,
    all_parts,
    parts_of,
    with_parts,
)

DEEPEST = 200
"""How many operators may stand behind one another in a pattern; Python compares values that deep."""


def sound(read: Callable[[], Pattern], whole: object) -> Pattern:
    """The pattern that ``read`` gives, with what each name stands for in every place of the name.

    Args:
        read: Reads what the author wrote.
        whole: What the author wrote, for messages.

    Raises:
        PatternError: Nothing anchors the pattern, it is too deep, it has an optional step before
            nothing, or a name stands for two different patterns or for a part of itself.
    """
    try:
        pattern = _with_captures(read(), whole)
    except RecursionError:
        raise PatternError(whole, "it is nested too deeply to be read") from None
    _check(pattern, whole)
    return pattern


def _check(pattern: Pattern, whole: object) -> None:
    level: list[Pattern] = [pattern]
    for _ in range(DEEPEST):
        if any(isinstance(each, Step) and not each.inputs for each in level):
            raise PatternError(whole, "an optional step has nothing before it in its chain")
        # Shared parts are looked at once, so that alternatives of alternatives stay cheap.
        below = {id(part): part for each in level for part in parts_of(each)}
        level = list(below.values())
        if not level:
            break
    else:
        raise PatternError(whole, f"more than {DEEPEST} operators stand behind one another")
    if not all(isinstance(each, Op) for each in anchors_of(pattern)):
        problem = "what runs last is a wildcard, a literal or a list, so nothing anchors it"
        raise PatternError(whole, problem)


def anchors_of(pattern: Pattern) -> Iterator[Pattern]:
    """Every pattern that may stand for the last node of a match: ``Op``, unless the pattern is unsound."""
    pending = [pattern]
    while pending:
        each = pending.pop()
        if isinstance(each, (Where, Capture)):
            pending.append(each.pattern)
        elif isinstance(each, AnyOf):
            pending.extend(reversed(each.choices))
        elif isinstance(each, Step):
            pending.extend(reversed((*each.heads, *(each.inputs if each.optional else ()))))
        else:
            yield each


def _with_captures(pattern: Pattern, whole: object) -> Pattern:
    named: dict[str, Pattern] = {}
    for each in _captures(pattern):
        if each.pattern == MatchAllNode():
            named.setdefault(each.name, each.pattern)
        elif named.setdefault(each.name, each.pattern) == MatchAllNode():
            named[each.name] = each.pattern
        elif named[each.name] != each.pattern:
            problem = f"capture {each.name!r} stands for two different patterns; make them one with any_of"
            raise PatternError(whole, problem)
    within = {name: {each.name for each in _captures(value)} for name, value in named.items()}
    try:
        TopologicalSorter(within).prepare()
    except CycleError as error:
        problem = f"capture {error.args[1][0]!r} stands for a part of itself"
        raise PatternError(whole, problem) from None
    return _filled(pattern, named) if named else pattern


def _captures(pattern: Pattern) -> Iterator[Capture]:
    return (each for each in all_parts(pattern) if isinstance(each, Capture))


def _filled(pattern: Pattern, named: dict[str, Pattern]) -> Pattern:
    """``pattern`` with each capture's own pattern in its place."""
    if isinstance(pattern, Capture):
        pattern = replace(pattern, pattern=named[pattern.name])
    return with_parts(pattern, lambda part: _filled(part, named))
