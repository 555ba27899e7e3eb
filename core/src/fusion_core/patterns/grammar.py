"""What a pattern is: operators and the patterns of their inputs, as plain immutable values.

::

    operator := module type | function | torch op | native op | method name | (getattr, name)
              | operation | MatchAllNode
    pattern  := operator | (operator, pattern, ..., pattern) | any_of(pattern, ...) | literal

A reverse nested tuple may end in Python's ``...``, which leaves the arguments it does not name
free.

A user writes tuples; :mod:`fusion_core.patterns.normalize` turns them into the classes of this
module, the one canonical form that everything else reads. Data flows from the leaves to the
outermost ``Op``, whose node in a graph is called the anchor.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

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
            return str(self.target.__name__)
        return function_name(self.target)

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
        return type(argument) is type(self.value) and argument == self.value

    def __str__(self) -> str:
        return repr(self.value)


@dataclass(frozen=True, slots=True)
class Op:
    """An operator applied to inputs.

    Attributes:
        operator: What the node does.
        inputs: Patterns of the leading arguments in signature order; None leaves all arguments
            free.
        open: Whether the arguments behind ``inputs`` are free too; otherwise they must have their
            defaults.
    """

    operator: Operator
    inputs: tuple[Pattern, ...] | None = None
    open: bool = False


@dataclass(frozen=True, slots=True)
class AnyOf:
    """One of several patterns, tried in the order written."""

    choices: tuple[Pattern, ...]


Pattern: TypeAlias = Op | AnyOf | MatchAllNode | LiteralValue


@dataclass(frozen=True, slots=True)
class Alternatives:
    """What :func:`any_of` returns: alternatives as the user spelled them, not yet normalised."""

    choices: tuple[Any, ...]

    def __reduce__(self) -> tuple[Any, ...]:
        return _alternatives_from_names, (by_name(self.choices),)


def _alternatives_from_names(choices: tuple[Any, ...]) -> Alternatives:
    return Alternatives(from_name(choices))


@dataclass(frozen=True, slots=True)
class FreeArguments:
    """What :func:`any_arguments` returns: an operator as the user spelled it."""

    operator: Any


def any_arguments(operator: object) -> FreeArguments:
    """An operator whose arguments are free, but for those that the pattern names.

    ``(nn.Conv2d, any_arguments(ops.clamp))`` is a convolution behind which anything clamps, between
    whatever bounds. In a reverse nested tuple ``...`` at the end says the same.

    Args:
        operator: An operator.

    Returns:
        A value usable wherever an operator is.
    """
    return FreeArguments(operator)


def any_of(*choices: object) -> Alternatives:
    """A pattern that matches where one of ``choices`` does.

    Args:
        *choices: Patterns; operators may stand in a sequential tuple as well.

    Returns:
        A value usable wherever a pattern is.
    """
    return Alternatives(choices)


def function_name(target: Any) -> str:
    """The name a function is known by: ``operator.add``, ``torch.flatten``, ``aten.add.Tensor``."""
    name = getattr(target, "__name__", None) or str(target)
    module = getattr(target, "__module__", None) or ""
    if module == "_operator":
        return f"operator.{name}"
    if module.startswith("torch._ops"):
        return str(target)
    if module == "torch._C._nn":
        return f"functional.{name}"
    return f"{module.rsplit('.', 1)[-1]}.{name}" if module else name
