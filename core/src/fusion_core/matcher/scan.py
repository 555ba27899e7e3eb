"""One reverse sweep over a graph: every node is claimed by at most one match, decided once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from torch.fx import Node

from fusion_core.matcher.calls import CallGraph
from fusion_core.matcher.index import PatternIndex
from fusion_core.matcher.match import match_at
from fusion_core.matcher.result import Match, NoMatch

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
    accept: Callable[[Match[Entry]], NoMatch | None] = lambda _match: None,
) -> Scan[Entry]:
    """Match every node of a graph, last node first.

    At each unclaimed node the first pattern in order that matches and is accepted wins; a match is
    taken whole or not at all. No two matches share a node: an inner node has one user, so whoever
    reaches it came through the match that has it, whose anchor is claimed.

    Args:
        calls: The graph's call sites.
        index: The patterns, in order of preference.
        accept: May refuse a match, for a reason the patterns cannot express.

    Returns:
        The matches and the refusals.
    """
    result: Scan[Entry] = Scan()
    claimed: set[Node] = set()
    for node in reversed(calls.graph.nodes):
        result.visited += 1
        if node in claimed:
            continue
        for pattern, entry in index.candidates(node, calls):
            result.tried += 1
            found = match_at(pattern, node, calls, entry)
            if isinstance(found, Match):
                found = accept(found) or found
            if isinstance(found, Match):
                claimed.update(found.nodes)
                result.matches.append(found)
                break
            result.refusals.setdefault(node, []).append((entry, found))
    return result


def nearest_miss(
    node: Node, calls: CallGraph, index: PatternIndex[Entry]
) -> tuple[Entry, NoMatch] | None:
    """Of the patterns that end in the call of ``node`` and do not match, the one that came furthest."""
    best: tuple[Entry, NoMatch] | None = None
    for pattern, entry in index.anchored(node, calls):
        found = match_at(pattern, node, calls, entry)
        if isinstance(found, NoMatch) and (best is None or found.depth > best[1].depth):
            best = entry, found
    return best
