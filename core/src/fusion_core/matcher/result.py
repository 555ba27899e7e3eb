"""What trying a pattern gives: a ``Match``, or a ``NoMatch`` that knows why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

from torch.fx import Node

Entry = TypeVar("Entry")

NodePattern: TypeAlias = Any
"""A pattern with graph nodes in place of operators: a node, or ``(node, input, ...)``, nested."""


@dataclass(frozen=True, slots=True)
class Match(Generic[Entry]):
    """A pattern found in a graph.

    Attributes:
        entry: Whatever the index holds for the pattern.
        anchor: The last node of the match.
        nodes: Every node the match claims, anchor first; wildcards are not among them.
        node_pattern: The nodes in the shape of the reverse nested pattern, wildcards included.
    """

    entry: Entry
    anchor: Node
    nodes: tuple[Node, ...]
    node_pattern: NodePattern


@dataclass(frozen=True, slots=True)
class NoMatch:
    """Why a pattern does not match; cheap to make, rendered when asked.

    Attributes:
        template: Format string.
        values: What goes into it.
        depth: How many operators had matched before; a deeper failure is a nearer miss.
    """

    template: str
    values: tuple[Any, ...] = ()
    depth: int = 0

    @property
    def reason(self) -> str:
        """The sentence."""
        return self.template.format(*self.values)
