"""The ways to read a pattern: each alternative, each optional step with and without, each kind of spelling."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from torch import nn

from fusion_core.patterns import (
    AnyOf,
    Capture,
    ListOf,
    Op,
    Operator,
    Pattern,
    Step,
    Where,
    spellings_of,
)

Head = TypeVar("Head")
Inputs = TypeVar("Inputs")


def readings_of(pattern: Pattern) -> Iterator[Pattern]:
    """Patterns without choices that together use every choice of ``pattern`` at least once.

    Conditions are left out, so a reading may be more than the pattern accepts.
    """
    if isinstance(pattern, AnyOf):
        yield from _in_turn([readings_of(each) for each in pattern.choices])
    elif isinstance(pattern, Where):
        yield from readings_of(pattern.pattern)
    elif isinstance(pattern, Capture):
        yield from (Capture(pattern.name, each) for each in readings_of(pattern.pattern))
    elif isinstance(pattern, ListOf):
        yield from (replace(pattern, items=each) for each in _together(pattern.items))
    elif isinstance(pattern, Step):
        yield from _step(pattern)
    elif isinstance(pattern, Op):
        yield from _operation(pattern)
    else:
        yield pattern


def _step(pattern: Step) -> Iterator[Pattern]:
    heads = [each for head in pattern.heads for each in readings_of(head)]
    for head, inputs in _pairs(heads, tuple(_together(pattern.inputs))):
        yield _applied(head, inputs)
    if pattern.optional:
        yield from readings_of(pattern.inputs[0])


def _applied(head: Pattern, inputs: tuple[Pattern, ...]) -> Pattern:
    """A head, which may have a name, with what it is applied to."""
    if isinstance(head, Capture):
        return replace(head, pattern=_applied(head.pattern, inputs))
    return replace(head, inputs=inputs) if isinstance(head, Op) else head


def _operation(pattern: Op) -> Iterator[Pattern]:
    spellings = list(_kinds(pattern.operator))
    inputs: Sequence[tuple[Pattern, ...] | None] = (
        [None] if pattern.inputs is None else list(_together(pattern.inputs))
    )
    keywords = tuple((name, next(readings_of(wanted))) for name, wanted in pattern.keywords)
    for operator, read in _pairs(spellings, inputs):
        yield replace(pattern, operator=operator, inputs=read, keywords=keywords)


def _kinds(operator: Operator) -> Iterator[Operator]:
    """One spelling of an operation as a module, one as a function, one as a method."""
    if operator.kind != "operation":
        yield operator
        return
    spellings = spellings_of(operator)
    for kind in ("module", "function", "method"):
        named = (each for each in spellings if each.kind == kind and not _is_overload(each))
        yield from itertools.islice(named, 1)


def _is_overload(operator: Operator) -> bool:
    module = getattr(operator.target, "__module__", "") or ""
    is_builtin = operator.kind == "module" and not inspect.isclass(operator.target)
    return is_builtin or (operator.kind != "module" and module.startswith("torch._ops"))


def _together(patterns: Sequence[Pattern]) -> Iterator[tuple[Pattern, ...]]:
    """Readings of several patterns side by side: enough for each to show all of its own."""
    columns = [list(readings_of(each)) for each in patterns]
    if not columns:
        yield ()
        return
    longest = max(map(len, columns))
    for index in range(longest):
        yield tuple(column[index % len(column)] for column in columns)


def _pairs(heads: Sequence[Head], inputs: Sequence[Inputs]) -> Iterator[tuple[Head, Inputs]]:
    """Every head with the first inputs, and the first head with all others."""
    if not heads:
        return
    yield from ((head, inputs[0]) for head in heads)
    yield from ((heads[0], each) for each in inputs[1:])


def _in_turn(choices: Iterable[Iterator[Pattern]]) -> Iterator[Pattern]:
    """The first reading of each choice, then the second of each: a limit cuts off no choice."""
    pending = list(choices)
    while pending:
        for each in tuple(pending):
            reading = next(each, None)
            if reading is None:
                pending.remove(each)
            else:
                yield reading


def operators_of(reading: Pattern) -> Iterator[Operator]:
    """The operators of a pattern without choices, the anchor's first."""
    if isinstance(reading, Op):
        yield reading.operator
        for each in reading.inputs or ():
            yield from operators_of(each)
    elif isinstance(reading, Capture):
        yield from operators_of(reading.pattern)
    elif isinstance(reading, ListOf):
        for each in reading.items:
            yield from operators_of(each)


def is_module(operator: Operator) -> bool:
    """Whether an operator is the call of a module of one type."""
    return operator.kind == "module" and issubclass(operator.target, nn.Module)
