"""A model pickled between two passes goes on as if it had not been."""

from __future__ import annotations

import pickle

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  the name everyone knows it by
from torch import nn

import fusion_core as core


class Net(nn.Module):
    """Spells its operations as modules, functions, methods and operators, and reads a parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.offset = nn.Parameter(torch.randn(8, 1, 1))
        self.head = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.conv(x)).relu()
        x = F.max_pool2d(x + self.offset, 2)
        x = F.adaptive_avg_pool2d(x.sigmoid() + x, 1)
        return self.head(x.view(x.size(0), -1))


STAGES = ("traced", "fused", "prepared", "calibrated", "converted")


def passes_with_a_pickle_after(stage: str, model: nn.Module, images: torch.Tensor) -> nn.Module:
    """Every pass in turn, with the model taken out of a pickle after ``stage``."""

    def after(name: str, result: torch.fx.GraphModule) -> torch.fx.GraphModule:
        return pickle.loads(pickle.dumps(result)) if name == stage else result  # noqa: S301  ours

    traced = after("traced", core.trace(model, images, backend="fbgemm"))
    fused = after("fused", core.fuse(traced, "fbgemm"))
    prepared = after("prepared", core.prepare(fused))
    calibrated = after("calibrated", core.calibrate(prepared, [images]))
    return core.lower(after("converted", core.convert(calibrated)))


@pytest.fixture(scope="module")
def model_and_images() -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    return Net().eval(), torch.randn(4, 3, 8, 8)


@pytest.mark.parametrize("stage", STAGES)
def test_a_pickle_between_passes_changes_neither_result_nor_ledger(stage, model_and_images) -> None:
    model, images = model_and_images
    straight = passes_with_a_pickle_after("nowhere", model, images)
    pickled = passes_with_a_pickle_after(stage, model, images)
    assert torch.equal(pickled(images), straight(images))
    assert core.report(pickled).to_dict() == core.report(straight).to_dict()
    assert core.report(straight).ledger.macs().fraction == 1.0


def test_a_quantized_model_keeps_its_report_through_pickling(model_and_images) -> None:
    model, images = model_and_images
    quantized = core.quantize(model, "fbgemm", calibration=[images])
    again = pickle.loads(pickle.dumps(quantized))  # noqa: S301  ours
    assert torch.equal(again(images), quantized(images))
    assert core.report(again).to_dict() == core.report(quantized).to_dict()
