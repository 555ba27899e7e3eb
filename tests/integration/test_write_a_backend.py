"""The two whole backends of docs/write_a_backend.md are as short as it says, and work on their own."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import nn

import fusion_core as core

PAGE = Path(__file__).parents[2] / "docs" / "write_a_backend.md"


def first_block(heading: str) -> str:
    """The first Python block below a heading, which names how many lines it has at the most."""
    section = PAGE.read_text("utf-8").partition(f"\n## {heading}\n")[2]
    return re.search(r"^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)[1]


@pytest.fixture
def backend(monkeypatch):
    """Makes a module of a block and registers it, for one test."""
    undo = []

    def register(heading):
        module = ModuleType("page_backend")
        monkeypatch.setitem(sys.modules, module.__name__, module)
        exec(compile(first_block(heading), str(PAGE), "exec"), vars(module))  # noqa: S102
        undo.append(core.register_backend("of_the_page", module))
        return "of_the_page"

    yield register
    for each in undo:
        each()


SMALL = "The smallest useful backend is 20 lines"
FOR_CNNS = "A backend for CNNs is 100 lines"


@pytest.mark.parametrize("heading", [SMALL, FOR_CNNS])
def test_a_backend_is_as_short_as_its_heading_says(heading) -> None:
    limit = int(re.search(r"\d+", heading)[0])
    assert len(first_block(heading).splitlines()) <= limit


def statuses(model):
    return {entry.status for entry in core.report(model).ledger}


def test_the_smallest_backend_quantizes_layers_with_norm_and_activation(backend) -> None:
    layers = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU6()
    model = nn.Sequential(*layers).eval()
    images = torch.randn(8, 3, 8, 8)
    quantized = core.quantize(model, backend(SMALL), calibration=[images], adaptive_rounding=False)
    assert statuses(quantized) == {core.Status.REFERENCE}
    wanted = model(images)
    assert (quantized(images) - wanted).abs().max() < 0.05 * wanted.abs().max()


class ResidualNet(nn.Module):
    """Strided stem, residual block with a projection, depthwise layer, pooled features, classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 8, 7, stride=2, padding=3, bias=False),
            nn.BatchNorm2d(8),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, stride=2, padding=1),
        )
        self.body = nn.Sequential(
            nn.Conv2d(8, 16, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(16),
            nn.ReLU(inplace=True),
            nn.Conv2d(16, 16, 3, padding=1, bias=False),
            nn.BatchNorm2d(16),
        )
        self.projection = nn.Sequential(
            nn.Conv2d(8, 16, 1, stride=2, bias=False), nn.BatchNorm2d(16)
        )
        self.depthwise = nn.Sequential(
            nn.Conv2d(16, 16, 3, padding=1, groups=16), nn.BatchNorm2d(16), nn.ReLU6()
        )
        self.head = nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        x = torch.relu(self.body(x) + self.projection(x))
        x = torch.cat([x, self.depthwise(x)], dim=1)
        return self.head(torch.flatten(nn.functional.adaptive_avg_pool2d(x, 1), 1))


@pytest.mark.skipif(
    "fbgemm" not in torch.backends.quantized.supported_engines, reason="needs torch with fbgemm"
)
def test_the_backend_for_cnns_leaves_nothing_of_one_in_float(backend) -> None:
    model, images = ResidualNet().eval(), torch.randn(8, 3, 32, 32)
    quantized = core.quantize(
        model, backend(FOR_CNNS), calibration=[images], adaptive_rounding=False
    )
    assert statuses(quantized) == {core.Status.INT8}
    assert core.report(quantized).ledger.macs().fraction == 1.0
    wanted = model(images)
    noise = (quantized(images) - wanted).square().mean()
    assert noise < 0.01 * wanted.square().mean()
