"""The imaginary chip; a driver or a simulator would take the place of ``shifted`` and ``Pass``."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  the name everyone knows it by
from torch import Tensor, nn

from fusion_core.nn import HistogramObserver, PerChannelMinMaxObserver


class ActivationObserver(HistogramObserver):
    """Records the values of a tensor, as the public observer does, and gives it another scale."""

    schemes = (torch.per_tensor_symmetric,)

    def calculate_qparams(self) -> tuple[Tensor, Tensor]:
        """Scale (float32) and zero point (int32), both of shape [1]."""
        return rounded_up(*super().calculate_qparams())


class WeightObserver(PerChannelMinMaxObserver):
    """Does the same for each output channel of a weight."""

    schemes = (torch.per_channel_symmetric,)

    def calculate_qparams(self) -> tuple[Tensor, Tensor]:
        """Scale (float32) and zero point (int32), both of shape [channels]."""
        return rounded_up(*super().calculate_qparams())


def rounded_up(scale: Tensor, zero_point: Tensor) -> tuple[Tensor, Tensor]:
    """The next powers of two, in which all that fitted still does, and the zero point as it is."""
    mantissa, exponent = torch.frexp(scale)  # mantissa * 2**exponent, and 0.5 <= mantissa < 1
    return torch.ldexp(torch.ones_like(scale), exponent - mantissa.eq(0.5).int()), zero_point


def shifted(values: Tensor, places: Tensor) -> Tensor:
    """``values * 2**places`` in int32; what leaves on the right is rounded, halves to even."""
    right = (-places).clamp(min=0)
    values = values.int() << places.clamp(min=0)
    floor = values >> right
    twice_the_rest = (values - (floor << right)) * 2
    return floor + (twice_the_rest + floor % 2 > 1 << right)


class Pass(nn.Module):
    """Multiply with a weight, shift all terms to one step, add, shift to the output's step, saturate."""

    def __init__(self, layer: Any, align: Tensor, bias: Tensor, rescale: Tensor, ends: Any) -> None:
        super().__init__()
        self.multiply: Any = F.linear
        if isinstance(conv := layer.float_module, nn.Conv2d):
            names = ("stride", "padding", "dilation", "groups")
            self.multiply = partial(F.conv2d, **{name: getattr(conv, name) for name in names})
        self.weight, self.bias = nn.Buffer(layer.codes), nn.Buffer(bias)
        self.align, self.rescale = nn.Buffer(align), nn.Buffer(rescale)
        self.ends = ends

    def forward(self, codes: Tensor, *others: Tensor) -> Tensor:
        """int8 codes of int8 codes."""
        terms = (self.multiply(codes.int(), self.weight.int()), *others)
        total = sum(map(shifted, terms, self.align), start=self.bias)
        return shifted(total, self.rescale).clamp(*self.ends).to(torch.int8)
