"""Patterns as words of tokens, in the order in which a walk over the graph meets what they ask for.

A word is one way to read a pattern, in preorder. A pattern with alternatives has several; where they
would be too many, the innermost are left open, so that the number of words stays linear in what was
written. What words cannot say, or leave open, is checked when the pattern is tried.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from fusion_core.matcher.constraints import collapsed
from fusion_core.patterns import (
    AnyOf,
    Capture,
    ListOf,
    LiteralValue,
    MatchAllNode,
    Op,
    Operator,
    Pattern,
    Step,
    Where,
)

MOST_WORDS = 64
"""How many words a pattern may have for each operator that can anchor it."""


@dataclass(frozen=True, slots=True)
class Call:
    """A node with this operator; its leading arguments, then those by name, come next.

    Attributes:
        operator: The operator.
        count: How many leading arguments.
        names: Which arguments by name.
    """

    operator: Operator
    count: int
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Items:
    """A list of so many items, or at least so many, which come next."""

    count: int
    open: bool


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant of this type and value."""

    kind: type
    value: Any


@dataclass(frozen=True, slots=True)
class Anything:
    """Whatever stands there."""


Token: TypeAlias = Call | Items | Constant | MatchAllNode | Anything
Word: TypeAlias = tuple[Token, ...]

_ANYTHING: list[Word] = [(Anything(),)]


def words_of(pattern: Pattern) -> Iterator[Word]:
    """Every way to read ``pattern``, or fewer that leave more open."""
    if isinstance(pattern, AnyOf):
        for choice in pattern.choices:
            yield from words_of(choice)
    elif isinstance(pattern, Step):
        for head in pattern.heads:
            yield from _words(head, MOST_WORDS, pattern.inputs)
        if pattern.optional:
            yield from words_of(pattern.inputs[0])
    elif isinstance(pattern, Op):
        yield from _words(pattern, MOST_WORDS)
    else:
        yield from words_of(pattern.pattern)  # type: ignore[union-attr]  # anchors are operators


def is_plain(pattern: Pattern) -> bool:
    """Whether ``pattern`` can be read in one way only, and its word says all there is to it."""
    if isinstance(pattern, Op):
        bare = not pattern.any_order and not pattern.keywords
        return bare and all(map(is_plain, pattern.inputs or ()))
    return isinstance(pattern, (MatchAllNode, LiteralValue))


def _words(  # noqa: PLR0911  one per kind of pattern
    pattern: Pattern, most: int, inputs: tuple[Pattern, ...] | None = None
) -> Sequence[Word]:
    """At most ``most`` words that between them leave out no way to read ``pattern``."""
    if isinstance(pattern, Op):
        return _call(pattern, most, pattern.inputs if inputs is None else inputs)
    if isinstance(pattern, (Where, Capture)):
        return _words(pattern.pattern, most, inputs)
    if isinstance(pattern, Step):
        return _step(pattern, most)
    if isinstance(pattern, AnyOf):
        return _united(pattern.choices, most)
    if isinstance(pattern, ListOf):
        head = Items(len(pattern.items), pattern.open)
        return [(head, *rest) for rest in _in_a_row(pattern.items, most)]
    if isinstance(pattern, LiteralValue):
        return [(Constant(type(pattern.value), pattern.value),)]
    return [(pattern,)]


def _call(pattern: Op, most: int, inputs: tuple[Pattern, ...] | None) -> Sequence[Word]:
    names = tuple(name for name, _ in pattern.keywords)
    head = Call(pattern.operator, len(inputs or ()), names)
    values = [_constraint(each) for _, each in pattern.keywords]
    orders = [inputs or ()]
    if pattern.any_order:
        orders = list(itertools.permutations(orders[0]))
    if len(orders) > most:
        return [(head, *[Anything()] * head.count, *values)]
    return [
        (head, *rest, *values)
        for order in dict.fromkeys(orders)
        for rest in _in_a_row(order, most // len(orders))
    ]


def _step(pattern: Step, most: int) -> Sequence[Word]:
    ways = len(pattern.heads) + pattern.optional
    if ways > most:
        return _ANYTHING
    words = [word for head in pattern.heads for word in _words(head, most // ways, pattern.inputs)]
    absent = _words(pattern.inputs[0], most // ways) if pattern.optional else ()
    return [*words, *absent]


def _united(choices: tuple[Pattern, ...], most: int) -> Sequence[Word]:
    if len(choices) > most:
        return _ANYTHING
    return [word for choice in choices for word in _words(choice, most // len(choices))]


def _in_a_row(patterns: tuple[Pattern, ...], most: int) -> Sequence[Word]:
    """Words of one pattern after the other."""
    rows: list[Word] = [()]
    for pattern in patterns:
        following = _words(pattern, most // len(rows))
        rows = [(*row, *word) for row in rows for word in following]
    return rows


def _constraint(wanted: Pattern) -> Token:
    if isinstance(wanted, LiteralValue):
        value = collapsed(wanted.value)
        return Constant(type(value), value)
    return Anything()
