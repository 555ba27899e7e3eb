"""Models that the chip was made for, and their way onto it."""

from __future__ import annotations

import operator

import pytest
import torch
from torch import nn

import fusion_core as core


class Block(nn.Module):
    """A residual block between two layers, with the sum and the relu in a spelling of one's choice."""

    def __init__(self, add=operator.add, relu=None, *, branch_first=True):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.conv = nn.Conv2d(8, 8, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(8)
        self.add, self.relu, self.branch_first = add, relu or nn.ReLU(), branch_first
        self.pool = nn.MaxPool2d(2)
        self.fc = nn.Linear(128, 10)

    def forward(self, x):
        x = self.stem(x).relu()
        branch = self.bn(self.conv(x))
        x = self.relu(self.add(branch, x) if self.branch_first else self.add(x, branch))
        return self.fc(torch.flatten(self.pool(x), 1))


@pytest.fixture
def block():
    """A :class:`Block` in eval mode whose batch norm does something."""

    def block(*args, **options):
        model = Block(*args, **options).eval()
        model.bn.running_mean.uniform_(-0.2, 0.2)
        model.bn.running_var.uniform_(0.5, 2)
        return model

    return block


@pytest.fixture
def images():
    """Batches of small images."""
    return [torch.randn(4, 3, 8, 8) for _ in range(4)]


@pytest.fixture
def quantized():
    """A model on the chip; its data come first in the arguments."""

    def quantized(data, model, **options):
        return core.quantize(
            model.eval(), "example_npu", calibration=data, **{"adaptive_rounding": False, **options}
        )

    return quantized


@pytest.fixture
def npu_qconfig():
    """The qconfig that the plugin has for everything."""
    return core.get_backend("example_npu").qconfig_mapping.global_qconfig
