"""What the tests of whole models share: one way to quantize, and the numbers to judge by."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.fx import GraphModule

import fusion_core as core
from fusion_core.passes import record_of
from fusion_core.passes.record import Stage


@dataclass
class Outcome:
    """A model in float, as a reference model and in kernels, and what each gives on new data."""

    model: nn.Module
    reference: GraphModule
    lowered: GraphModule
    want: Any
    from_reference: Any
    from_kernels: Any

    @property
    def ledger(self) -> core.Ledger:
        return record_of(self.lowered, Stage.LOWERED, "the test").ledger

    @property
    def kernels(self) -> list[str]:
        return [entry.kernel for entry in self.ledger if entry.kernel]

    def status(self, operation: str) -> set[core.Status]:
        found = {entry.status for entry in self.ledger if entry.operation.endswith(operation)}
        assert found, f"{operation} is not among {[entry.operation for entry in self.ledger]}"
        return found

    def left_in_float(self) -> list[str]:
        done = {core.Status.INT8, core.Status.REMOVED}
        return [f"{e.operation}: {e.reason}" for e in self.ledger if e.status not in done]

    @property
    def sqnr(self) -> float:
        return sqnr_of(self.want, self.from_kernels)

    def steps_apart(self) -> float:
        """Largest difference between reference and kernels, in steps of the output it is in."""
        outputs = self.reference.graph.output_node().args[0]
        return max(
            float((one - other).abs().max()) / _step(node, one)
            for node, one, other in zip(
                _leaves(outputs),
                _leaves(self.from_reference),
                _leaves(self.from_kernels),
                strict=True,
            )
        )


def _step(node: torch.fx.Node, values: Tensor) -> float:
    """The scale of a quantized output; for a float one, what float32 sums may differ by."""
    if node.target is core.qops.dequantize_per_tensor:
        return float(node.args[1])
    return 1e-4 * float(values.abs().max().clamp(min=1e-3))


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [leaf for part in value.values() for leaf in _leaves(part)]
    if isinstance(value, (tuple, list)):
        return [leaf for part in value for leaf in _leaves(part)]
    return [value]


def sqnr_of(want: Any, have: Any) -> float:
    pairs = list(zip(_leaves(want), _leaves(have), strict=True))
    signal = sum(float(one.square().sum()) for one, _ in pairs)
    noise = sum(float((one - other).square().sum()) for one, other in pairs)
    return float(10 * torch.log10(torch.tensor(signal / max(noise, 1e-30))))


def run(model: nn.Module, item: Any) -> Any:
    with torch.no_grad():
        if isinstance(item, dict):
            return model(**item)
        return model(*item) if isinstance(item, (tuple, list)) else model(item)


@pytest.fixture
def sqnr() -> Callable[[Any, Any], float]:
    """Signal over quantization noise in decibel."""
    return sqnr_of


@pytest.fixture
def ledger() -> Callable[[GraphModule], core.Ledger]:
    """What became of each operation of a lowered model."""
    return lambda model: record_of(model, Stage.LOWERED, "the test").ledger


@pytest.fixture
def quantized() -> Callable[..., Outcome]:
    """Quantizes a model for fbgemm on some items, and runs all its forms on the last of them."""

    def quantized(model: nn.Module, data: list[Any], **options: Any) -> Outcome:
        model = model.eval()
        reference = core.quantize(model, "fbgemm", calibration=data, reference=True, **options)
        lowered = core.lower(reference)
        want, one, other = (run(each, data[-1]) for each in (model, reference, lowered))
        return Outcome(model, reference, lowered, want, one, other)

    return quantized


@pytest.fixture
def images() -> Callable[..., list[Tensor]]:
    """Batches of random images."""

    def images(*shape: int, count: int = 5) -> list[Tensor]:
        return [torch.randn(*(shape or (2, 3, 10, 10))) for _ in range(count)]

    return images
