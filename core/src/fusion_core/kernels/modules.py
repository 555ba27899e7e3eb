"""Modules that run PyTorch's native int8 kernels on tensors of dtype ``quint8``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  the name everyone knows it by
from torch import Tensor, nn

from fusion_core.kernels.depthwise import fast_form
from fusion_core.kernels.engine import (
    accept_quantized_tensors,
    native_weight,
    plain_weight,
    quantized_engine,
)
from fusion_core.kernels.geometry import ConvSettings
from fusion_core.qops import QuantizedTensor

HIGHEST_CODE = 255


@dataclass(frozen=True, slots=True)
class OutputCodes:
    """Scale, zero point, and the codes that an output may have.

    A kernel saturates at 0 and 255 only. Where the range is narrower, for example 0 to 127, the
    rest must be clamped, or the next kernel is given codes it was not promised.

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

    def within(self, low: float | None, high: float | None) -> OutputCodes:
        """The codes that are left when an activation bounds the output to ``[low, high]``."""
        codes = [None if bound is None else self._code(bound) for bound in (low, high)]
        return OutputCodes(
            self.scale,
            self.zero_point,
            self.low if codes[0] is None else codes[0],
            self.high if codes[1] is None else codes[1],
        )

    def _code(self, value: float) -> int:
        return min(max(round(value / self.scale) + self.zero_point, self.low), self.high)

    @property
    def is_rectified(self) -> bool:
        """Whether nothing below 0 is left, which kernels do for nothing."""
        return self.low >= self.zero_point

    @property
    def bounds(self) -> tuple[float, float] | None:
        """What to clamp to after the kernel, in units of the output; None where it does all."""
        done_below = self.zero_point if self.is_rectified else 0
        if self.low <= done_below and self.high >= HIGHEST_CODE:
            return None
        return (self.low - self.zero_point) * self.scale, (self.high - self.zero_point) * self.scale


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
        return codes if self._bounds is None else torch.clamp(codes, *self._bounds)

    def extra_repr(self) -> str:
        """Scale, zero point and codes of the output."""
        out = self.output
        return f"scale={out.scale:.6g}, zero_point={out.zero_point}, codes={out.low}..{out.high}"


class Quantize(KernelModule):
    """Float to ``quint8``."""

    def forward(self, x: Tensor) -> Tensor:
        """The codes of ``x``, as a tensor of dtype ``quint8``."""
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


class PackedModule(KernelModule, ABC):
    """A weighted kernel. The weight is kept packed for one engine; it is saved in plain form.

    Attributes:
        engine: Engine that the weight is packed for.
    """

    def __init__(self, engine: str, output: OutputCodes) -> None:
        """A kernel of ``engine`` whose output is ``output``; the constructor of each kind packs."""
        super().__init__(output)
        self.engine = engine

    def _pack(self, weight: QuantizedTensor, bias: Tensor | None) -> None:
        with quantized_engine(self.engine):
            self._packed = self._prepack(
                native_weight(weight), None if bias is None else bias.detach()
            )

    @abstractmethod
    def _prepack(self, weight: Tensor, bias: Tensor | None) -> Any:
        """Weight and bias as the engine keeps them."""

    @abstractmethod
    def _unpack(self) -> tuple[Tensor, Tensor | None]:
        """The inverse of :meth:`_prepack`."""

    @property
    def weight(self) -> QuantizedTensor:
        """The weight as codes, scale and zero point."""
        return plain_weight(self._unpack()[0])

    @property
    def bias(self) -> Tensor | None:
        """The float bias, or None."""
        return self._unpack()[1]

    def get_extra_state(self) -> dict[str, Tensor | int | None]:
        """Weight and bias in plain tensors, for ``state_dict``."""
        weight = self.weight
        return {
            "codes": weight.codes,
            "scale": weight.scale,
            "zero_point": weight.zero_point,
            "axis": weight.axis,
            "bias": self.bias,
        }

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Pack what :meth:`get_extra_state` gave."""
        weight = QuantizedTensor(state["codes"], state["scale"], state["zero_point"], state["axis"])
        self._pack(weight, state["bias"])

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the packed weight, and that in plain form."""
        return {
            **{key: value for key, value in self.__dict__.items() if key != "_packed"},
            "plain": self.get_extra_state(),
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore, and pack the weight for this machine."""
        plain = state.pop("plain")
        super().__setstate__(state)
        self.set_extra_state(plain)


class PackedLinear(PackedModule):
    """Linear, with ReLU where the output is rectified."""

    def __init__(
        self, engine: str, weight: QuantizedTensor, bias: Tensor | None, output: OutputCodes
    ) -> None:
        """Pack ``weight``, int8 codes of shape [out, in], and ``bias``, float32 of shape [out]."""
        super().__init__(engine, output)
        self._pack(weight, bias)

    def _prepack(self, weight: Tensor, bias: Tensor | None) -> Any:
        return torch.ops.quantized.linear_prepack(weight, bias)

    def _unpack(self) -> tuple[Tensor, Tensor | None]:
        weight, bias = torch.ops.quantized.linear_unpack(self._packed)
        return weight, bias

    def forward(self, codes: Tensor) -> Tensor:
        """Of ``codes``, ``quint8`` of shape [..., in]; ``quint8`` of shape [..., out]."""
        kernels = torch.ops.quantized
        kernel = kernels.linear_relu if self.output.is_rectified else kernels.linear
        return self.clamped(kernel(codes, self._packed, self.output.scale, self.output.zero_point))


_DONE_BY_KERNEL = {(None, None), (0.0, None)}


class PackedLinearToFloat(PackedLinear):
    """Linear on quantized input with float output: nothing is rounded behind the 32-bit sums."""

    def __init__(
        self,
        engine: str,
        weight: QuantizedTensor,
        bias: Tensor | None,
        source: OutputCodes,
        *,
        bounds: tuple[float | None, float | None] = (None, None),
    ) -> None:
        """As :class:`PackedLinear`; ``source`` is what the *input* is, ``bounds`` clamp the output."""
        super().__init__(engine, weight, bias, source)
        self.bounds = bounds

    def forward(self, values: Tensor) -> Tensor:
        """Of ``values``, the float values of codes, shape [..., in]; float32 of shape [..., out]."""
        kernels = torch.ops.quantized
        kernel = kernels.linear_with_input_q_dq_qweight_dq_output_fp32
        if self.bounds == (0.0, None):
            kernel = kernels.linear_with_input_q_dq_qweight_dq_relu_output_fp32
        result: Tensor = kernel(values, self.output.scale, self.output.zero_point, self._packed)
        return result if self.bounds in _DONE_BY_KERNEL else torch.clamp(result, *self.bounds)


class PackedConv(PackedModule):
    """Convolution in 1, 2 or 3 dimensions, with ReLU where the output is rectified.

    Attributes:
        settings: Its geometry, as it is packed.
    """

    def __init__(
        self,
        engine: str,
        weight: QuantizedTensor,
        bias: Tensor | None,
        output: OutputCodes,
        settings: ConvSettings,
    ) -> None:
        """Pack ``weight``, codes of shape [out, in / groups, *kernel], for ``engine``."""
        super().__init__(engine, output)
        self.settings, self._positions = settings, None
        if engine == "fbgemm":
            self.settings, self._positions = fast_form(settings, weight.codes.shape)
        self._pack(weight, bias)

    @property
    def _name(self) -> str:
        return f"conv{len(self.settings.stride)}d"

    def _prepack(self, weight: Tensor, bias: Tensor | None) -> Any:
        to = self.settings
        prepack = getattr(torch.ops.quantized, f"{self._name}_prepack")
        return prepack(weight, bias, to.stride, to.padding, to.dilation, to.groups)

    def _unpack(self) -> tuple[Tensor, Tensor | None]:
        weight, bias = getattr(torch.ops.quantized, f"{self._name}_unpack")(self._packed)
        return weight, bias

    def forward(self, codes: Tensor) -> Tensor:
        """Of ``codes``, ``quint8`` of shape [batch, in, *size]; ``quint8`` of shape [batch, out, *size]."""
        if self.settings.before:
            codes = F.pad(codes, self.settings.before)
        suffix = "_relu" if self.output.is_rectified else ""
        kernel = getattr(torch.ops.quantized, self._name + suffix)
        result = kernel(codes, self._packed, self.output.scale, self.output.zero_point)
        return self.clamped(result if self._positions is None else self._positions.of(result))
