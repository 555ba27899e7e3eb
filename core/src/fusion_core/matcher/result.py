"""What trying a pattern gives: a ``Match``, or a ``NoMatch`` that knows why."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeAlias, TypeVar

from torch.fx import Node

from fusion_core.patterns import (
    AnyOf,
    ListOf,
    LiteralValue,
    MatchAllNode,
    Op,
    Operator,
    Pattern,
    render,
)

Entry = TypeVar("Entry")

NodePattern: TypeAlias = Any
"""A pattern with graph nodes in place of operators: a node, or ``(node, input, ...)``, nested."""

Place: TypeAlias = tuple[Node, int]
"""An operand: the node that takes it, and which of its arguments it is."""

LIST = object()
"""Stands in a match's parts for a list argument, whose items are the parts that belong to it."""

Part: TypeAlias = tuple[Any, int, Operator | None]
"""A value of a match, how many parts belong to it as its inputs, and the operator that was meant."""


@dataclass(slots=True, eq=False)
class Match(Generic[Entry]):
    """A pattern found in a graph.

    Attributes:
        entry: Whatever the index holds for the pattern.
        nodes: Every node the match claims, in the order of the nested pattern, the anchor first;
            wildcards are not among them.
        captures: What stands in the places that have a name.
    """

    entry: Entry
    nodes: tuple[Node, ...]
    captures: Mapping[str, Any]
    _parts: tuple[Part, ...] | Callable[[], tuple[Part, ...]] = field(repr=False)

    @property
    def parts(self) -> tuple[Part, ...]:
        """The match in the order of the nested pattern, wildcards and literals included."""
        if callable(self._parts):
            self._parts = self._parts()
        return self._parts

    @property
    def anchor(self) -> Node:
        """The last node of the match."""
        return self.nodes[0]

    @property
    def reading(self) -> Pattern:
        """The pattern as it was read here: without alternatives, conditions and names."""
        built: list[Any] = []
        for value, inputs, operator in reversed(self.parts):
            operands = tuple(built.pop() for _ in range(max(inputs, 0)))
            if operator is not None:
                built.append(Op(operator, operands or None))
            elif value is LIST:
                built.append(ListOf(operands))
            elif operands:
                built.append(operands[0])
            else:
                is_node = isinstance(value, Node)
                built.append(MatchAllNode() if is_node else LiteralValue(value))
        return built[0]  # type: ignore[no-any-return]  # the anchor's

    @property
    def node_pattern(self) -> NodePattern:
        """The nodes in the shape of the reverse nested pattern, wildcards and literals included.

        ``None`` stands for a step that is missing.
        """
        built: list[Any] = []
        for value, inputs, _ in reversed(self.parts):
            if inputs < 0:
                built.append(value)
            else:
                operands = [built.pop() for _ in range(inputs)]
                built.append(_joined(value, operands))
        return built[0]


def _joined(value: Any, operands: list[Any]) -> Any:
    if value is LIST:
        return operands
    return (value, *operands) if operands else value


@dataclass(frozen=True, slots=True)
class NoMatch:
    """Why a pattern does not match; cheap to make, rendered when asked.

    Attributes:
        template: Format string.
        values: What goes into it.
        depth: How many operators had matched before; a deeper failure is a nearer miss.
        place: Whose operand was looked at, and which: the node and the operand's place; None at the
            anchor.
        hint: Format string of what would make it match, with the same values.
    """

    template: str
    values: tuple[Any, ...] = ()
    depth: int = 0
    place: Place | None = None
    hint: str = ""

    @property
    def reason(self) -> str:
        """The sentence."""
        return self.template.format(*map(_shown, self.values))

    @property
    def remedy(self) -> str:
        """What would make it match, as far as the matcher knows; may be empty."""
        return self.hint.format(*map(_shown, self.values))


def _shown(value: Any) -> Any:
    """A value as sentences name it: alternatives as their author would write them."""
    return render(value) if isinstance(value, AnyOf) else value
