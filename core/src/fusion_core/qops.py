"""The quantize and dequantize operations of a reference graph; the only door to them.

Values are plain integer tensors, ``torch.uint8`` or ``torch.int8``, so a reference model runs
wherever torch does. The operations are leaves of FX tracing, and built from elementary ones for
everything else.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function_unary

_STORAGE = {
    torch.quint8: torch.uint8,
    torch.qint8: torch.int8,
    torch.qint32: torch.int32,
    torch.uint8: torch.uint8,
    torch.int8: torch.int8,
    torch.int32: torch.int32,
}


def storage_dtype(dtype: torch.dtype) -> torch.dtype:
    """The integer dtype in which values of a quantized dtype are kept: ``quint8`` is ``uint8``.

    Raises:
        ValueError: ``dtype`` is not a quantized dtype.
    """
    try:
        return _STORAGE[dtype]
    except KeyError:
        msg = f"{dtype} has no integer storage; known are {', '.join(map(str, _STORAGE))}"
        raise ValueError(msg) from None


def quantize_per_tensor(
    x: Tensor, scale: float, zero_point: int, quant_min: int, quant_max: int, dtype: torch.dtype
) -> Tensor:
    """``clamp(round(x / scale) + zero_point, quant_min, quant_max)``, rounding halves to even.

    Args:
        x: Float tensor of any shape.
        scale: Size of one step, in units of ``x``.
        zero_point: The code that stands for 0.
        quant_min: Smallest code.
        quant_max: Largest code.
        dtype: Integer dtype of the codes, for example ``torch.uint8``.

    Returns:
        The codes, in the shape of ``x``.
    """
    if has_torch_function_unary(x):
        quantized: Tensor = handle_torch_function(
            quantize_per_tensor, (x,), x, scale, zero_point, quant_min, quant_max, dtype
        )
        return quantized
    # Multiplying by the reciprocal is what the native CPU kernels do, so ties fall alike.
    codes = torch.round(x.float() * (1.0 / scale)) + zero_point
    return codes.clamp(quant_min, quant_max).to(dtype)


def dequantize_per_tensor(codes: Tensor, scale: float, zero_point: int) -> Tensor:
    """``(codes - zero_point) * scale`` as float32.

    Args:
        codes: Integer tensor of any shape.
        scale: Size of one step.
        zero_point: The code that stands for 0.

    Returns:
        Float32 tensor in the shape of ``codes``.
    """
    if has_torch_function_unary(codes):
        values: Tensor = handle_torch_function(
            dequantize_per_tensor, (codes,), codes, scale, zero_point
        )
        return values
    return (codes.to(torch.float32) - zero_point) * scale


@dataclass(frozen=True, slots=True)
class QuantizedTensor:
    """Integer codes and what they stand for; per tensor or per channel.

    Attributes:
        codes: Integer tensor.
        scale: Float32 tensor of shape [1] or [channels].
        zero_point: Integer tensor of the shape of ``scale``.
        axis: Which dimension of ``codes`` is the channel, or None where there is one scale.
    """

    codes: Tensor
    scale: Tensor
    zero_point: Tensor
    axis: int | None = None

    @classmethod
    def from_float(  # noqa: PLR0913  what quantization is made of, by keyword
        cls,
        x: Tensor,
        scale: Tensor,
        zero_point: Tensor,
        *,
        axis: int | None,
        quant_min: int,
        quant_max: int,
        dtype: torch.dtype,
    ) -> QuantizedTensor:
        """``x`` rounded to the nearest code, halves to even.

        Args:
            x: Float tensor of any shape.
            scale: Float32 tensor of shape [1] or [channels].
            zero_point: Integer tensor of the same shape.
            axis: The channel's dimension in ``x``, or None.
            quant_min: Smallest code.
            quant_max: Largest code.
            dtype: Integer dtype of the codes.
        """
        shape = _broadcast_shape(x.dim(), axis)
        codes = torch.round(x.detach().float() / scale.view(shape)) + zero_point.view(shape)
        return cls(codes.clamp(quant_min, quant_max).to(dtype), scale, zero_point, axis)

    def dequantize(self) -> Tensor:
        """The float32 values that the codes stand for."""
        shape = _broadcast_shape(self.codes.dim(), self.axis)
        return (self.codes.to(torch.float32) - self.zero_point.view(shape)) * self.scale.view(shape)


def _broadcast_shape(dims: int, axis: int | None) -> list[int]:
    """Shape in which one value per channel, or one in all, meets a tensor of ``dims`` dimensions."""
    return [-1 if dim == axis else 1 for dim in range(dims)]
