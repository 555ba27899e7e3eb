"""A model in float, as a reference model and in the backend's kernels, and what each of them gives."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import GraphModule

from fusion_core.configs import QConfigMapping
from fusion_core.ledger import Ledger, Status
from fusion_core.passes import Stage, lower, record_of
from fusion_core.quantize import quantize
from fusion_core.registry import Backend

Inputs = tuple[Tensor, ...]


@dataclass(frozen=True)
class Outcome:
    """What became of one model.

    Attributes:
        model: The float model.
        inputs: What it was calibrated on, and last what it is judged on.
        reference: The reference model.
        lowered: The model in the backend's kernels.
    """

    model: nn.Module
    inputs: Sequence[Inputs]
    reference: GraphModule
    lowered: GraphModule

    @property
    def ledger(self) -> Ledger:
        """The decision on each operation."""
        return record_of(self.lowered, Stage.LOWERED, "the conformance kit").ledger

    @cached_property
    def want(self) -> Any:
        """What the float model gives on the last input."""
        return run(self.model, self.inputs[-1])

    @cached_property
    def from_reference(self) -> Any:
        """What the reference model gives on it."""
        return run(self.reference, self.inputs[-1])

    @cached_property
    def from_kernels(self) -> Any:
        """What the lowered model gives on it."""
        return run(self.lowered, self.inputs[-1])

    @cached_property
    def has_kernels(self) -> bool:
        """Whether any operation runs in a kernel of the backend."""
        return any(entry.status is Status.INT8 for entry in self.ledger)


def quantized(
    model: nn.Module,
    inputs: Sequence[Inputs],
    backend: Backend,
    mapping: QConfigMapping | None = None,
    *,
    silent: bool = True,
) -> Outcome:
    """``model`` quantized without the recipe's refinements, which are no business of a backend.

    Args:
        model: A float model in eval mode.
        inputs: At least two; the last is kept for judging, so that it is new to the observers.
        backend: What to quantize for.
        mapping: Which qconfig goes where; default the backend's own.
        silent: Whether warnings are kept from the user.
    """
    with without_warnings() if silent else nullcontext():
        reference = quantize(
            model,
            backend,
            calibration=inputs[:-1],
            qconfig_mapping=mapping,
            adaptive_rounding=False,
            bias_correction=False,
            reference=True,
            progress=False,
        )
        return Outcome(model, inputs, reference, lower(reference, backend))


def run(model: nn.Module, inputs: Inputs) -> Any:
    """What ``model`` gives, without gradients and without warnings."""
    with torch.no_grad(), without_warnings():
        return model(*inputs)


@contextmanager
def without_warnings() -> Iterator[None]:
    """Silences warnings, most of which torch itself raises; one check of its own looks at them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
