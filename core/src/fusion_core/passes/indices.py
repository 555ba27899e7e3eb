"""The patterns of a backend, compiled once for each pass that matches."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import TypeVar

from fusion_core.configs import ObservationType
from fusion_core.matcher import PatternIndex
from fusion_core.registry import Backend, LoweringEntry, PatternEntry

Entry = TypeVar("Entry", PatternEntry, LoweringEntry)


@lru_cache(maxsize=32)
def fusion_index(backend: Backend) -> PatternIndex[PatternEntry]:
    """Patterns that have a fuser method."""
    fusing = (each for each in backend.entries if each.config.fuser_method is not None)
    return _index(fusing)


@lru_cache(maxsize=32)
def quantization_index(backend: Backend) -> PatternIndex[PatternEntry]:
    """Patterns that are observed as they stand, after fusing."""
    return _index(each for each in backend.entries if _is_observed(each))


@lru_cache(maxsize=32)
def lowering_index(backend: Backend) -> PatternIndex[LoweringEntry]:
    """Patterns of the lowering rules."""
    return _index(backend.lowering)


def _index(entries: Iterable[Entry]) -> PatternIndex[Entry]:
    return PatternIndex(((each.pattern, each) for each in entries), lambda each: each.priority)


def _is_observed(entry: PatternEntry) -> bool:
    unobserved = entry.config.observation_type is ObservationType.INPUT_OUTPUT_NOT_OBSERVED
    return entry.config.fuser_method is None and (bool(entry.config.dtype_configs) or unobserved)
