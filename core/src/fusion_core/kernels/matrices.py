"""Weights of shape [out, in] packed for products with float inputs: in int8, or in float16."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from fusion_core.kernels.engine import native_weight, plain_weight, quantized_engine
from fusion_core.qops import QuantizedTensor

SMALLEST_STEP = 2.0**-14
"""Below this step of an input, the kernels choose a coarser one (6.1e-5, the least normal float16)."""

_SHIFTS = (0, 8, 16)
_LEVELS, _SHORT_LEVELS = 255, 127


class PackedMatrix:
    """A weight and its bias, packed for one engine; it is pickled in plain form.

    Attributes:
        engine: Engine that it is packed for.
        is_half: Whether the weight is kept in float16, not in int8.
    """

    def __init__(self, engine: str, weight: QuantizedTensor, bias: Tensor | None) -> None:
        """Pack ``weight``, int8 codes or float16 of shape [out, in], and ``bias``, float32 of shape [out]."""
        self.engine = engine
        self.is_half = weight.codes.dtype is torch.float16
        self._packs = {0: self._pack(weight, None if bias is None else bias.detach())}

    def packed(self, shift: int = 0) -> Any:
        """What the engine's kernels take: the weight divided by ``2**shift``, the bias as it is."""
        if shift not in self._packs:
            weight, bias = self.plain()
            smaller = weight.scale * 2.0**-shift
            shifted = QuantizedTensor(weight.codes, smaller, weight.zero_point, weight.axis)
            self._packs[shift] = self._pack(shifted, bias)
        return self._packs[shift]

    def product(self, rows: Tensor, *, short: bool = False, rectified: bool = False) -> Tensor:
        """What a linear layer with this weight gives.

        Args:
            rows: Float32 of shape [..., in], at least 2 dimensions. It is quantized with parameters
                from its own range, unless the weight is in float16.
            short: Whether its codes have 7 bits.
            rectified: Whether ReLU follows.

        Raises:
            ValueError: ``rows`` holds NaN or infinity.
        """
        kernels = torch.ops.quantized
        if self.is_half:
            half = kernels.linear_relu_dynamic_fp16 if rectified else kernels.linear_dynamic_fp16
            exact: Tensor = half(rows, self.packed())
            return exact
        shift = shift_for(rows, short=short)
        kernel = kernels.linear_relu_dynamic if rectified else kernels.linear_dynamic
        rounded: Tensor = kernel(shifted(rows, shift), self.packed(shift), short)
        return rounded

    def plain(self) -> tuple[QuantizedTensor, Tensor | None]:
        """Weight and bias as they were given."""
        if not self.is_half:
            weight, bias = torch.ops.quantized.linear_unpack(self._packs[0])
            return plain_weight(weight), bias
        values, bias = torch.ops.quantized.linear_unpack_fp16(self._packs[0])
        one, zero = torch.ones(1), torch.zeros(1, dtype=torch.int32)
        return QuantizedTensor(values.half(), one, zero), bias

    def state(self) -> dict[str, Any]:
        """Everything in plain tensors."""
        weight, bias = self.plain()
        return {
            "engine": self.engine,
            "codes": weight.codes,
            "scale": weight.scale,
            "zero_point": weight.zero_point,
            "axis": weight.axis,
            "bias": bias,
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> PackedMatrix:
        """The inverse of :meth:`state`."""
        parts = (state[name] for name in ("codes", "scale", "zero_point", "axis"))
        return cls(state["engine"], QuantizedTensor(*parts), state["bias"])

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled in plain form, and packed again for the machine that loads it."""
        return PackedMatrix.from_state, (self.state(),)

    def _pack(self, weight: QuantizedTensor, bias: Tensor | None) -> Any:
        with quantized_engine(self.engine):
            if self.is_half:
                return torch.ops.quantized.linear_prepack_fp16(weight.dequantize(), bias)
            return torch.ops.quantized.linear_prepack(native_weight(weight), bias)


class MatrixKernel(nn.Module):
    """A kernel that takes and gives float values; its weights are saved in plain form.

    Attributes:
        matrices: Its weights by name.
    """

    def __init__(self, matrices: dict[str, PackedMatrix]) -> None:
        """A kernel with these weights."""
        super().__init__()
        self.matrices = matrices

    @property
    def is_half(self) -> bool:
        """Whether its weights are kept in float16."""
        return next(iter(self.matrices.values())).is_half

    def get_extra_state(self) -> dict[str, dict[str, Any]]:
        """The weights in plain tensors, for ``state_dict``."""
        return {name: matrix.state() for name, matrix in self.matrices.items()}

    def set_extra_state(self, state: dict[str, dict[str, Any]]) -> None:
        """Pack what :meth:`get_extra_state` gave."""
        self.matrices = {name: PackedMatrix.from_state(each) for name, each in state.items()}

    def extra_repr(self) -> str:
        """Engine and dtype of the weights."""
        engine = next(iter(self.matrices.values())).engine
        return f"engine={engine}, weights={'float16' if self.is_half else 'int8'}"


def shift_for(x: Tensor, *, short: bool) -> int:
    """By which power of two to multiply an input so that its step is none that a kernel coarsens.

    The weight is divided by the same, so that the product stays what it is.

    Args:
        x: Float tensor; it may be empty.
        short: Whether its codes have 7 bits, and not 8.

    Raises:
        ValueError: ``x`` holds NaN or infinity.
    """
    if x.numel() == 0:
        return 0
    low, high = (float(end) for end in torch.aminmax(x))
    step = (max(high, 0.0) - min(low, 0.0)) / (_SHORT_LEVELS if short else _LEVELS)
    if not math.isfinite(step):
        msg = (
            "the input of a layer that is quantized dynamically holds NaN or infinity, for which "
            "there is no scale; look for where they come from in the float model"
        )
        raise ValueError(msg)
    if step == 0.0:
        return 0
    return next((each for each in _SHIFTS if step * 2.0**each >= SMALLEST_STEP), _SHIFTS[-1])


def shifted(x: Tensor, shift: int) -> Tensor:
    """``x`` times ``2**shift``."""
    return x * 2.0**shift if shift else x
