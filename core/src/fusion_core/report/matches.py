"""``match``: what a pattern finds in a graph, for those who write patterns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, overload

from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text
from torch import nn
from torch.fx import GraphModule, Node

from fusion_core.errors import NotAGraphError
from fusion_core.matcher import CallGraph, Match, NoMatch, PatternIndex, match_at, scan
from fusion_core.patterns import (
    Op,
    Pattern,
    anchors_of,
    normalize_nested,
    normalize_sequential,
    operator_count,
    render,
)
from fusion_core.report.blame import is_other_operator, stopped_at
from fusion_core.report.drawing import match_tree, pattern_tree
from fusion_core.report.paragraphs import in_place, why
from fusion_core.report.printing import Printable

_FEW = 3


@dataclass(frozen=True, slots=True)
class Miss:
    """A node in which a pattern ends, and what stopped it there.

    Attributes:
        node: The node.
        reason: Why the pattern does not match.
        stopped_at: The operand or argument that stopped it, in words; empty where it was not one.
        depth: How many of the pattern's operators were in place.
        is_other_operator: Whether another operator stands there than the pattern has.
        remedy: What to do so that it matches, as far as is known.
    """

    node: Node
    reason: str
    stopped_at: str
    depth: int
    is_other_operator: bool
    remedy: str


@dataclass(frozen=True)
class Matches(Printable, Sequence[Match[str]]):
    """What a pattern finds in a graph: a sequence of matches in the order of the graph.

    ``print`` draws the pattern, the last operator first, and each match with the names of its
    nodes; where there is none, what came nearest.

    Attributes:
        pattern: The pattern in its canonical form.
        matches: The matches. ``nodes``, ``node_pattern``, ``captures`` and ``reading`` of each say
            what stands where.
        misses: Nodes with the pattern's last operator that no match took, the nearest miss first.
    """

    pattern: Pattern
    matches: tuple[Match[str], ...]
    misses: tuple[Miss, ...]

    def __len__(self) -> int:
        return len(self.matches)

    @overload
    def __getitem__(self, index: int) -> Match[str]: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Match[str]]: ...
    def __getitem__(self, index: Any) -> Any:
        """A match, or several, in the order of the graph."""
        return self.matches[index]

    def _drawn(self) -> Iterator[RenderableType]:
        yield Text(render(self.pattern), style="bold")
        yield pattern_tree(self.pattern)
        yield Text("")
        count = len(self.matches)
        yield Text(f"{count or 'no'} {'match' if count == 1 else 'matches'}")
        for match in self.matches:
            yield Text("")
            yield match_tree(match)
        if not self.matches:
            yield from self._drawn_misses()

    def _drawn_misses(self) -> Iterator[RenderableType]:
        if not self.misses:
            ends = dict.fromkeys(
                str(each.operator) for each in anchors_of(self.pattern) if isinstance(each, Op)
            )
            yield Text(f"no node of the graph is {' or '.join(ends)}, in which the pattern ends")
        operators = operator_count(self.pattern)
        for miss in self.misses[:_FEW]:
            text = f"{why(miss.stopped_at, miss.reason)} ({in_place(miss.depth, operators)})"
            yield Text("")
            yield Text.assemble("nearest, ending in ", (miss.node.name, "bold"))
            yield Padding(Text(text), (0, 0, 0, 4))
            if miss.remedy:
                yield Padding(Text.assemble(("to match: ", "dim"), miss.remedy), (0, 0, 0, 4))
        if len(self.misses) > _FEW:
            yield Text(f"and {len(self.misses) - _FEW} more")


def match(pattern: object, graph_module: nn.Module, *, nested: bool = False) -> Matches:
    """Look for a pattern in a graph, as a pass would: no node belongs to two matches.

    Args:
        pattern: An operator, a tuple of operators in data-flow order, or a pattern that
            :func:`fusion_core.parse` read.
        graph_module: The graph: what :func:`fusion_core.trace` returned, or
            ``torch.fx.symbolic_trace``. It is not changed.
        nested: Whether tuples of ``pattern`` are reverse nested, the last operator first.

    Returns:
        The matches with what they captured. They print as drawings, and where there is none, the
        nearest misses are named.

    Raises:
        NotAGraphError: ``graph_module`` is a module, but no graph.
        PatternError: ``pattern`` is not one.
        PredicateError: A condition of the pattern raised.
    """
    if not isinstance(graph_module, GraphModule):
        raise NotAGraphError(graph_module)
    canonical = normalize_nested(pattern) if nested else normalize_sequential(pattern)
    calls = CallGraph.of(graph_module)
    index = PatternIndex([(canonical, render(canonical))])
    found = tuple(reversed(scan(calls, index).matches))
    taken = {node for each in found for node in each.nodes}
    left = [node for node in graph_module.graph.nodes if node not in taken]
    misses = [_miss(node, canonical, calls) for node in left if [*index.anchored(node, calls)]]
    misses.sort(key=lambda miss: (-miss.depth, miss.is_other_operator))
    return Matches(canonical, found, tuple(misses))


def _miss(node: Node, pattern: Pattern, calls: CallGraph) -> Miss:
    failure = match_at(pattern, node, calls, render(pattern))
    if isinstance(failure, Match):
        failure = NoMatch("its nodes belong to another match", depth=len(failure.nodes))
    return Miss(
        node,
        failure.reason,
        stopped_at(failure, calls),
        failure.depth,
        is_other_operator(failure),
        failure.remedy,
    )
