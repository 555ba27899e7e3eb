"""What pattern authors write besides tuples: plain values that compose, usable wherever a pattern is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from fusion_core.patterns.grammar import LiteralValue, MatchAllNode
from fusion_core.patterns.pickling import by_name, from_name

Form: TypeAlias = Literal[
    "any_of", "any_order", "call", "capture", "chain", "list_of", "optional", "where"
]


@dataclass(frozen=True, slots=True)
class Expression:
    """What the functions of this module return: a pattern as its author spelled it, not yet normalised.

    Attributes:
        form: Which function returned it.
        parts: Its positional arguments.
        options: Its keyword arguments, sorted by name.
    """

    form: Form
    parts: tuple[Any, ...]
    options: tuple[tuple[str, Any], ...] = ()

    def __repr__(self) -> str:
        """The call that made it."""
        options = (f"{name}={value!r}" for name, value in self.options)
        return f"{self.form}({', '.join([*map(repr, self.parts), *options])})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _expression_from_names, (self.form, by_name(self.parts), by_name(self.options))


def _expression_from_names(form: Form, parts: Any, options: Any) -> Expression:
    return Expression(form, from_name(parts), from_name(options))


def any_of(*choices: object) -> Expression:
    """A pattern that matches where one of ``choices`` does; they are tried in the order written.

    ``(nn.Conv2d, any_of(nn.ReLU, nn.ReLU6))`` is a convolution with either activation behind it.

    Args:
        *choices: Patterns; as a step of a chain, operators.
    """
    return Expression("any_of", choices)


def any_order(operator: object, *inputs: object) -> Expression:
    """An operator whose leading operands may stand in any order in the graph.

    ``any_order(operator.add, MatchAllNode, nn.Conv2d)`` is a sum of anything and a convolution,
    whichever is written first. In a node pattern the operands always stand as written here.

    Args:
        operator: An operator whose operands may change places, such as addition.
        *inputs: Patterns of two to four operands.
    """
    return Expression("any_order", (operator, *inputs))


def optional(operator: object) -> Expression:
    """A step of a chain that may be missing.

    ``(nn.Conv2d, optional(nn.BatchNorm2d), nn.ReLU)`` is a convolution and relu, with or without a
    batch norm between them. A fuser method gets None for it, and a node pattern has None in its place.

    Args:
        operator: An operator, or :func:`any_of` several.
    """
    return Expression("optional", (operator,))


def where(pattern: object, predicate: Callable[[Any, Any], Any], reason: str = "") -> Expression:
    """A pattern with a condition on its last node.

    ::

        where(nn.Conv2d, lambda node, conv: conv.groups == 1, reason="one group only")

    Args:
        pattern: A pattern.
        predicate: Called ``predicate(node, module)`` with the graph node in the pattern's place and
            the module it calls, or None where it calls none. Shape and dtype, where known, are in
            ``node.meta["tensor_meta"]``. Returns whether the condition holds, or a ``Skip`` with
            the reason why not.
        reason: What the condition asks for, in words; default the predicate's name.
    """
    return Expression("where", (pattern, predicate, reason))


def capture(name: str, pattern: object = MatchAllNode) -> Expression:
    """A pattern whose value has a name; the same name in another place is the very same value.

    ``(operator.mul, capture("x"), (torch.sigmoid, capture("x")))`` is ``x * sigmoid(x)``. What was
    captured is in ``Match.captures``.

    Args:
        name: The name.
        pattern: What the value is. It need be given in one place of the name only.
    """
    return Expression("capture", (name, pattern))


def call(operator: object, *inputs: object, **constraints: object) -> Expression:
    """An operator with constraints on its arguments by name.

    ``call(torch.add, alpha=2)``, ``call(ops.flatten, start_dim=1)``, ``call(nn.Conv2d, groups=1)``.
    A name is a parameter of the operator, given or at its default, or an attribute of the module.

    Args:
        operator: An operator.
        *inputs: Patterns of its leading operands, as in a reverse nested tuple; none where a tuple
            or a chain gives them. ``...`` at the end leaves the other arguments free.
        **constraints: Numbers, strings, dtypes, tuples of such, :func:`any_of` several, or
            ``MatchAllNode(literals=True)`` for any value.
    """
    return Expression("call", (operator, *inputs), tuple(sorted(constraints.items())))


def any_arguments(operator: object) -> Expression:
    """An operator whose arguments are free, but for those that the pattern names.

    ``(nn.Conv2d, any_arguments(ops.clamp))`` is a convolution behind which anything clamps, between
    whatever bounds. In a reverse nested tuple ``...`` at the end says the same.

    Args:
        operator: An operator.
    """
    return Expression("call", (operator, ...))


def chain(*elements: object) -> Expression:
    """Operators in data-flow order, within a pattern that is written otherwise.

    ``(nn.ReLU, (operator.add, MatchAllNode, chain(nn.Conv2d, nn.BatchNorm2d)))``.

    Args:
        *elements: What a sequential tuple may hold.
    """
    return Expression("chain", elements)


def list_of(*items: object) -> Expression:
    """A list or tuple argument, item by item; ``[a, b]`` in a pattern says the same, but has no hash.

    Args:
        *items: Patterns; ``...`` at the end lets more items follow.
    """
    return Expression("list_of", items)


def literal(value: object) -> LiteralValue:
    """A constant argument. Numbers and None need no such mark; a string would name a method without it.

    Args:
        value: The constant, which is compared by type and value.
    """
    return LiteralValue(tuple(value) if isinstance(value, list) else value)
