"""Codes of quantized values: which ones an output may have, and where in a graph they come from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.fx import Node

from fusion_core.configs import Skip
from fusion_core.qops import dequantize_per_tensor, quantize_per_tensor

HIGHEST_CODE = 255

_OFFSETS = {torch.uint8: 0, torch.int8: 128}


@dataclass(frozen=True, slots=True)
class OutputCodes:
    """Scale, zero point, and the codes that an output may have.

    The kernels know unsigned codes only. A signed code is the unsigned one that is 128 higher, with
    a zero point that is 128 higher too: the values, and all that is computed with them, are the
    same. A kernel saturates at 0 and 255 only. Where the range is narrower, for example 0 to 127,
    the rest must be clamped, or the next kernel is given codes it was not promised.

    Attributes:
        scale: Size of one step.
        zero_point: The code that stands for 0.
        low: Smallest code.
        high: Largest code.
    """

    scale: float
    zero_point: int
    low: int
    high: int

    @classmethod
    def of(cls, quantize: Node) -> OutputCodes:
        """What a quantize node of dtype ``uint8`` or ``int8`` gives."""
        _, scale, zero_point, low, high, dtype = quantize.args
        offset = _OFFSETS[dtype]  # type: ignore[index]  # constants
        codes = (int(each) + offset for each in (zero_point, low, high))  # type: ignore[arg-type]
        return cls(float(scale), *codes)  # type: ignore[arg-type]  # constants

    def within(self, low: float | None, high: float | None) -> OutputCodes:
        """The codes that are left when an activation bounds the output to ``[low, high]``."""
        codes = [None if bound is None else self._code(bound) for bound in (low, high)]
        return replace(
            self,
            low=self.low if codes[0] is None else codes[0],
            high=self.high if codes[1] is None else codes[1],
        )

    def _code(self, value: float) -> int:
        # Within the codes first: a bound may be infinite, which no integer is.
        low, high = self.low - self.zero_point, self.high - self.zero_point
        return round(min(max(value / self.scale, low), high)) + self.zero_point

    @property
    def is_rectified(self) -> bool:
        """Whether nothing below 0 is left, which kernels do for nothing."""
        return self.low >= self.zero_point

    @property
    def values(self) -> tuple[float, float]:
        """What the smallest and the largest code stand for."""
        return (self.low - self.zero_point) * self.scale, (self.high - self.zero_point) * self.scale

    @property
    def bounds(self) -> tuple[float, float] | None:
        """What to clamp to after the kernel, in units of the output; None where it does all."""
        done_below = self.zero_point if self.is_rectified else 0
        if self.low <= done_below and self.high >= HIGHEST_CODE:
            return None
        return self.values


@dataclass(frozen=True, slots=True)
class CodeTypes:
    """Which dtypes of codes a backend's rules take.

    Attributes:
        signed: Whether ``int8`` is taken as well as ``uint8``.
    """

    signed: bool = False

    def output(self, quantize: Node) -> OutputCodes | Skip:
        """What the output of a quantize node may be, where the kernels can give it."""
        if self._takes(quantize):
            return OutputCodes.of(quantize)
        return Skip(f"the kernels give {self._names()}, not {quantize.args[5]}")

    def source(self, value: Any) -> Node | None:
        """The quantize node that a dequantized value comes from, where the kernels take its codes."""
        if not isinstance(value, Node) or value.target is not dequantize_per_tensor:
            return None
        source = value.args[0]
        if isinstance(source, Node) and source.target is quantize_per_tensor:
            return source if self._takes(source) else None
        return None

    def _takes(self, quantize: Node) -> bool:
        dtype = quantize.args[5]
        return dtype is torch.uint8 or (self.signed and dtype is torch.int8)

    def _names(self) -> str:
        return "uint8 and int8" if self.signed else "uint8"
