"""What a forward, or the train() of a model, does in training alone: it is kept, or the ledger names it."""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F  # noqa: N812  the name everyone knows it by
from torch import nn

import fusion_core as core

IMAGES = (8, 4, 6, 6)
ROWS = (8, 6)


class Holding(nn.Sequential):
    """Its norms and its dropout stay in eval mode, as in many recipes for fine-tuning."""

    def train(self, mode=True):  # noqa: FBT002
        super().train(mode)
        for module in self.modules():
            if isinstance(module, (nn.BatchNorm2d, nn.Dropout, nn.InstanceNorm2d)):
                module.eval()
        return self


def test_what_the_models_own_train_keeps_in_eval_mode_stays_there():
    torch.manual_seed(0)
    model, x = (
        Holding(nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4), nn.Dropout(), nn.BatchNorm2d(4)),
        torch.randn(IMAGES),
    )
    traced = core.trace(model.train(), x, backend="fbgemm", qat=True)
    fused = core.fuse(traced, "fbgemm", qat=True)
    prepared = core.disable_fake_quantize(core.prepare(fused, "fbgemm", qat=True))
    statistics = copy.deepcopy(dict(prepared.named_buffers()))

    assert torch.allclose(prepared.train()(x), model.train()(x), atol=1e-5)
    for name, value in prepared.named_buffers():
        assert "running" not in name or torch.equal(value, statistics[name])
    assert core.report(traced).ledger.notes == []


def test_what_cannot_be_kept_in_eval_mode_is_named_in_the_ledger():
    model = Holding(nn.Conv2d(4, 4, 1), nn.InstanceNorm2d(4, track_running_stats=True))
    (note,) = core.report(core.trace(model.train(), torch.randn(IMAGES), qat=True)).ledger.notes

    assert note.startswith("train() of the model keeps 1 in eval mode")


class Auxiliary(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.auxiliary = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x):
        x = self.layer(x)
        return x + self.auxiliary(x) if self.training else x


def test_what_is_only_there_in_training_is_named_in_the_ledger():
    (note,) = core.report(core.trace(Auxiliary(), torch.randn(ROWS), qat=True)).ledger.notes
    assert "is not what it does in training: auxiliary in the model, add in the model" in note

    plain = core.trace(
        Holding(nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4)), torch.randn(IMAGES), qat=True
    )
    assert core.report(plain).ledger.notes == []


class Switched(nn.Module):
    """Cannot be traced in training mode, and has functions that follow the mode."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 6)

    def forward(self, x):
        x = F.dropout(self.layer(x), 0.5, self.training)
        return x * 2 if self.training and x.sum() > 0 else x


def test_where_training_cannot_be_traced_a_switch_that_is_off_follows_the_mode():
    traced = core.trace(Switched(), torch.randn(ROWS), qat=True)

    assert [type(each) for each in traced.children()] == [nn.Linear, nn.Dropout]
    (note,) = core.report(traced).ledger.notes
    assert note.startswith("what the forward does in training alone is not known: ")
