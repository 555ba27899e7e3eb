"""What a norm or softmax in float reads stays in float; what a product or nothing sensitive reads does not."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  the name everyone knows it by
from torch import nn

import fusion_core as core

WIDTH = 8


class Residual(nn.Module):
    """A linear layer that is gone around, and what reads the sum."""

    def __init__(self, *readers: nn.Module) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.readers = nn.ModuleList(readers)

    def forward(self, x):
        total = x + self.linear(x)
        return [reader(total) for reader in self.readers]


class Scores(nn.Module):
    """Masked products of rows, weighted."""

    def __init__(self, mask: str) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.mask = mask

    def forward(self, x):
        x = self.linear(x)
        scores = torch.matmul(x, x.transpose(-2, -1))
        hidden = torch.ones(x.shape[1], x.shape[1]).triu(1)
        masked = {
            "add": scores + hidden * -1e4,
            "fill": scores.masked_fill(hidden.bool(), float("-inf")),
        }
        return torch.matmul(F.softmax(masked[self.mask], dim=-1), x)


def quantized(model, mapping=None):
    torch.manual_seed(0)
    data = [torch.randn(2, 4, WIDTH) for _ in range(3)]
    return core.quantize(
        model.eval(), "fbgemm", calibration=data, qconfig_mapping=mapping, adaptive_rounding=False
    )


def sums(model):
    return [entry for entry in core.report(model).ledger if entry.operation == "operator.add"]


def test_a_sum_that_a_norm_in_float_reads_stays_in_float_and_says_why():
    (total,) = sums(quantized(Residual(nn.LayerNorm(WIDTH))))

    assert total.status is core.Status.FLOAT
    assert total.reason.startswith("layer_norm reads it in float")


@pytest.mark.parametrize("between", [nn.Identity(), nn.Flatten(), nn.Dropout()])
def test_what_only_moves_values_may_stand_between(between):
    norm = nn.LayerNorm(4 * WIDTH if isinstance(between, nn.Flatten) else WIDTH)

    (total,) = sums(quantized(Residual(nn.Sequential(between, norm))))

    assert total.status is core.Status.FLOAT


def test_another_reader_in_int8_changes_nothing():
    model = quantized(Residual(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH)))

    (total,) = sums(model)
    assert total.status is core.Status.FLOAT
    assert core.report(model).ledger.macs().fraction == 1.0


def test_a_sum_that_only_products_read_is_quantized():
    (total,) = sums(quantized(Residual(nn.Linear(WIDTH, WIDTH), nn.ReLU())))

    assert total.status is core.Status.INT8


def test_a_norm_that_is_quantized_leaves_the_sum_quantized():
    everywhere = core.get_backend("fbgemm").qconfig_mapping.global_qconfig
    mapping = core.QConfigMapping(global_qconfig=everywhere)

    (total,) = sums(quantized(Residual(nn.LayerNorm(WIDTH)), mapping))

    assert total.status is core.Status.INT8


def test_a_rule_that_speaks_of_sums_is_obeyed():
    mapping = core.get_backend("fbgemm").qconfig_mapping
    mapping.set_object_type(core.ops.add, mapping.global_qconfig)

    (total,) = sums(quantized(Residual(nn.LayerNorm(WIDTH)), mapping))

    assert total.status is core.Status.INT8


@pytest.mark.parametrize("mask", ["add", "fill"])
def test_masked_scores_are_not_rounded_with_their_mask(mask):
    model, x = Scores(mask), torch.randn(2, 4, WIDTH)
    rounded = quantized(model)
    have, others = rounded(x), rounded(torch.cat([x[:, :1], torch.randn(2, 3, WIDTH)], dim=1))

    assert (model(x) - have).abs().max() < 0.1 * have.abs().max()
    # The first row sees none of those behind it.
    assert torch.equal(others[:, 0], have[:, 0])


def test_what_is_left_in_float_between_codes_runs_in_no_kernel():
    mapping = core.get_backend("fbgemm").qconfig_mapping
    mapping.set_object_type(core.ops.sigmoid, None)
    layers = nn.Sequential(nn.Conv1d(4, 4, 1), nn.Sigmoid(), nn.Conv1d(4, 4, 1))

    found = {entry.operation: entry for entry in core.report(quantized(layers, mapping)).ledger}

    assert found["Sigmoid"].status is core.Status.FLOAT
    assert found["Sigmoid"].kernel is None
    assert "leaves it in float" in found["Sigmoid"].reason
