"""What a lint learns from matching: patterns that others beat on models made from themselves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from torch.fx import Node

from fusion_core.errors import first_few
from fusion_core.examples import NoExampleError, PatternExample, examples_of
from fusion_core.matcher import CallGraph, Match, PatternIndex, match_at, scan
from fusion_core.passes.indices import fusion_index, quantization_index
from fusion_core.patterns import Where, all_parts
from fusion_core.registry import Backend, PatternEntry, PluginOrigin
from fusion_core.report.findings import Finding
from fusion_core.report.soundness import finding


def rival_findings(backend: Backend) -> Iterator[Finding]:
    """Dead, shadowed and unsettled patterns of ``backend``, and those no model could be made for.

    Patterns that fuse are rivals of each other, and so are patterns that quantize.
    """
    for index in (fusion_index(backend), quantization_index(backend)):
        unsettled: set[frozenset[_Key]] = set()
        for _, entry in index.entries:
            try:
                examples = examples_of(entry.pattern)
            except NoExampleError as error:
                problem, remedy = (
                    f"no model could be made to try it on: {error}",
                    "test it yourself",
                )
                yield finding(entry, "note", problem, remedy)
                continue
            tried = _Tried(entry)
            for example in examples:
                tried.on(example, index)
            yield from tried.unsettled(unsettled)
            yield from tried.beaten()


_Key: TypeAlias = tuple[PluginOrigin, int]
"""Which entry: its plugin, and its place there."""


def _key(entry: PatternEntry) -> _Key:
    return entry.origin, entry.index


@dataclass
class _Tried:
    """One pattern on the models made from it.

    Attributes:
        entry: The pattern.
        won: Examples on which it is chosen.
        lost: For each other example, the pattern that is chosen in its place.
        even: Patterns of other plugins that only the order sets apart, each with an example.
    """

    entry: PatternEntry
    won: int = 0
    lost: list[tuple[str, PatternEntry]] = field(default_factory=list)
    even: dict[_Key, tuple[str, PatternEntry]] = field(default_factory=dict)

    def on(self, example: PatternExample, index: PatternIndex[PatternEntry]) -> None:
        """Match the whole index on ``example``, and see who gets the nodes of the pattern."""
        calls = CallGraph.of(example.model)
        alone = PatternIndex([(self.entry.pattern, self.entry)])
        mine = next(iter(scan(calls, alone).matches), None)
        if mine is None:
            return
        nodes = set(mine.nodes)
        winners = [each.entry for each in scan(calls, index).matches if nodes & set(each.nodes)]
        if any(each is self.entry for each in winners):
            self.won += 1
        elif winners:
            self.lost.append((example.text, winners[0]))
        for rival in _even(mine, calls, index):
            self.even.setdefault(_key(rival), (example.text, rival))

    def unsettled(self, known: set[frozenset[_Key]]) -> Iterator[Finding]:
        """Overlaps with other plugins that are not ``known`` yet; they are from then on."""
        for key, (text, rival) in self.even.items():
            pair = frozenset((_key(self.entry), key))
            if pair in known:
                continue
            known.add(pair)
            yield finding(
                self.entry,
                "warning",
                f"{rival} matches the same operations ({text}), and only the order says which is taken",
                "set priority on one of them (higher goes first)",
            )

    def beaten(self) -> Iterator[Finding]:
        """Whether the pattern is ever chosen, and where it is not."""
        lost = [(text, rival) for text, rival in self.lost if _key(rival) not in self.even]
        if not lost:
            return
        rivals = first_few(dict.fromkeys(str(rival) for _, rival in lost))
        if not self.won and not any(_may_refuse(rival) for _, rival in lost):
            message = f"it is never used: {rivals} takes all that it matches"
            remedy = "remove it, or give it a higher priority"
            yield finding(self.entry, "error", message, remedy)
            return
        texts = first_few(dict.fromkeys(text for text, _ in lost))
        message = f"{rivals} is taken in its place for {texts}"
        if all(_may_refuse(rival) for _, rival in lost):
            message += ", wherever the conditions there hold"
        remedy = "if that is not meant, give it a higher priority"
        yield finding(self.entry, "warning", message, remedy)


def _even(
    mine: Match[PatternEntry], calls: CallGraph, index: PatternIndex[PatternEntry]
) -> Iterator[PatternEntry]:
    """Entries of other plugins that claim the same nodes at the same priority."""
    for pattern, rival in index.candidates(mine.anchor, calls):
        if rival.origin != mine.entry.origin:
            match = match_at(pattern, mine.anchor, calls, rival)
            if isinstance(match, Match) and _is_even(mine, match):
                yield rival


def _is_even(mine: Match[PatternEntry], other: Match[PatternEntry]) -> bool:
    """Whether priority and nodes, which authors mean, set two matches apart or not."""
    claimed: tuple[set[Node], set[Node]] = (set(mine.nodes), set(other.nodes))
    return mine.entry.priority == other.entry.priority and claimed[0] == claimed[1]


def _may_refuse(entry: PatternEntry) -> bool:
    """Whether an entry may pass over what its operators match."""
    conditions = any(isinstance(each, Where) for each in all_parts(entry.pattern))
    return conditions or entry.config.constraint is not None
