"""What a lint learns from matching: patterns that others beat on models made from themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from torch.fx import GraphModule, Node

from fusion_core.configs import Skip
from fusion_core.errors import FuseError, NoExampleError, PredicateError, first_few
from fusion_core.examples import PatternExample, examples_for
from fusion_core.matcher import CallGraph, Match, NoMatch, PatternIndex, match_at, scan
from fusion_core.passes.fuse import find_fusions
from fusion_core.passes.indices import fusion_index, quantization_index
from fusion_core.passes.roots import call_plugin
from fusion_core.patterns import Where, all_parts
from fusion_core.registry import Backend, PatternEntry, PluginOrigin
from fusion_core.report.findings import Finding
from fusion_core.report.soundness import finding


def rival_findings(backend: Backend) -> Iterator[Finding]:
    """Dead, shadowed and unsettled patterns of ``backend``, and those no model could be made for.

    Patterns that fuse are rivals of each other, and so are patterns that quantize.
    """
    for stage in (
        _Stage(backend, fusion_index, _fused),
        _Stage(backend, quantization_index, _observed),
    ):
        unsettled: set[frozenset[_Key]] = set()
        for _, entry in stage.index.entries:
            tried = _Tried(entry, stage.alone(entry))
            try:
                for example in examples_for(backend, entry):
                    tried.on(example, stage)
            except NoExampleError as error:
                remedy = "test it on a model of your own"
                yield finding(entry, "note", f"no model was made to try it on: {error}", remedy)
                continue
            except (FuseError, PredicateError) as error:
                yield finding(entry, "error", f"on a model made from it, {error}", "correct that")
                continue
            yield from tried.unsettled(unsettled)
            yield from tried.beaten()


@dataclass(frozen=True)
class _Stage:
    """Patterns that are rivals of each other.

    Attributes:
        backend: Whose they are.
        index_of: Gives those of a backend.
        matches: Which patterns of a backend are chosen in a model, conditions and all.
    """

    backend: Backend
    index_of: Callable[[Backend], PatternIndex[PatternEntry]]
    matches: Callable[[GraphModule, Backend], list[Match[PatternEntry]]]

    @property
    def index(self) -> PatternIndex[PatternEntry]:
        """The patterns."""
        return self.index_of(self.backend)

    def alone(self, entry: PatternEntry) -> Backend:
        """The backend without the rivals of ``entry``."""
        return replace(self.backend, entries=(entry,))


def _fused(model: GraphModule, backend: Backend) -> list[Match[PatternEntry]]:
    """What is fused in a model."""
    return find_fusions(model, backend)[0].matches


def _observed(model: GraphModule, backend: Backend) -> list[Match[PatternEntry]]:
    """What is quantized as it stands in a model."""
    return scan(CallGraph.of(model), quantization_index(backend), _refusal).matches


def _refusal(match: Match[PatternEntry]) -> NoMatch | None:
    constraint = match.entry.config.constraint
    if constraint is None:
        return None
    verdict = call_plugin(match, "constraint", constraint, match.node_pattern)
    return NoMatch("{}", (verdict.reason,)) if isinstance(verdict, Skip) else None


_Key: TypeAlias = tuple[PluginOrigin, int]
"""Which entry: its plugin, and its place there."""


def _key(entry: PatternEntry) -> _Key:
    return entry.origin, entry.index


@dataclass
class _Tried:
    """One pattern on the models made from it.

    Attributes:
        entry: The pattern.
        alone: The backend without the pattern's rivals.
        won: Examples on which it is chosen.
        lost: For each other example, the pattern that is chosen in its place.
        even: Patterns of other plugins that only the order sets apart, each with an example.
    """

    entry: PatternEntry
    alone: Backend
    won: int = 0
    lost: list[tuple[str, PatternEntry]] = field(default_factory=list)
    even: dict[_Key, tuple[str, PatternEntry]] = field(default_factory=dict)

    def on(self, example: PatternExample, stage: _Stage) -> None:
        """Match the whole stage on ``example``, and see who gets the end of the pattern."""
        mine = next(iter(stage.matches(example.model, self.alone)), None)
        if mine is None:  # its own condition or fuser method refuses the example
            return
        chosen = stage.matches(example.model, stage.backend)
        winners = [each.entry for each in chosen if mine.anchor in each.nodes]
        if any(each is self.entry for each in winners):
            self.won += 1
        elif winners:
            self.lost.append((example.text, winners[0]))
        for rival in _even(mine, CallGraph.of(example.model), stage.index):
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
            message = f"it is never used: {rivals} takes all of the {len(lost)} models made from it"
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
