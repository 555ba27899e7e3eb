"""Modules that run PyTorch's native int8 kernels on tensors of dtype ``quint8``."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from fusion_core.kernels.codes import OutputCodes
from fusion_core.kernels.engine import accept_quantized_tensors
from fusion_core.kernels.steady import add, clamp


class KernelModule(nn.Module):
    """A kernel that gives quantized output.

    Attributes:
        output: What the output may be.
    """

    def __init__(self, output: OutputCodes) -> None:
        """A kernel whose output is ``output``."""
        super().__init__()
        self.output = output
        self._bounds = output.bounds
        accept_quantized_tensors()

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore a pickled module in a process that may not have met a quantized tensor yet."""
        accept_quantized_tensors()
        super().__setstate__(state)  # type: ignore[no-untyped-call]  # untyped in torch

    def clamped(self, codes: Tensor) -> Tensor:
        """``codes`` within the range of the output."""
        return codes if self._bounds is None else clamp(codes, *self._bounds)

    def extra_repr(self) -> str:
        """Scale, zero point and codes of the output."""
        out = self.output
        return f"scale={out.scale:.6g}, zero_point={out.zero_point}, codes={out.low}..{out.high}"


class Quantize(KernelModule):
    """Float to ``quint8``."""

    def forward(self, x: Tensor) -> Tensor:
        """The codes of ``x``, as a tensor of dtype ``quint8``."""
        return self.quantized(x)

    def quantized(self, x: Tensor) -> Tensor:
        """The codes of ``x``, whatever this is a kernel of."""
        if self._bounds is not None:
            x = torch.clamp(x, *self._bounds)
        return torch.quantize_per_tensor(x, self.output.scale, self.output.zero_point, torch.quint8)


class Dequantize(nn.Module):
    """``quint8`` to float."""

    def forward(self, codes: Tensor) -> Tensor:
        """The float32 values of ``codes``, contiguous as they would be in float."""
        return codes.dequantize().contiguous()  # kernels put channels last, which a view refuses


class Binary(KernelModule):
    """Addition or multiplication of two quantized tensors, which may be broadcast."""

    def __init__(self, name: str, output: OutputCodes) -> None:
        """The kernel ``quantized.<name>``, ``add`` or ``mul``."""
        super().__init__(output)
        self.name = name
        suffix = "_relu" if output.is_rectified else ""
        self._kernel = f"{name}{suffix}"

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        """The sum or product, as a tensor of dtype ``quint8``."""
        kernel = getattr(torch.ops.quantized, self._kernel)
        return self.clamped(kernel(left, right, self.output.scale, self.output.zero_point))


class SteadySum(KernelModule):
    """Addition of two quantized tensors that looks at no selected engine; they may be broadcast."""

    def __init__(self, output: OutputCodes) -> None:
        """A sum whose output is ``output``."""
        super().__init__(output)
        self._like = self._template()

    def _template(self) -> Tensor:
        """A tensor with the output's scale and zero point, of one value."""
        out = self.output
        return torch.quantize_per_tensor(torch.zeros(1), out.scale, out.zero_point, torch.quint8)

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the template."""
        return {key: value for key, value in self.__dict__.items() if key != "_like"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore, with a new template."""
        super().__setstate__(state)
        self._like = self._template()

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        """The sum, as a tensor of dtype ``quint8``."""
        return self.clamped(add(left, right, self._like, rectified=self.output.is_rectified))
