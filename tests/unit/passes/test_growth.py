"""Work grows with the number of nodes and not faster, whatever the graph looks like."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING

import pytest
import torch
from torch import fx, nn

import fusion_core as core

if TYPE_CHECKING:
    from collections.abc import Callable

SMALL, LARGE = 8, 32
# What does not depend on size makes the exponent smaller, never larger.
ALLOWED = 1.1


class Chain(nn.Module):
    """Convolution, norm and ReLU, one after another."""

    def __init__(self, blocks: int) -> None:
        super().__init__()
        layers = [(nn.Conv2d(2, 2, 1), nn.BatchNorm2d(2), nn.ReLU()) for _ in range(blocks)]
        self.layers = nn.Sequential(*(layer for block in layers for layer in block))

    def forward(self, x):
        return self.layers(x)


class Residual(nn.Module):
    """Sums of what went in and what came out."""

    def __init__(self, blocks: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv2d(2, 2, 1) for _ in range(blocks))

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(x + layer(x))
        return x


class Wide(nn.Module):
    """One concatenation of everything, and one value that everything reads."""

    def __init__(self, blocks: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv2d(2, 2, 1) for _ in range(blocks))

    def forward(self, x):
        return torch.cat([layer(x) for layer in self.layers], dim=1)


class Views(nn.Module):
    """One chain of operations that share the range of their input."""

    def __init__(self, blocks: int) -> None:
        super().__init__()
        self.blocks = blocks
        self.first, self.last = nn.Conv2d(2, 2, 1), nn.Conv2d(2, 2, 1)

    def forward(self, x):
        x = self.first(x)
        for _ in range(self.blocks):
            x = torch.cat([x.transpose(2, 3), x.flatten(2).reshape(x.shape)], dim=1)[:, :2]
        return self.last(x)


MODELS = (Chain, Residual, Wide, Views)
PASSES = ("trace", "fuse", "prepare", "calibrate", "convert", "lower")


def calls_made(function: Callable[[], object]) -> tuple[int, object]:
    """How many functions, Python's and C's, a call of this one enters; and what it gives."""
    count = 0

    def entered(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    previous = sys.getprofile()
    sys.setprofile(entered)
    try:
        result = function()
    finally:
        sys.setprofile(previous)
    return count, result


def calls_by_pass(model: nn.Module) -> dict[str, int]:
    x, counts = torch.randn(1, 2, 4, 4), {}
    steps = {
        "trace": lambda: core.trace(model.eval(), x, backend="fbgemm"),
        "fuse": lambda: core.fuse(latest, "fbgemm"),
        "prepare": lambda: core.prepare(latest, "fbgemm"),
        "calibrate": lambda: core.calibrate(latest, [x]),
        "convert": lambda: core.convert(latest),
        "lower": lambda: core.lower(latest, "fbgemm"),
    }
    for name, step in steps.items():
        counts[name], latest = calls_made(step)
    return counts


@pytest.fixture(scope="module")
def counts() -> dict[tuple[type, int], dict[str, int]]:
    x = torch.randn(1, 2, 4, 4)
    # What is imported and cached on first use is not counted below.
    core.quantize(Chain(2).eval(), "fbgemm", example_inputs=(x,), calibration=[x])
    return {(kind, size): calls_by_pass(kind(size)) for kind in MODELS for size in (SMALL, LARGE)}


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("name", PASSES)
def test_calls_grow_with_the_number_of_nodes_and_not_faster(counts, kind, name):
    small, large = counts[kind, SMALL][name], counts[kind, LARGE][name]
    assert math.log(large / small, LARGE / SMALL) <= ALLOWED, (small, large)


def test_a_graph_is_compiled_once_by_each_pass(monkeypatch):
    x, model = torch.randn(1, 2, 4, 4), Residual(5).eval()
    compiled, recompile = [], fx.GraphModule.recompile

    def counted(self: fx.GraphModule):
        compiled.append(self)
        return recompile(self)

    monkeypatch.setattr(fx.GraphModule, "recompile", counted)
    fused = core.fuse(core.trace(model, x, backend="fbgemm"), "fbgemm")
    compiled.clear()
    prepared = core.prepare(fused, "fbgemm")
    by_prepare = len(compiled)
    compiled.clear()
    core.convert(core.calibrate(prepared, [x]))
    assert (by_prepare, len(compiled)) == (1, 1)


def observers_not_placed(blocks: int) -> int:
    """How many activation observers prepare builds for a look and throws away."""
    built = []

    class Counted(core.nn.MinMaxObserver):
        def __init__(self, **options):
            built.append(self)
            super().__init__(**options)

    x, model = torch.randn(1, 2, 4, 4), Views(blocks).eval()
    fused = core.fuse(core.trace(model, x, backend="fbgemm"), "fbgemm")
    weight = core.ObserverSpec(
        core.nn.MinMaxObserver, dtype=torch.qint8, quant_min=-64, quant_max=63
    )
    qconfig = core.QConfig(activation=core.ObserverSpec(Counted, dtype=torch.quint8), weight=weight)
    prepared = core.prepare(fused, "fbgemm", core.QConfigMapping(global_qconfig=qconfig))
    placed = {id(module) for module in prepared.modules() if isinstance(module, Counted)}
    assert placed <= {id(observer) for observer in built}
    return len(built) - len(placed)


def test_an_observer_is_built_once_for_each_group_and_once_to_read_its_spec():
    assert observers_not_placed(2) == observers_not_placed(8) == 1
