"""What may stand before an operation that is quantized only behind something quantized."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fusion_core.testing.zoo.case import IMAGES, Producer


class _Offset(nn.Module):
    """Adds a tensor of its own."""

    offset: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("offset", torch.randn(IMAGES))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.offset


PRODUCERS = (
    Producer("conv2d", lambda: nn.Conv2d(4, 4, 3, padding=1)),
    Producer("linear.batched", lambda: nn.Linear(8, 8)),
    Producer("add", _Offset),
)
"""From images to images, preferred ones first."""
