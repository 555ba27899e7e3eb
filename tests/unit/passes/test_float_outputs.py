"""A layer whose result is only moved, and then read in float, gives float."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812  the name everyone knows it by
from torch import nn

import fusion_core as core
from fusion_core.passes.float_outputs import IDLE

WIDTH, HEADS = 8, 2


class Attention(nn.Module):
    """Projections taken apart into heads, attention, and a projection."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        q, k, v = (
            each.reshape(x.shape[0], x.shape[1], HEADS, -1).transpose(1, 2) for each in (q, k, v)
        )
        attended = F.scaled_dot_product_attention(q, k, v)
        return self.out(attended.transpose(1, 2).flatten(2))


class Moved(nn.Module):
    """A layer, what moves its result, and what reads that."""

    def __init__(self, layer, behind) -> None:
        super().__init__()
        self.layer, self.behind = layer, behind

    def forward(self, x):
        return self.behind(self.layer(x).flatten(1))


def lines(model, *shape):
    torch.manual_seed(0)
    data = [torch.randn(2, *shape) for _ in range(3)]
    lowered = core.quantize(model.eval(), "fbgemm", calibration=data, adaptive_rounding=False)
    return {entry.operation: entry for entry in core.report(lowered).ledger}, lowered


def test_heads_are_not_rounded_where_attention_reads_them_in_float():
    found, lowered = lines(Attention(), 4, WIDTH)

    moves = [found[name] for name in (".chunk", ".reshape")]
    assert [(each.status, each.reason) for each in moves] == [(core.Status.FLOAT, IDLE)] * 2
    assert core.report(lowered).ledger.macs().fraction > 0.5
    assert found["Linear"].status is core.Status.INT8


def test_what_a_convolution_gives_is_moved_as_codes():
    # It has no kernel with float output, so nothing would be gained.
    found, _ = lines(Moved(nn.Conv1d(WIDTH, 4, 1), nn.Identity()), WIDTH, 4)

    assert found[".flatten"].status is core.Status.INT8


def test_what_is_read_as_codes_is_moved_as_codes():
    found, _ = lines(Moved(nn.Linear(WIDTH, 4), nn.Linear(16, 2)), 4, WIDTH)

    assert found[".flatten"].status is core.Status.INT8


def test_an_output_that_is_wanted_as_codes_is_moved_as_codes():
    custom = core.CustomConfig(quantized_outputs=("",))
    data = [torch.randn(2, 4, WIDTH) for _ in range(3)]
    lowered = core.quantize(
        Moved(nn.Linear(WIDTH, 4), nn.Identity()).eval(),
        "fbgemm",
        calibration=data,
        custom=custom,
        adaptive_rounding=False,
    )

    found = {entry.operation: entry for entry in core.report(lowered).ledger}
    assert found[".flatten"].status is core.Status.INT8
