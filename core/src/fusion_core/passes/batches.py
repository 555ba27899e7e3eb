"""Calibration data as ``quantize`` is given them: read once, with or without labels."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sized
from typing import Any

import torch

from fusion_core.errors import CalibrationError
from fusion_core.passes.calibrate import without_labels

REFINE_SAMPLES = 32
"""The model is refined on the first batches that have so many samples together."""


class Batches:
    """Calibration data without labels, read once; the first samples are kept.

    Attributes:
        given: Whether there are any data.
        kept: The first samples, for refining.
    """

    def __init__(
        self, calibration: Iterable[Any] | None, *, has_labels: bool, limit: int | None
    ) -> None:
        """Of what the user gave; None stands for no data."""
        self.given = calibration is not None
        items: Iterable[Any] = () if calibration is None else calibration
        size = len(items) if isinstance(items, Sized) else None
        self._size = size if limit is None or size is None else min(size, limit)
        self._items: Iterator[Any] = itertools.islice(items, limit)
        self._has_labels = has_labels
        self.kept: list[Any] = []

    def first(self) -> Any:
        """The first batch, which is still to come.

        Raises:
            CalibrationError: There is none.
        """
        try:
            item = next(self._items)
        except StopIteration:
            msg = "the calibration data are empty; pass an iterable of inputs (a generator can be used only once)"
            raise CalibrationError(msg) from None
        self._items = itertools.chain([item], self._items)
        return self._inputs(item)

    def __len__(self) -> int:
        """How many batches there are.

        Raises:
            TypeError: The data do not say.
        """
        if self._size is None:
            msg = "the calibration data have no length"
            raise TypeError(msg)
        return self._size

    def __iter__(self) -> Iterator[Any]:
        """Every batch, once."""
        samples = 0
        for item in self._items:
            batch = self._inputs(item)
            if samples < REFINE_SAMPLES:
                self.kept.append(batch)  # whole: the first dimension need not be a batch
                samples += _samples(batch)
            yield batch

    def _inputs(self, item: Any) -> Any:
        return without_labels(item) if self._has_labels else item


def _tensors(batch: Any) -> Iterator[torch.Tensor]:
    """Every tensor in a batch that has a first dimension."""
    if isinstance(batch, torch.Tensor):
        yield from (batch,) if batch.dim() else ()
    elif isinstance(batch, (tuple, list, dict)):
        for part in batch.values() if isinstance(batch, dict) else batch:
            yield from _tensors(part)


def _samples(batch: Any) -> int:
    """Size of the batch dimension; 1 where there is none to be seen."""
    return max((len(tensor) for tensor in _tensors(batch)), default=1)
