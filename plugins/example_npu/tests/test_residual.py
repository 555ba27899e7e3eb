from __future__ import annotations

import operator

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

import fusion_core as core


def statuses(model):
    return {entry.operation: entry.status for entry in core.report(model).ledger}


@pytest.mark.parametrize("branch_first", [True, False])
@pytest.mark.parametrize("relu", [nn.ReLU(), F.relu], ids=["ReLU", "F.relu"])
@pytest.mark.parametrize("add", [operator.add, torch.add, operator.iadd])
def test_a_block_in_any_order_and_spelling_is_one_operation_in_int8(
    block, images, quantized, add, relu, branch_first
):
    model = quantized(images, block(add, relu, branch_first=branch_first))
    entries = core.report(model).ledger
    kernels = [entry.kernel for entry in entries]

    assert {entry.status for entry in entries} == {core.Status.INT8}
    assert kernels == ["layer", "layer", *["block"] * 4, "copy", "copy", "layer"]
    assert [entry.operation for entry in entries if entry.kernel == "block"][:2] == [
        "Conv2d",
        "BatchNorm2d",
    ]


def test_the_other_operand_may_be_a_branch_too(images, quantized):
    class Downsampling(nn.Module):
        def __init__(self):
            super().__init__()
            self.long = nn.Sequential(nn.Conv2d(3, 4, 3, 2, 1), nn.BatchNorm2d(4))
            self.short = nn.Sequential(nn.Conv2d(3, 4, 1, 2), nn.BatchNorm2d(4))

        def forward(self, x):
            return F.relu(self.long(x) + self.short(x))

    kernels = [entry.kernel for entry in core.report(quantized(images, Downsampling())).ledger]

    assert sorted(kernels) == ["block"] * 4 + ["layer"] * 2


def test_a_sum_with_a_factor_is_no_block(block, images, quantized):
    model = quantized(images, block(lambda x, y: torch.add(x, y, alpha=2)))

    assert statuses(model)["torch.add"] is core.Status.FLOAT


def test_a_batch_norm_that_cannot_be_folded_says_so(block, images, quantized):
    model = block()
    model.bn = nn.BatchNorm2d(8, track_running_stats=False)
    found = core.report(quantized(images, model)).ledger
    reasons = [entry.near_miss or "" for entry in found]

    assert any("keeps no running statistics" in reason for reason in reasons)


@pytest.mark.slow
def test_resnet18_runs_on_the_chip_but_for_its_stem_and_its_mean(quantized):
    torchvision = pytest.importorskip("torchvision")
    model = torchvision.models.resnet18().eval()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_var.uniform_(0.5, 2)
    data = [torch.randn(4, 3, 48, 48) for _ in range(2)]
    lowered = quantized(data, model)
    entries = core.report(lowered).ledger
    on_chip = [entry for entry in entries if entry.status is core.Status.INT8]
    noise = (model(data[0]) - lowered(data[0])).norm() / model(data[0]).norm()

    assert {entry.path.partition(".")[0] for entry in entries if entry not in on_chip} <= {
        *("conv1", "bn1", "relu", "maxpool", "avgpool", ""),
    }
    assert sum(entry.operation == "operator.add" for entry in on_chip) == 8
    assert sum(entry.operation in {"Conv2d", "Linear"} for entry in on_chip) == 20
    assert noise < 0.1
