"""Calibration in several processes of torch.distributed: each has data of its own, all get the same statistics."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import distributed, nn

from fusion_core.errors import CalibrationError
from fusion_core.passes.observed import has_seen_data, label_of

_RANGE = frozenset({"min_val", "max_val"})


def is_one_of_several() -> bool:
    """Whether this process is one of a group."""
    return (
        distributed.is_available()
        and distributed.is_initialized()
        and distributed.get_world_size() > 1
    )


def agree(count: int, problem: Exception | None) -> int:
    """How many batches all processes had together; every process must come here.

    Args:
        count: How many this one had.
        problem: What went wrong in it.

    Raises:
        CalibrationError: Something went wrong in another process; what did in this one is left to
            the caller.
    """
    said = None if problem is None else f"{type(problem).__name__}: {problem}"
    reports: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(reports, (count, said))
    if problem is None:
        for rank, (_, text) in enumerate(reports):
            if text is not None:
                raise CalibrationError(f"calibration failed in process {rank}: {text}")
    return sum(each for each, _ in reports)


def merge_statistics(observers: Mapping[str, nn.Module]) -> None:
    """Give every observer the statistics of all processes; every process must come here.

    Ranges come out as if one process had seen all data. Averages and histograms come out as their
    ``merge`` says, in the order of the processes.

    Args:
        observers: By path, the same paths in all processes; updated in place.

    Raises:
        CalibrationError: The processes do not observe the same model, or an observer has no way to
            merge.
    """
    gathered: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(gathered, dict(observers))
    if any(each.keys() != observers.keys() for each in gathered):
        raise CalibrationError(
            "the processes calibrate models with different observers; prepare the same model in each"
        )
    for path, mine in observers.items():
        _take(mine, _merged([each[path] for each in gathered], path))


def _merged(observers: list[Any], path: str) -> nn.Module:
    """One observer with the statistics of all; those that have seen nothing add nothing."""
    first, *others = [each for each in observers if has_seen_data(each)] or observers[:1]
    merged = copy.deepcopy(first)
    for other in others:
        if hasattr(merged, "merge"):
            merged.merge(other)
        elif {name for name, _ in merged.named_buffers()} - {"eps"} == _RANGE:
            merged.min_val = torch.minimum(merged.min_val, other.min_val)
            merged.max_val = torch.maximum(merged.max_val, other.max_val)
        else:
            msg = f"{label_of(merged, path)}: {type(merged).__name__} cannot merge what several processes saw"
            raise CalibrationError(msg)
    return merged  # type: ignore[no-any-return]  # a module, as all that is observed with


def _take(mine: nn.Module, merged: nn.Module) -> None:
    for name, value in merged.named_buffers():
        owner, _, leaf = name.rpartition(".")
        setattr(mine.get_submodule(owner), leaf, value)
