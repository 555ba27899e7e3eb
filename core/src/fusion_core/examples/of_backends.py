"""Examples of a backend's patterns: of its own fused modules too, which only its fuser methods can make."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from fusion_core.errors import FusionError, NoExampleError
from fusion_core.examples.of_patterns import PatternExample, count_matches, examples_of
from fusion_core.passes import fuse, trace
from fusion_core.registry import Backend, PatternEntry

_TRIED = 2
"""Examples of each fusing pattern that are fused to see what comes out."""


def examples_for(
    backend: Backend, entry: PatternEntry, *, limit: int = 64
) -> tuple[PatternExample, ...]:
    """What :func:`examples_of` gives for the pattern of ``entry``, else models that ``backend`` fused.

    Args:
        backend: Whose entry it is.
        entry: The pattern.
        limit: At most so many.

    Raises:
        NoExampleError: None can be made, and no fuser method gives what the pattern matches.
    """
    try:
        return examples_of(entry.pattern, limit=limit)
    except NoExampleError:
        found = tuple(_fused(backend, entry))[:limit]
        if not found:
            raise
        return found


def _fused(backend: Backend, entry: PatternEntry) -> Iterator[PatternExample]:
    for fusing in backend.entries:
        if fusing.config.fuser_method is None:
            continue
        alone = replace(backend, entries=(fusing,))
        try:
            examples = examples_of(fusing.pattern, limit=_TRIED)
            models = [
                fuse(trace(each.model, each.inputs, backend=alone), alone) for each in examples
            ]
        except FusionError:  # what is wrong with that one is not what this one is about
            continue
        for example, model in zip(examples, models, strict=True):
            if count_matches(entry.pattern, model) == 1:
                text = f"{fusing.label}, fused"
                yield PatternExample(model, example.inputs, text, entry.pattern)
                break
