"""The examples of a pattern as graphs, and a backend that has no other pattern."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest
from torch.fx import GraphModule

from fusion_core.configs import ObservationType, Skip
from fusion_core.examples import (
    NearMiss,
    NoExampleError,
    PatternExample,
    examples_for,
    near_misses_of,
)
from fusion_core.matcher import CallGraph, Match, PatternIndex, scan
from fusion_core.passes import fuse, trace
from fusion_core.registry import Backend, PatternEntry
from fusion_core.testing.subject import Subject

MOST_EXAMPLES = 8
"""Alternatives and spellings of one pattern that are tried; all of them would take minutes."""

MOST_NEAR_MISSES = 4
"""Changes to one pattern's examples that are tried."""


@dataclass(frozen=True)
class Specimen:
    """A small model made from a pattern, traced.

    Attributes:
        example: The model, its inputs, and which alternative of the pattern it is.
        graph: Its graph.
        calls: Call sites of the graph.
        backend: What it was traced for.
    """

    example: PatternExample | NearMiss
    graph: GraphModule
    calls: CallGraph
    backend: Backend

    def match(self, entry: PatternEntry) -> Match[PatternEntry] | None:
        """The first match of ``entry`` alone."""
        index = PatternIndex([(entry.pattern, entry)])
        return next(iter(scan(self.calls, index).matches), None)

    @property
    def has_all_types(self) -> bool:
        """Whether tracing left each module of the example a module of its type."""
        kinds = (
            {type(each) for each in model.children()} for model in (self.example.model, self.graph)
        )
        made, traced = kinds
        return made <= traced

    @property
    def does_nothing(self) -> bool:
        """Whether tracing removed all of it, as it does with dropout in eval mode."""
        return all(node.op in {"placeholder", "output"} for node in self.graph.graph.nodes)

    def untraced(self) -> Specimen:
        """The model as it was made."""
        model = self.example.model
        return replace(self, graph=model, calls=CallGraph.of(model))

    def as_fused(self) -> GraphModule:
        """The graph as fuse leaves it where it finds nothing to fuse."""
        nothing = replace(self.backend, entries=(), lowering=())
        return fuse(self.graph, nothing)


def specimens_of(subject: Subject, entry: PatternEntry) -> tuple[Specimen, ...]:
    """The examples of an entry; skips the running check where none can be made."""
    try:
        found: tuple[Specimen, ...] = subject.kept(
            ("examples", id(entry)), lambda: tuple(_examples(subject, entry))
        )
    except NoExampleError as error:
        pytest.skip(f"no model could be made to try it on: {error}")
    return found


def near_misses(subject: Subject, entry: PatternEntry) -> list[Specimen]:
    """Models that differ from the pattern in one thing; skips the check where none can be made.

    Tracing opens modules of derived types and puts together what it finds there. Their near misses
    are as they were made, not traced.
    """
    try:
        missed = near_misses_of(entry.pattern)
    except NoExampleError as error:
        pytest.skip(f"no model could be made to try it on: {error}")
    specimens = [_traced(each, subject.backend) for each in missed[:MOST_NEAR_MISSES]]
    return [each if each.has_all_types else each.untraced() for each in specimens]


def accepted_by_constraint(specimen: Specimen, entry: PatternEntry) -> str | None:
    """Why the config's own constraint refuses a specimen; None if it accepts it, or there is none."""
    constraint, match = entry.config.constraint, specimen.match(entry)
    if constraint is None or match is None:
        return None
    verdict = constraint(match.node_pattern)
    return verdict.reason if isinstance(verdict, Skip) else None


def alone(backend: Backend, entry: PatternEntry) -> Backend:
    """``backend`` with one pattern and no rule, for what that one does when no other is in its way.

    Its output has an observer of its own, since nothing stands before it that it could share one
    with.
    """
    config = entry.config
    if config.observation_type is ObservationType.OUTPUT_SHARE_OBSERVER_WITH_INPUT:
        separate = ObservationType.OUTPUT_USE_DIFFERENT_OBSERVER_AS_INPUT
        config = config.model_copy(update={"observation_type": separate})
    return replace(backend, entries=(replace(entry, config=config),), lowering=())


def _examples(subject: Subject, entry: PatternEntry) -> Iterator[Specimen]:
    for example in examples_for(subject.backend, entry, limit=MOST_EXAMPLES):
        specimen = _traced(example, subject.backend)
        if not specimen.does_nothing:
            yield specimen


def _traced(example: PatternExample | NearMiss, backend: Backend) -> Specimen:
    graph = trace(example.model, example.inputs, backend=backend)
    return Specimen(example, graph, CallGraph.of(graph), backend)
