"""Patterns and matches as trees: the last operator at the root, what it is applied to beneath."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

from rich.text import Text
from rich.tree import Tree
from torch.fx import Node

from fusion_core.matcher import Match
from fusion_core.patterns import (
    AnyOf,
    Capture,
    ListOf,
    LiteralValue,
    MatchAllNode,
    Op,
    Pattern,
    Step,
    Where,
    render,
)

_QUIET = "dim"
_NAME = "bold"
_FREE = Text("... (any further arguments)", style=_QUIET)

# What stands beneath something: a pattern, or text that is no pattern of its own.
_Part: TypeAlias = "Pattern | Text"


def pattern_tree(pattern: Pattern) -> Tree:
    """``pattern`` as a tree.

    Args:
        pattern: A canonical pattern.
    """
    root = Tree(Text())
    # Patterns may be deeper than Python's stack, so what is still to be drawn is kept in a list.
    pending: list[tuple[Tree, _Part]] = [(root, pattern)]
    while pending:
        above, part = pending.pop()
        if isinstance(part, Text):
            above.add(part)
            continue
        branch = above.add(_label(part))
        pending.extend((branch, each) for each in reversed(list(_beneath(part))))
    return _child(root)


def match_tree(match: Match[Any]) -> Tree:
    """``match`` as a tree of its nodes, each with the operator that it was taken for.

    Args:
        match: A match.
    """
    names = {value: name for name, value in match.captures.items() if isinstance(value, Node)}
    root = Tree(Text())
    # Where the next parts belong, and how many more of them.
    open_places = [(root, 1)]
    for value, inputs, operator in match.parts:
        above, missing = open_places.pop()
        if missing > 1:
            open_places.append((above, missing - 1))
        label = _matched(value, inputs, operator)
        if isinstance(value, Node) and value in names:
            label = Text.assemble((f"${names[value]}: ", "italic"), label)
        branch = above.add(label)
        if inputs > 0:
            open_places.append((branch, inputs))
    return _child(root)


def _child(root: Tree) -> Tree:
    (child,) = root.children
    return child


def _matched(value: Any, inputs: int, operator: Any) -> Text:
    if operator is not None:
        return Text.assemble(value.name, " = ", (str(operator), _NAME))
    if isinstance(value, Node):
        return Text.assemble(value.name, (" (any value)", _QUIET))
    if inputs < 0:
        return Text(repr(value))
    is_missing = value is None and inputs == 1
    return Text("an optional step is missing" if is_missing else "a list", style=_QUIET)


def _beneath(pattern: Pattern) -> Iterator[_Part]:
    if isinstance(pattern, (Where, Capture)):
        yield from _beneath(pattern.pattern)
    elif isinstance(pattern, Op):
        yield from pattern.inputs or ()
        if pattern.open:
            yield _FREE
    elif isinstance(pattern, Step):
        yield from pattern.inputs
    elif isinstance(pattern, AnyOf):
        yield from pattern.choices
    elif isinstance(pattern, ListOf):
        yield from pattern.items
        if pattern.open:
            yield Text("... (any further items)", style=_QUIET)


def _label(pattern: Pattern) -> Text:  # noqa: PLR0911  one per kind of pattern
    if isinstance(pattern, Capture):
        return Text.assemble((f"${pattern.name}: ", "italic"), _label(pattern.pattern))
    if isinstance(pattern, Where):
        return Text.assemble(_label(pattern.pattern), (f"  where {pattern.reason}", "yellow"))
    if isinstance(pattern, Op):
        return _operator(pattern)
    if isinstance(pattern, Step):
        heads = Text(" or ").join(map(_label, pattern.heads))
        return Text.assemble(heads, (" (optional)", _QUIET)) if pattern.optional else heads
    if isinstance(pattern, AnyOf):
        return Text("any_of", style=_QUIET)
    if isinstance(pattern, ListOf):
        return Text("a list", style=_QUIET)
    if isinstance(pattern, LiteralValue):
        return Text(repr(pattern.value))
    return Text.assemble(str(pattern), (f" ({_wildcard(pattern)})", _QUIET))


def _wildcard(pattern: MatchAllNode) -> str:
    return "any value or constant" if pattern.literals else "any value"


def _operator(pattern: Op) -> Text:
    named = ", ".join(f"{name}={render(value)}" for name, value in pattern.keywords)
    nothing = "()" if pattern.inputs == () else ""
    notes = ", any order" if pattern.any_order else ""
    return Text.assemble(
        (str(pattern.operator), _NAME), f"({named})" if named else nothing, (notes, _QUIET)
    )
