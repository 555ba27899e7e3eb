"""Models that were traced without running them: what is not known, and who asks for it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from fusion_core.configs import Skip
from fusion_core.patterns import Pattern, Where, with_parts
from fusion_core.registry import Backend, PatternEntry

UNKNOWN_SHAPE = "it asks for shapes, which only example_inputs would tell"


class UnknownTensor:
    """Stands where shape and dtype of a value would be; every value passes for a float32 tensor.

    Attributes:
        dtype: What is assumed.
        was_asked: Whether somebody wanted to know more than that.
    """

    dtype = torch.float32

    def __init__(self) -> None:
        """Nobody has asked yet."""
        self.was_asked = False

    def __getattr__(self, name: str) -> Any:
        """Nothing else is known. Whoever makes do without it is found out by ``was_asked``."""
        if not name.startswith("__"):
            self.was_asked = True
        raise AttributeError(UNKNOWN_SHAPE)

    def guarded(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """``function``, but that it answers with a ``Skip`` when it asks for what is not known."""

        @functools.wraps(function, updated=())
        def guarded(*args: Any) -> Any:
            self.was_asked = False
            try:
                answer = function(*args)
            except Exception:
                if not self.was_asked:
                    raise
                answer = None
            return Skip(UNKNOWN_SHAPE) if self.was_asked else answer

        return guarded


def guarded_backend(backend: Backend, unknown: UnknownTensor) -> Backend:
    """``backend`` with conditions and constraints that say so where they need to know a shape."""
    return replace(backend, entries=tuple(_entry(each, unknown) for each in backend.entries))


def _entry(entry: PatternEntry, unknown: UnknownTensor) -> PatternEntry:
    config = entry.config
    if config.constraint is not None:
        config = config.model_copy(update={"constraint": unknown.guarded(config.constraint)})
    return replace(entry, config=config, pattern=_pattern(entry.pattern, unknown))


def _pattern(pattern: Pattern, unknown: UnknownTensor) -> Pattern:
    if isinstance(pattern, Where):
        pattern = replace(pattern, predicate=unknown.guarded(pattern.predicate))
    return with_parts(pattern, lambda part: _pattern(part, unknown))
