"""What a traced graph knows of its values."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import fusion_core as core


@pytest.mark.parametrize(
    ("layer", "shape", "macs"),
    [
        (nn.Conv2d(3, 8, 3, padding=1), (2, 3, 5, 5), 2 * 25 * 8 * 3 * 9),
        (nn.Conv2d(8, 8, 3, padding=1, groups=8), (1, 8, 5, 5), 25 * 8 * 9),
        (nn.ConvTranspose2d(4, 6, 2, stride=2), (1, 4, 3, 3), 9 * 4 * 6 * 4),
        (nn.Linear(12, 7), (4, 12), 4 * 12 * 7),
        (nn.LSTM(8, 16), (5, 2, 8), 5 * 2 * 4 * 16 * (8 + 16)),
        (nn.ReLU(), (4, 4), 0),
    ],
    ids=["conv", "depthwise", "transposed", "linear", "lstm", "relu"],
)
def test_multiply_accumulates_are_counted_from_the_example(layer, shape, macs) -> None:
    ledger = core.report(core.trace(nn.Sequential(layer).eval(), torch.randn(shape))).ledger
    assert sum(entry.macs for entry in ledger) == macs


def test_what_attention_multiplies_between_its_projections_counts_as_float() -> None:
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(16, 2, batch_first=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.attention(x, x, x, need_weights=False)[0]

    images = torch.randn(2, 5, 16)
    quantized = core.quantize(Attention().eval(), "fbgemm", calibration=[images])
    share = core.report(quantized).ledger.macs()
    assert share.int8 == 4 * 2 * 5 * 16 * 16
    assert share.total == 5 * 2 * (16 * 3 * 16 + 16 * 16) + 2 * 5 * 5 * 2 * 16
    assert torch.backends.mha.get_fastpath_enabled()
