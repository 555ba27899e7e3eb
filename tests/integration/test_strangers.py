"""Models as strangers write them: what went wrong with one of them, each in its smallest form."""

from __future__ import annotations

import torch
from torch import nn

import fusion_core as core


class Remembers(nn.Module):
    """Keeps its state in an attribute, as many write it."""

    def __init__(self):
        super().__init__()
        self.cell, self.out = nn.Linear(8, 4), nn.Linear(4, 2)
        self.state = None

    def forward(self, x):
        if self.state is None:
            self.state = torch.zeros((x.shape[0], 4))
        self.state = torch.tanh(self.cell(torch.cat([x, self.state], 1)))
        return self.out(self.state)


def test_a_state_in_an_attribute_is_kept_between_calls_and_begins_anew():
    torch.manual_seed(0)
    model, x = nn.Sequential(Remembers()).eval(), torch.randn(8, 4)
    quantized = core.quantize(model, "fbgemm", calibration=[x])
    lines = {line.path: line for line in core.report(quantized).ledger}

    assert "it changes state, which the next call would see" in lines["0"].reason
    assert lines["0.cell"].status is lines["0.out"].status is core.Status.INT8
    assert model[0].state is None
    for _ in range(3):  # with another batch size than that of calibration
        assert (quantized(x[:3]) - model(x[:3])).norm() < 0.1 * model[0].state.norm()


class Shows(nn.Module):
    """Leaves what it computes on the way for others to see."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.scale = torch.tensor(2.0)

    def forward(self, x):
        self.hidden = torch.relu(self.layer(x))
        self.doubled = self.hidden * self.scale
        return self.doubled + self.hidden


def test_values_that_are_set_before_they_are_read_are_no_state():
    model, x = nn.Sequential(Shows()).eval(), torch.randn(8, 4)
    traced = core.trace(model, x, backend="fbgemm")

    assert [line.operation for line in core.report(traced).ledger][:2] == ["Linear", "torch.relu"]
    assert torch.equal(traced(x), model(x))
    assert model[0].scale == 2.0
