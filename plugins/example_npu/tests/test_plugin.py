from __future__ import annotations

import pickle
from pathlib import Path

import pytest
import torch
from torch import nn

import fusion_core as core

PROJECT = Path(__file__).parents[1]
SOURCES = sorted((PROJECT / "src").rglob("*.py"))


def test_it_can_be_read_in_one_go():
    files = [PROJECT / "README.md", PROJECT / "pyproject.toml", *SOURCES]

    assert len(SOURCES) == 4
    assert sum(len(file.read_text("utf-8").splitlines()) for file in files) < 300


@pytest.mark.parametrize(
    "conv",
    [
        nn.Conv2d(3, 4, 7),
        nn.Conv2d(3, 4, (1, 6)),
        nn.Conv2d(3, 4, 3, dilation=2),
        nn.Conv2d(3, 4, 3, padding=1, padding_mode="reflect"),
    ],
    ids=str,
)
def test_what_does_not_fit_the_chip_stays_float_and_says_why(images, quantized, conv):
    model = quantized(images, nn.Sequential(conv, nn.BatchNorm2d(4), nn.ReLU()))
    entry, *others = core.report(model).ledger

    assert {each.status for each in (entry, *others)} == {core.Status.FLOAT}
    assert f"this is {conv}" in entry.reason


def test_affine_activations_are_refused_with_the_reason(images, quantized, npu_qconfig):
    affine = core.ObserverSpec(core.nn.MinMaxObserver, dtype=torch.qint8)
    qconfig = npu_qconfig.model_copy(update={"activation": affine})
    mapping = core.QConfigMapping(global_qconfig=qconfig)
    model = quantized(images, nn.Sequential(nn.Conv2d(3, 4, 3)), qconfig_mapping=mapping)
    (entry,) = core.report(model).ledger

    assert entry.status is core.Status.FLOAT
    assert "fixed zero point 0" in entry.reason


def test_a_quantized_model_keeps_what_the_float_one_says(block, images, quantized):
    model = block()
    want, have = model(images[0]), quantized(images, model)(images[0])

    assert 20 * torch.log10(want.norm() / (want - have).norm()) > 25


def test_moving_values_is_done_on_codes(images, quantized):
    class Moves(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.fc = nn.Conv2d(3, 4, 3), nn.Linear(36, 2)

        def forward(self, x):
            x = nn.functional.max_pool2d(self.conv(x), kernel_size=2)
            x = x.permute(0, 2, 3, 1).transpose(1, 2).unsqueeze(0).squeeze(0)
            return self.fc(torch.relu(input=x).reshape(x.shape[0], -1))

    model = Moves()
    entries = core.report(quantized(images, model)).ledger
    kernels = [entry.kernel for entry in entries if entry.status is not core.Status.NO_TENSOR]

    assert kernels == ["layer", *["copy"] * 7, "layer"]


def test_a_model_on_the_chip_can_be_pickled(block, images, quantized):
    model = quantized(images, block())
    again = pickle.loads(pickle.dumps(model))  # noqa: S301  written a moment ago

    assert torch.equal(again(images[0]), model(images[0]))
