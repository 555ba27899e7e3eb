"""A pattern as text: ``Conv2d -> BatchNorm2d? -> any_of(ReLU, ReLU6)``, ``add(*, Conv2d) -> ReLU``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

from fusion_core.patterns.grammar import (
    AnyOf,
    Capture,
    ListOf,
    MatchAllNode,
    Op,
    Operator,
    Pattern,
    Step,
    Where,
)
from fusion_core.patterns.naming import function_name, operation_name

# Text in which some parts are still patterns.
_Pieces: TypeAlias = "list[str | Pattern]"
# The last step of a chain, and what comes before it; None at the chain's beginning.
_Link: TypeAlias = "tuple[_Pieces, Pattern | None]"


def render(pattern: Pattern) -> str:
    """The shortest faithful text of ``pattern``; :func:`fusion_core.patterns.parse` reads it back.

    Steps with one input are written in data-flow order with arrows, operators with several as
    calls. An operator whose further arguments are free has ``...`` among its arguments, a step that
    may be missing a question mark, a captured value ``$name:`` in front.
    """
    # Patterns may be deeper than Python's stack, so what is still to be written is kept in a list.
    text: list[str] = []
    pending: _Pieces = [pattern]
    while pending:
        piece = pending.pop()
        if isinstance(piece, str):
            text.append(piece)
        else:
            pending.extend(reversed(_chain(piece)))
    return "".join(text)


def _chain(pattern: Pattern) -> _Pieces:
    links: list[_Pieces] = []
    rest: Pattern | None = pattern
    while rest is not None:
        link, rest = _link(rest)
        links.append(link)
    return _joined(reversed(links), " -> ")


def _link(pattern: Pattern) -> _Link:
    write = _WRITERS.get(type(pattern))
    return ([str(pattern)], None) if write is None else write(pattern)


def _op(op: Op) -> _Link:
    inputs = op.inputs or ()
    if op.any_order:
        return ["any_order(", *_listed([_operator(op.operator)], inputs, op.open), ")"], None
    rest = inputs[0] if len(inputs) == 1 else None
    keywords = [[f"{_name(name)}=", value] for name, value in op.keywords]
    arguments = _listed([], () if rest is not None else inputs, op.open, keywords)
    if arguments or op.inputs == ():
        arguments = ["(", *arguments, ")"]
    return [_operator(op.operator), *arguments], rest


def _operator(operator: Operator) -> str:
    if operator.kind == "getattr":
        return f"getattr({_name(operator.target)})"
    return operation_name(operator.target) if operator.kind == "operation" else str(operator)


def _step(step: Step) -> _Link:
    heads: _Pieces = [*step.heads]
    if len(heads) > 1:
        heads = ["any_of(", *_listed([], step.heads), ")"]
    if len(step.inputs) > 1:
        return [*heads, "(", *_listed([], step.inputs), ")"], None
    return [*heads, "?" * step.optional], next(iter(step.inputs), None)


def _where(where: Where) -> _Link:
    condition = f", {function_name(where.predicate)}, {where.reason!r})"
    if _may_be_missing(where):
        return ["where(", where.pattern, condition], None
    inner, rest = _link(where.pattern)
    return ["where(", *inner, condition], rest


def _capture(capture: Capture) -> _Link:
    if capture.pattern == MatchAllNode():
        return [f"${capture.name}"], None
    if _may_be_missing(capture):
        return [f"${capture.name}:(", capture.pattern, ")"], None
    inner, rest = _link(capture.pattern)
    return [f"${capture.name}:", *inner], rest


def _may_be_missing(pattern: Pattern) -> bool:
    """Whether a condition or name is about an optional step and what stands in its place, not the step alone."""
    while isinstance(pattern, (Where, Capture)):
        pattern = pattern.pattern
    return isinstance(pattern, Step) and pattern.optional


def _any_of(any_of: AnyOf) -> _Link:
    return ["any_of(", *_listed([], any_of.choices), ")"], None


def _list(items: ListOf) -> _Link:
    return ["[", *_listed([], items.items, items.open), "]"], None


_WRITERS: Mapping[type, Callable[[Any], _Link]] = MappingProxyType(
    {Op: _op, Step: _step, Where: _where, Capture: _capture, AnyOf: _any_of, ListOf: _list}
)


def _listed(
    first: _Pieces,
    patterns: Iterable[Pattern],
    is_open: bool = False,  # noqa: FBT001, FBT002  said by the call
    keywords: Iterable[_Pieces] = (),
) -> _Pieces:
    items: list[_Pieces] = [first] if first else []
    items.extend([each] for each in patterns)
    items.extend([["..."]] * is_open)
    return _joined([*items, *keywords], ", ")


def _joined(items: Iterable[_Pieces], separator: str) -> _Pieces:
    pieces: _Pieces = []
    for item in items:
        pieces.extend((*([separator] if pieces else []), *item))
    return pieces


def _name(name: str) -> str:
    """A name as it is, or quoted if nobody could tell where it ends."""
    return name if name.isidentifier() else repr(name)
