"""The patterns that could have taken a node, and what became of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from torch.fx import Node

from fusion_core.errors import PredicateError
from fusion_core.matcher import CallGraph, Match, NoMatch, PatternIndex, Scan, match_at
from fusion_core.patterns import operator_count, operators_in, render
from fusion_core.report.blame import culprit, is_other_operator, stopped_at

Outcome: TypeAlias = Literal["accepted", "passed over", "refused"]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A pattern that ends in a node's operator, and what became of it there.

    Attributes:
        pattern: Its text.
        plugin: Plugin that contributed it: ``name (distribution version)``.
        priority: Its priority; higher goes first.
        outcome: ``"accepted"``; ``"passed over"``, if it matches and another took the node; or
            ``"refused"``.
        anchor: The node in which it would end.
        reason: Why it was not accepted; empty if it was.
        stopped_at: The operand or argument that stopped it, in words; empty where it was not one.
        depth: How many of its operators were in place.
        operators: How many it has at the most.
        is_other_operator: Whether it stopped because another operator stands there; else the
            operator is the right one, and something about it is not.
        remedy: What to do so that it matches, as far as is known.
    """

    pattern: str
    plugin: str
    priority: int
    outcome: Outcome
    anchor: str
    reason: str = ""
    stopped_at: str = ""
    depth: int = 0
    operators: int = 0
    is_other_operator: bool = False
    remedy: str = ""

    @property
    def nearness(self) -> tuple[int, bool]:
        """How near it came; compares with that of others."""
        return (self.depth, not self.is_other_operator)


@dataclass
class Sweep:
    """A graph that was swept with a set of patterns.

    Attributes:
        purpose: What for: ``"fusing"``, ``"quantizing"`` or ``"lowering"``.
        calls: Call sites of the graph.
        index: The patterns.
        result: What the sweep found.
        verdict: Why a match that the sweep found was refused afterwards; None if it was not.
        taken: The match that each claimed node belongs to.
        stopped: For each node, the candidates further on that it stopped.
    """

    purpose: str
    calls: CallGraph
    index: PatternIndex[Any]
    result: Scan[Any]
    verdict: Callable[[Match[Any]], str | None]
    taken: dict[Node, Match[Any]] = field(default_factory=dict)
    stopped: dict[Node, list[Candidate]] = field(default_factory=dict)
    _candidates: dict[Node, tuple[Candidate, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.taken = {node: match for match in self.result.matches for node in match.nodes}
        for node in self.calls.graph.nodes:
            if node.op.startswith("call_"):
                self._candidates[node] = tuple(sorted(self._tried(node), key=_rank))

    def candidates(self, node: Node) -> tuple[Candidate, ...]:
        """The patterns that end in the operator of ``node``; after those that match, the nearest miss first."""
        return self._candidates.get(node, ())

    def elsewhere(self, node: Node) -> list[str]:
        """Patterns that have the operator of ``node``, but do not end in it."""
        site = self.calls.site(node)
        ends = {id(entry) for _, entry in self.index.anchored(node, self.calls)}
        names = set() if site is None else set(site.operators)
        return [
            render(pattern)
            for pattern, entry in self.index.entries
            if id(entry) not in ends and not names.isdisjoint(operators_in(pattern))
        ]

    def _tried(self, node: Node) -> Iterator[Candidate]:
        for pattern, entry in self.index.anchored(node, self.calls):
            outcome, failure = self._try(node, pattern, entry)
            candidate = Candidate(
                *(render(pattern), str(entry.origin), entry.priority),
                outcome=outcome,
                anchor=node.name,
                reason=failure.reason,
                stopped_at=stopped_at(failure, self.calls),
                depth=failure.depth,
                operators=operator_count(pattern),
                is_other_operator=is_other_operator(failure),
                remedy=failure.remedy,
            )
            if outcome == "refused":
                self._note(node, failure, candidate)
            yield candidate

    def _try(self, node: Node, pattern: Any, entry: Any) -> tuple[Outcome, NoMatch]:
        """What became of a pattern at ``node``, and why; no reason where it was accepted."""
        try:
            found = match_at(pattern, node, self.calls, entry)
        except PredicateError as error:
            return "refused", NoMatch("{}", (error,))
        if isinstance(found, NoMatch):
            return "refused", found
        size = len(found.nodes)
        taker = self.taken.get(node)
        refusal = None if taker is None else self.verdict(taker)
        if taker is not None and taker.anchor is node and taker.entry is entry:
            outcome: Outcome = "accepted" if refusal is None else "refused"
            return outcome, NoMatch("{}", (refusal or "",), size)
        for tried, reason in self.result.refusals.get(node, ()):
            if tried is entry:
                return "refused", reason
        return "passed over", NoMatch("{}", (_preferred(node, taker, refusal),), size)

    def _note(self, node: Node, failure: NoMatch, refused: Candidate) -> None:
        guilty = culprit(failure, self.calls)
        taker = self.taken.get(node)
        # Of a node that has been taken, nobody asks for patterns that are about something else.
        is_idle = taker is not None and refused.is_other_operator and self.verdict(taker) is None
        if guilty is not None and guilty is not node and not is_idle:
            self.stopped.setdefault(guilty, []).append(refused)


def _rank(candidate: Candidate) -> tuple[int, int, int]:
    """What matches goes first; of what does not, the nearest miss. Equals stay in order of preference."""
    if candidate.outcome == "refused":
        depth, is_right = candidate.nearness
        return (2, -depth, -is_right)
    return (int(candidate.outcome == "passed over"), 0, 0)


def _preferred(node: Node, taker: Match[Any] | None, refusal: str | None) -> str:
    """What was taken instead of a pattern that matches at ``node``."""
    if taker is None:
        return "another pattern is preferred"
    name = render(taker.entry.pattern)
    after = "" if refusal is None else ", and was refused then"
    if taker.anchor is node:
        return f"{name} is preferred{after}"
    return f"{name}, which ends in {taker.anchor}, took {node.name} first{after}"
