"""The quantize and dequantize operations of a reference graph; the only door to them.

Values are plain integer tensors, ``torch.uint8`` or ``torch.int8``, so a reference model runs
wherever torch does. The operations are leaves of FX tracing, and built from elementary ones for
everything else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function_unary

_STORAGE = {
    torch.quint8: torch.uint8,
    torch.quint4x2: torch.uint8,
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


def take_codes(
    codes: Tensor, scale: float, zero_point: int, quant_min: int, quant_max: int, dtype: torch.dtype
) -> Tensor:
    """:func:`dequantize_per_tensor` of an input of the model, which no lowering rule takes away.

    Args:
        codes: Integer tensor of any shape.
        scale: Size of one step.
        zero_point: The code that stands for 0.
        quant_min: Smallest code; what is below counts as this.
        quant_max: Largest code; what is above counts as this.
        dtype: Integer dtype that the codes must have.

    Returns:
        Float32 tensor in the shape of ``codes``.

    Raises:
        TypeError: ``codes`` are of another dtype.
    """
    if has_torch_function_unary(codes):
        parameters = scale, zero_point, quant_min, quant_max, dtype
        values: Tensor = handle_torch_function(take_codes, (codes,), codes, *parameters)
        return values
    if codes.dtype != dtype:
        raise TypeError(
            f"this input takes codes of {dtype} with scale {scale:g} and zero point {zero_point}, and was given "
            f"{codes.dtype}; fusion_core.interface(model) describes all inputs"
        )
    return (codes.clamp(quant_min, quant_max).to(torch.float32) - zero_point) * scale


def give_codes(
    x: Tensor, scale: float, zero_point: int, quant_min: int, quant_max: int, dtype: torch.dtype
) -> Tensor:
    """:func:`quantize_per_tensor` of an output of the model, which no lowering rule takes away.

    Args and result are the same: plain integer codes.
    """
    if has_torch_function_unary(x):
        parameters = scale, zero_point, quant_min, quant_max, dtype
        codes: Tensor = handle_torch_function(give_codes, (x,), x, *parameters)
        return codes
    return quantize_per_tensor(x, scale, zero_point, quant_min, quant_max, dtype)


def quantize_per_channel(  # noqa: PLR0913, PLR0917  what quantization is made of
    x: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    axis: int,
    quant_min: int,
    quant_max: int,
    dtype: torch.dtype,
) -> Tensor:
    """:func:`quantize_per_tensor` with a scale and a zero point for each index of one dimension.

    Args:
        x: Float tensor of any shape.
        scale: Float32 tensor of shape [channels].
        zero_point: Integer tensor of the same shape.
        axis: The dimension of ``x`` that is the channel; negative counts from the last.
        quant_min: Smallest code.
        quant_max: Largest code.
        dtype: Integer dtype of the codes.

    Returns:
        The codes, in the shape of ``x``.
    """
    if has_torch_function_unary(x):
        parameters = scale, zero_point, axis, quant_min, quant_max, dtype
        quantized: Tensor = handle_torch_function(quantize_per_channel, (x,), x, *parameters)
        return quantized
    shape = _broadcast_shape(x.dim(), axis)
    codes = torch.round(x.float() / scale.view(shape)) + zero_point.view(shape)
    return codes.clamp(quant_min, quant_max).to(dtype)


def dequantize_per_channel(codes: Tensor, scale: Tensor, zero_point: Tensor, axis: int) -> Tensor:
    """``(codes - zero_point) * scale`` as float32, with the parameters of each channel.

    Args:
        codes: Integer tensor of any shape.
        scale: Float32 tensor of shape [channels].
        zero_point: Integer tensor of the same shape.
        axis: The dimension of ``codes`` that is the channel; negative counts from the last.

    Returns:
        Float32 tensor in the shape of ``codes``.
    """
    if has_torch_function_unary(codes):
        values: Tensor = handle_torch_function(
            dequantize_per_channel, (codes,), codes, scale, zero_point, axis
        )
        return values
    shape = _broadcast_shape(codes.dim(), axis)
    return (codes.to(torch.float32) - zero_point.view(shape)) * scale.view(shape)


Dynamic: TypeAlias = tuple[Tensor, Tensor, Tensor]
"""Codes with the scale (float32, shape []) and zero point (int32, shape []) that were chosen for them."""


def quantize_per_tensor_dynamic(
    x: Tensor,
    quant_min: int,
    quant_max: int,
    dtype: torch.dtype,
    symmetric: bool = False,  # noqa: FBT001, FBT002  a constant of the graph
    eps: float = torch.finfo(torch.float32).eps,
) -> Dynamic:
    """:func:`quantize_per_tensor` with parameters from the range of ``x`` itself.

    Affine: ``scale = (max - min) / (quant_max - quant_min)`` over the range widened to hold 0, and
    ``zero_point = quant_min - round(min / scale)``. Symmetric: ``scale = max|x| / ((quant_max -
    quant_min) / 2)``, zero point in the middle. These are the formulas of the observers.

    Args:
        x: Float tensor of any shape; it may be empty.
        quant_min: Smallest code.
        quant_max: Largest code.
        dtype: Integer dtype of the codes.
        symmetric: Whether the code of 0 is fixed in the middle.
        eps: Smallest scale.

    Returns:
        The codes in the shape of ``x``, the scale and the zero point.
    """
    if has_torch_function_unary(x):
        limits = quant_min, quant_max, dtype, symmetric, eps
        chosen: Dynamic = handle_torch_function(quantize_per_tensor_dynamic, (x,), x, *limits)
        return chosen
    values = x.float()
    low, high = torch.aminmax(values) if values.numel() else (values.new_zeros(()),) * 2
    low, high = low.clamp(max=0.0), high.clamp(min=0.0)
    levels = quant_max - quant_min
    if symmetric:
        scale = (torch.maximum(-low, high) / (levels / 2)).clamp(min=eps)
        middle = 0 if quant_min < 0 else (quant_min + quant_max + 1) // 2
        zero_point = torch.full_like(scale, middle).to(torch.int32)
    else:
        scale = ((high - low) / levels).clamp(min=eps)
        zero_point = (quant_min - torch.round(low / scale)).clamp(quant_min, quant_max)
        zero_point = zero_point.to(torch.int32)
    codes = torch.round(values * (1.0 / scale)) + zero_point
    return codes.clamp(quant_min, quant_max).to(dtype), scale, zero_point


def dequantize_dynamic(quantized: Dynamic) -> Tensor:
    """``(codes - zero_point) * scale`` as float32, of what :func:`quantize_per_tensor_dynamic` returned."""
    given: Any = quantized
    if not isinstance(given, tuple):  # a traced value stands for the whole tuple
        values: Tensor = handle_torch_function(dequantize_dynamic, (quantized,), quantized)
        return values
    codes, scale, zero_point = quantized
    return (codes.to(torch.float32) - zero_point) * scale


@dataclass(frozen=True, slots=True)
class QuantizedTensor:
    """Integer codes and what they stand for; per tensor or per channel.

    A weight that is kept in float16 is one as well: its codes are its values, with the scale 1.

    Attributes:
        codes: Integer tensor, four bits of codes in one byte each; or float16 values.
        scale: Float32 tensor of shape [1] or [channels].
        zero_point: Tensor of the shape of ``scale``; integer, or float32 where 0 need not have a
            code of its own (``torch.per_channel_affine_float_qparams``).
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
            zero_point: Integer or float32 tensor of the same shape.
            axis: The channel's dimension in ``x``, or None; negative counts from the last.
            quant_min: Smallest code.
            quant_max: Largest code.
            dtype: Integer dtype of the codes.
        """
        axis = None if axis is None else axis % x.dim()
        shape = _broadcast_shape(x.dim(), axis)
        steps, zero_point_of = x.detach().float() / scale.view(shape), zero_point.view(shape)
        if zero_point.is_floating_point():
            codes = torch.round(steps + zero_point_of)
        else:
            codes = torch.round(steps) + zero_point_of
        return cls(codes.clamp(quant_min, quant_max).to(dtype), scale, zero_point, axis)

    def dequantize(self) -> Tensor:
        """The float32 values that the codes stand for."""
        shape = _broadcast_shape(self.codes.dim(), self.axis)
        return (self.codes.to(torch.float32) - self.zero_point.view(shape)) * self.scale.view(shape)


def _broadcast_shape(dims: int, axis: int | None) -> list[int]:
    """Shape in which one value per channel, or one in all, meets a tensor of ``dims`` dimensions."""
    channel = None if axis is None else axis % dims
    return [-1 if dim == channel else 1 for dim in range(dims)]
