"""``quantize``: all passes in one call."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sized
from typing import Any

import torch
from torch import nn
from torch.fx import GraphModule

from fusion_core.configs import QConfigMapping
from fusion_core.errors import CalibrationError
from fusion_core.passes import (
    ExampleInputs,
    calibrate,
    convert,
    fuse,
    lower,
    prepare,
    refine,
    trace,
)
from fusion_core.passes.calibrate import without_labels
from fusion_core.registry import Backend, get_backend

REFINE_SAMPLES = 32
"""The model is refined on the first batches that have so many samples together."""


def quantize(  # noqa: PLR0913  one keyword for each choice a user has
    model: nn.Module,
    backend: str | Backend,
    *,
    calibration: Iterable[Any] | None = None,
    example_inputs: ExampleInputs | None = None,
    has_labels: bool = False,
    limit: int | None = None,
    qconfig_mapping: QConfigMapping | None = None,
    adaptive_rounding: bool = True,
    bias_correction: bool = True,
    verify: bool | ExampleInputs = False,
    reference: bool = False,
    progress: bool | None = None,
) -> GraphModule:
    """Quantize a model for a backend: post-training, static, int8.

    Runs trace, fuse, prepare, calibrate, convert, refine and lower, each of which is public.

    Args:
        model: A module in eval mode with float32 parameters. It is not changed.
        backend: Name of an installed or registered backend, or the backend.
        calibration: Inputs like those the model will see, one batch each: a tensor, a tuple or list
            of positional arguments, or a dict of keyword arguments. Tens of samples are enough.
        example_inputs: One input for tracing; default the first of ``calibration``.
        has_labels: Each item of ``calibration`` is a pair of inputs and labels; the labels are
            ignored.
        limit: Use at most so many batches of ``calibration``.
        qconfig_mapping: Which operation gets which observers; default the backend's own.
        adaptive_rounding: Choose weight codes by the error of the layers' outputs; takes most of
            the time.
        bias_correction: Shift biases so that the layers' outputs keep their means.
        verify: Refuse fused modules that give other numbers than what they replace; see
            :func:`fusion_core.fuse`.
        reference: Return the reference model, which runs anywhere, without the backend's kernels.
        progress: Show a progress bar on standard error; default where that is a terminal.

    Returns:
        The quantized model. :func:`fusion_core.report` tells what was quantized, what not, and why.

    Raises:
        UnknownBackendError: No backend has that name.
        PluginError: The backend's plugin is broken.
        CalibrationError: There are no calibration data, or they are unusable; says where.
        TraceError: The model cannot be traced; says where.
        TrainingModeError: The model is in training mode.
        UnsupportedModelError: The model as a whole cannot be quantized.
        UnknownModuleNameError: ``qconfig_mapping`` names a module that does not exist.
    """
    chosen = get_backend(backend)
    data = _Data(calibration, has_labels=has_labels, limit=limit)
    example = data.first() if example_inputs is None else example_inputs
    traced = trace(model, example, backend=chosen)
    prepared = prepare(fuse(traced, chosen, verify=verify), chosen, qconfig_mapping)
    calibrate(prepared, data, progress=progress)
    converted = convert(prepared)
    if adaptive_rounding or bias_correction:
        switches = {"adaptive_rounding": adaptive_rounding, "bias_correction": bias_correction}
        converted = refine(converted, prepared, data.kept, progress=progress, **switches)
    return converted if reference else lower(converted, chosen)


class _Data:
    """Calibration data without labels, read once; the first samples are kept.

    Attributes:
        kept: The first samples, for refining.
    """

    def __init__(
        self, calibration: Iterable[Any] | None, *, has_labels: bool, limit: int | None
    ) -> None:
        if calibration is None:
            msg = (
                "static quantization needs calibration data: pass calibration=, an iterable of inputs like those "
                "the model will see; with labels beside them, has_labels=True"
            )
            raise CalibrationError(msg)
        size = len(calibration) if isinstance(calibration, Sized) else None
        self._size = size if limit is None or size is None else min(size, limit)
        self._items: Iterator[Any] = itertools.islice(calibration, limit)
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
