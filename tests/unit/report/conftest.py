from __future__ import annotations

import pytest
import torch
from torch import nn

import fusion_core as core


class Small(nn.Module):
    """Something of each kind: a convolution, an operation fbgemm has no pattern for, dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU())
        self.silu = nn.SiLU()
        self.drop = nn.Dropout()
        self.head = nn.Linear(4, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.drop(self.silu(self.stem(x)).mean((2, 3))))


@pytest.fixture(scope="session")
def small() -> nn.Module:
    torch.manual_seed(0)
    return Small().eval()


@pytest.fixture(scope="session")
def data() -> list[torch.Tensor]:
    return [torch.randn(2, 3, 8, 8) for _ in range(2)]


@pytest.fixture(scope="session")
def quantized(small, data):
    return core.quantize(small, backend="fbgemm", calibration=data)
