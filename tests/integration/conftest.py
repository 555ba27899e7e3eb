"""What the tests of whole models share: one way to quantize, and the numbers to judge by."""

from __future__ import annotations

import copy
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


@dataclass
class Stages(Outcome):
    """The same, and the prepared model; each of the three as a line of words."""

    prepared: GraphModule

    @property
    def observed(self) -> str:
        """What the prepared model does, in order: an observer is a dot."""
        return self._words(self.prepared)

    @property
    def converted(self) -> str:
        """What the reference model does, in order: ``q`` and ``dq``, and modules and functions by name."""
        return self._words(self.reference)

    @property
    def packed(self) -> str:
        """What the lowered model does, in order."""
        return self._words(self.lowered)

    def observers(self) -> list[nn.Module]:
        """The observer of each value that has one, in order."""
        found = (_called(self.prepared, node) for node in self.prepared.graph.nodes)
        return [each for each in found if isinstance(each, nn.Module) and hasattr(each, "label")]

    def kept(self) -> float:
        """Signal over noise of the kernels, in decibel, of the worst output."""
        pairs = zip(_leaves(self.want), _leaves(self.from_kernels), strict=True)
        return min(sqnr_of(*pair) for pair in pairs)

    def _words(self, model: GraphModule) -> str:
        ends = {"placeholder", "output", "get_attr"}
        calls = [node for node in model.graph.nodes if node.op not in ends]
        return " ".join(_word(_called(model, node)) for node in calls)


WORDS = {
    "quantize_per_tensor": "q",
    "dequantize_per_tensor": "dq",
    "quantize_per_channel": "q",
    "dequantize_per_channel": "dq",
    "quantize_per_tensor_dynamic": "qd",
    "dequantize_dynamic": "dq",
    "Quantize": "q",
    "Dequantize": "dq",
}


def _called(model: GraphModule, node: torch.fx.Node) -> Any:
    return model.get_submodule(node.target) if node.op == "call_module" else node.target


def _word(called: Any) -> str:
    if hasattr(called, "label"):
        return "."
    if isinstance(called, str):
        return called
    name = type(called).__name__ if isinstance(called, nn.Module) else called.__name__
    return WORDS.get(name, name)


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


@pytest.fixture
def stages() -> Callable[..., Stages]:
    """Takes a model through every pass, and runs it before and after; the last item is what it is run on."""

    def stages(
        model: nn.Module,
        data: list[Any],
        mode: str | None = None,
        mapping: Any = None,
        *,
        backend: Any = "fbgemm",
        **options: Any,
    ) -> Stages:
        qat = mode == "qat"
        traced = core.trace(model.train(qat), data[0], backend=backend, qat=qat, **options)
        fused = core.fuse(traced, backend, qat=qat)
        prepared = core.prepare(fused, backend, mapping, mode=mode, qat=qat)
        for item in data:
            run(prepared, item)
        reference = core.convert(prepared.eval())
        lowered = core.lower(reference)
        # What was trained is what counts, with the statistics that training gave the norms.
        exact = core.disable_fake_quantize(copy.deepcopy(prepared)) if qat else model
        want, one, other = (run(each, data[-1]) for each in (exact, reference, lowered))
        return Stages(model, reference, lowered, want, one, other, prepared)

    return stages
