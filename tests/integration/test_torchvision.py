"""ResNet-18, ResNet-50 and MobileNetV2 of torchvision, with batch-norm statistics that matter."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import fusion_core as core
from fusion_core.passes import record_of
from fusion_core.passes.record import Stage

models = pytest.importorskip("torchvision.models")


@torch.no_grad()
def with_statistics(model: nn.Module) -> nn.Module:
    """Random affine parameters, and the running statistics that some data give."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.uniform_(module.bias, -0.5, 0.5)
            module.momentum = None
    model.train()
    for _ in range(2):
        model(torch.randn(8, 3, 64, 64))
    return model.eval()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "rounding", "floor"),
    [("resnet18", True, 25), ("resnet50", False, 20), ("mobilenet_v2", False, 15)],
)
def test_a_network_of_torchvision_is_int8_throughout_and_close_to_float(
    sqnr, name, rounding, floor
):
    model = with_statistics(getattr(models, name)())
    data = [torch.randn(4, 3, 64, 64) for _ in range(4)]
    quantized = core.quantize(model, "fbgemm", calibration=data, adaptive_rounding=rounding)
    ledger = record_of(quantized, Stage.LOWERED, "the test").ledger
    new = torch.randn(8, 3, 64, 64)
    with torch.no_grad():
        reached = sqnr(model(new), quantized(new))

    assert ledger.macs().fraction == 1.0
    assert ledger.operations().fraction == 1.0
    assert reached >= floor
