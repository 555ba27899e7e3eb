"""What a pattern is: operators and the patterns of their inputs, as plain immutable values.

::

    operator := module type | function | torch op | native op | method name | (getattr, name)
              | operation | MatchAllNode
    pattern  := operator | (operator, pattern, ..., pattern) | [pattern, ...] | literal
              | any_of(pattern, ...) | any_order(operator, pattern, ...) | optional(operator)
              | where(pattern, predicate) | capture(name, pattern) | call(operator, ..., name=value)
              | chain(pattern, ...)

A reverse nested tuple may end in Python's ``...``, which leaves the arguments it does not name
free.

A user writes tuples and the functions of :mod:`fusion_core.patterns.authoring`;
:mod:`fusion_core.patterns.normalize` turns them into the classes of this module, the one canonical
form that everything else reads. Data flows from the leaves to the outermost ``Op``, whose node in a
graph is called the anchor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from fusion_core.patterns.naming import function_name, module_name
from fusion_core.patterns.pickling import by_name, from_name

OperatorKind: TypeAlias = Literal["module", "function", "method", "getattr", "operation"]


@dataclass(frozen=True, slots=True)
class Operator:
    """One thing that a graph node can do.

    Attributes:
        kind: How a node names it.
        target: Module type, function object, method name, attribute name, or operation name.
    """

    kind: OperatorKind
    target: Any

    def __str__(self) -> str:
        if self.kind == "method":
            return f".{self.target}"
        if self.kind == "getattr":
            return f"getattr({self.target})"
        if self.kind == "operation":
            return str(self.target)
        if self.kind == "module":
            return module_name(self.target)
        return function_name(self.target)

    @property
    def short_name(self) -> str:
        """For tables: a module type goes by its own name alone."""
        return self.target.__name__ if self.kind == "module" else str(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return _operator_from_name, (self.kind, by_name(self.target))


def _operator_from_name(kind: OperatorKind, target: Any) -> Operator:
    return Operator(kind, from_name(target))


@dataclass(frozen=True, slots=True)
class MatchAllNode:
    """Any value computed in the graph; it belongs to whoever computed it, never to the match.

    The class itself may be written in a pattern; it means ``MatchAllNode()``.

    Attributes:
        literals: Also accept a Python literal (a number, None, ...) in this place.
    """

    literals: bool = False

    def __str__(self) -> str:
        return "*" if not self.literals else "*literal"


@dataclass(frozen=True, slots=True, eq=False)
class LiteralValue:
    """A constant argument, equal in type and value."""

    value: Any

    def __eq__(self, other: object) -> bool:
        """Equal only to the same value of the same type."""
        return isinstance(other, LiteralValue) and other.accepts(self.value)

    def __hash__(self) -> int:
        """Values of different types hash apart."""
        return hash((type(self.value), self.value))

    def accepts(self, argument: object) -> bool:
        """Whether ``argument`` is this constant; ``True`` and ``1`` are different constants."""
        return type(argument) is type(self.value) and bool(argument == self.value)

    def __str__(self) -> str:
        return repr(self.value)


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list or tuple argument and the patterns of what it holds.

    Attributes:
        items: Patterns of the leading items.
        open: Whether more items may follow; they are left free.
    """

    items: tuple[Pattern, ...]
    open: bool = False


@dataclass(frozen=True, slots=True)
class Op:
    """An operator applied to inputs.

    Attributes:
        operator: What the node does.
        inputs: Patterns of the leading arguments in signature order; None leaves all positional
            arguments free.
        open: Whether the arguments behind ``inputs`` are free too; otherwise they must have their
            defaults.
        keywords: Arguments by parameter name, or attributes of the module, and what they must be;
            sorted by name.
        any_order: Whether the graph may have ``inputs`` in another order.
    """

    operator: Operator
    inputs: tuple[Pattern, ...] | None = None
    open: bool = False
    keywords: tuple[tuple[str, Pattern], ...] = ()
    any_order: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a chain that is one of several operators, or may be missing.

    Attributes:
        heads: What the step may be, in the order tried; none has inputs of its own.
        inputs: What every head is applied to.
        optional: Whether the single input may stand in the step's place.
    """

    heads: tuple[Pattern, ...]
    inputs: tuple[Pattern, ...]
    optional: bool = False


@dataclass(frozen=True, slots=True)
class AnyOf:
    """One of several patterns, tried in the order written."""

    choices: tuple[Pattern, ...]


@dataclass(frozen=True, slots=True)
class Where:
    """A pattern with a condition on the node in its place.

    Attributes:
        pattern: The pattern.
        predicate: Called ``predicate(node, module)`` once the pattern matches; ``module`` is None
            unless the node calls one.
        reason: What the condition asks for, in words.
    """

    pattern: Pattern
    predicate: Callable[[Any, Any], Any]
    reason: str

    def __reduce__(self) -> tuple[Any, ...]:
        return _where_from_name, (self.pattern, by_name(self.predicate), self.reason)


def _where_from_name(pattern: Pattern, predicate: Any, reason: str) -> Where:
    return Where(pattern, from_name(predicate), reason)


@dataclass(frozen=True, slots=True)
class Capture:
    """A pattern whose value has a name; the same name in two places is the same value.

    Attributes:
        name: The name.
        pattern: What the value is; the same in every place of the name.
    """

    name: str
    pattern: Pattern


Pattern: TypeAlias = Op | Step | AnyOf | Where | Capture | ListOf | MatchAllNode | LiteralValue


def parts_of(pattern: Pattern) -> Iterator[Pattern]:
    """The patterns that ``pattern`` is directly made of; keyword constraints are not among them."""
    if isinstance(pattern, Op):
        yield from pattern.inputs or ()
    elif isinstance(pattern, Step):
        yield from pattern.heads
        yield from pattern.inputs
    elif isinstance(pattern, AnyOf):
        yield from pattern.choices
    elif isinstance(pattern, ListOf):
        yield from pattern.items
    elif isinstance(pattern, (Where, Capture)):
        yield pattern.pattern


def with_parts(pattern: Pattern, change: Callable[[Pattern], Pattern]) -> Pattern:
    """``pattern`` with each part that :func:`parts_of` gives replaced by what ``change`` makes of it."""
    if isinstance(pattern, Op) and pattern.inputs is not None:
        return replace(pattern, inputs=tuple(map(change, pattern.inputs)))
    if isinstance(pattern, Step):
        heads, inputs = tuple(map(change, pattern.heads)), tuple(map(change, pattern.inputs))
        return replace(pattern, heads=heads, inputs=inputs)
    if isinstance(pattern, AnyOf):
        return AnyOf(tuple(map(change, pattern.choices)))
    if isinstance(pattern, ListOf):
        return replace(pattern, items=tuple(map(change, pattern.items)))
    if isinstance(pattern, (Where, Capture)):
        return replace(pattern, pattern=change(pattern.pattern))
    return pattern


def all_parts(pattern: Pattern) -> Iterator[Pattern]:
    """``pattern``, its parts, theirs and so on, outermost first; what stands in two places comes once."""
    pending, seen = [pattern], set[int]()
    while pending:
        each = pending.pop()
        if id(each) not in seen:
            seen.add(id(each))
            yield each
            pending.extend(reversed(tuple(parts_of(each))))
