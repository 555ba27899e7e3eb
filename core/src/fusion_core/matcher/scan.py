"""One reverse sweep over a graph: every node is claimed by at most one match, decided once."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from torch.fx import Node

from fusion_core.matcher.calls import CallGraph
from fusion_core.matcher.index import Bound, PatternIndex
from fusion_core.matcher.plain import plain_match
from fusion_core.matcher.result import Match, NoMatch
from fusion_core.matcher.solve import Search, match_at
from fusion_core.matcher.tree import Walk

Entry = TypeVar("Entry")


@dataclass(slots=True)
class Scan(Generic[Entry]):
    """What a sweep found.

    Attributes:
        matches: In reverse order of execution; no node stands in two of them.
        refusals: For each node, the patterns that could have been anchored there and why they were
            not.
        visited: How many nodes were visited.
        tried: How many patterns were tried on them.
    """

    matches: list[Match[Entry]] = field(default_factory=list)
    refusals: dict[Node, list[tuple[Entry, NoMatch]]] = field(default_factory=dict)
    visited: int = 0
    tried: int = 0


def scan(
    calls: CallGraph,
    index: PatternIndex[Entry],
    accept: Callable[[Match[Entry]], NoMatch | None] | None = None,
) -> Scan[Entry]:
    """Match every node of a graph, last node first.

    At each unclaimed node the best match wins: of the highest priority the one that claims most
    nodes, of those the one whose pattern has fewest wildcards, then the one that the index has
    first. A match is taken whole or not at all. No two matches share a node: what reads an inner
    node is in its match, so whoever reaches it came through that match.

    Args:
        calls: The graph's call sites.
        index: The patterns.
        accept: May refuse a match, for a reason the patterns cannot express.

    Returns:
        The matches and the refusals.

    Raises:
        PredicateError: A condition of a pattern raised.
    """
    keys, careful = calls.survey()
    sweep = _Sweep(calls, index, accept, careful)
    walk = Walk(calls, keys.get)
    claimed: set[Node] = set()
    for node in reversed(calls.graph.nodes):
        if node in claimed or not index.ends_with(keys.get(node)):
            continue
        match = sweep.best(node, index.found(node, walk))
        if match is not None:
            claimed.update(match.nodes)
            sweep.result.matches.append(match)
    sweep.result.visited = len(calls.graph.nodes)
    return sweep.result


@dataclass
class _Sweep(Generic[Entry]):
    """What :func:`scan` was given, and what it found so far."""

    calls: CallGraph
    index: PatternIndex[Entry]
    accept: Callable[[Match[Entry]], NoMatch | None] | None
    careful: set[Node]
    result: Scan[Entry] = field(default_factory=Scan)

    def best(self, node: Node, waiting: list[Any]) -> Match[Entry] | None:
        """The best match at ``node`` that is accepted; uses up the candidates ``waiting``.

        A pattern waits under the best it could be; once tried, under what its match is. Whatever
        comes to the front as a match is therefore better than all that may still come.
        """
        while waiting:
            bound, state = heapq.heappop(waiting)
            pattern, entry = self.index.entries[bound[3]]
            match: Match[Entry] | None = None
            if not isinstance(state, Search):
                self.result.tried += 1
                match = None if state is None else plain_match(state, self.careful, entry)
                if match is None:
                    state = Search(pattern, node, self.calls, entry)
                    if not state.advance():
                        self._refuse(node, entry, state.nearest)
                        continue
                    exact = _exact(bound, state)
                    if exact != bound and waiting and waiting[0][0] < exact:
                        heapq.heappush(waiting, (exact, state))
                        continue
            match = match or state.match()
            refusal = None if self.accept is None else self.accept(match)
            if refusal is None:
                return match
            self._refuse(node, entry, refusal)
            if isinstance(state, Search) and state.advance():
                heapq.heappush(waiting, (_exact(bound, state), state))
        return None

    def _refuse(self, node: Node, entry: Entry, reason: NoMatch) -> None:
        self.result.refusals.setdefault(node, []).append((entry, reason))


def _exact(bound: Bound, search: Search) -> Bound:
    priority, _, wildcards, rank = bound
    return (priority, -search.size, wildcards, rank)


def nearest_miss(
    node: Node, calls: CallGraph, index: PatternIndex[Entry]
) -> tuple[Entry, NoMatch] | None:
    """Of the patterns that end in the call of ``node`` and do not match, one that came furthest."""
    near = index.nearest(node, calls)
    if near is None:
        return None
    found: Any = match_at(near[0], node, calls, near[1])
    return (near[1], found) if isinstance(found, NoMatch) else None
