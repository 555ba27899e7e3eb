"""Modules whose weight is packed for one of PyTorch's quantized engines."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import astuple
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  the name everyone knows it by
from torch import Tensor

from fusion_core.kernels.codes import OutputCodes
from fusion_core.kernels.depthwise import fast_form
from fusion_core.kernels.engine import native_weight, plain_weight, quantized_engine
from fusion_core.kernels.facts import engine_named
from fusion_core.kernels.geometry import ConvSettings
from fusion_core.kernels.modules import KernelModule
from fusion_core.kernels.two_rows import right_form
from fusion_core.qops import QuantizedTensor

_REBUILT = {"_packed", "_kept"}


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
        plain = native_weight(weight), None if bias is None else bias.detach()
        with quantized_engine(self.engine):
            self._packed = self._prepack(*plain)
        self._kept = None if self._can_unpack else plain

    @property
    def _can_unpack(self) -> bool:
        """Whether the engine gives back what it packed; else it is kept beside."""
        return True

    def _plain(self) -> tuple[Tensor, Tensor | None]:
        return self._unpack() if self._kept is None else self._kept

    @abstractmethod
    def _prepack(self, weight: Tensor, bias: Tensor | None) -> Any:
        """Weight and bias as the engine keeps them."""

    @abstractmethod
    def _unpack(self) -> tuple[Tensor, Tensor | None]:
        """The inverse of :meth:`_prepack`."""

    @property
    def weight(self) -> QuantizedTensor:
        """The weight as codes, scale and zero point."""
        return plain_weight(self._plain()[0])

    @property
    def bias(self) -> Tensor | None:
        """The float bias, or None."""
        return self._plain()[1]

    def get_extra_state(self) -> dict[str, Any]:
        """Weight and bias in plain tensors, and the output's codes, for ``state_dict``."""
        weight = self.weight
        return {
            "codes": weight.codes,
            "scale": weight.scale,
            "zero_point": weight.zero_point,
            "axis": weight.axis,
            "bias": self.bias,
            "output": astuple(self.output),
        }

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Pack what :meth:`get_extra_state` gave.

        Raises:
            ValueError: It is of a kernel with another scale, zero point or codes, as another
                calibration gives them. The graph holds those of all operations, and a state none.
        """
        saved = OutputCodes(*state["output"])
        if saved != self.output:
            msg = (
                f"the state is of a model that was calibrated otherwise: {saved}, not {self.output}. "
                "Load it into the model it is of, or save and load the whole model"
            )
            raise ValueError(msg)
        weight = QuantizedTensor(state["codes"], state["scale"], state["zero_point"], state["axis"])
        self._pack(weight, state["bias"])

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the packed weight, and that in plain form."""
        return {
            **{key: self.__dict__[key] for key in self.__dict__ if key not in _REBUILT},
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


class PackedSpatial(PackedModule):
    """Base of convolutions: the names and the geometry of the kernel.

    Attributes:
        settings: Its geometry, as it is packed.
    """

    kind = ""
    settings: ConvSettings

    @property
    def _name(self) -> str:
        return f"{self.kind}{len(self.settings.stride)}d"

    @property
    def _can_unpack(self) -> bool:
        return len(self.settings.stride) in engine_named(self.engine).unpacked

    def _prepack(self, weight: Tensor, bias: Tensor | None) -> Any:
        prepack = getattr(torch.ops.quantized, f"{self._name}_prepack")
        return prepack(weight, bias, *self._geometry())

    def _unpack(self) -> tuple[Tensor, Tensor | None]:
        weight, bias = getattr(torch.ops.quantized, f"{self._name}_unpack")(self._packed)
        return weight, bias

    def _geometry(self) -> tuple[Any, ...]:
        """What packing takes besides weight and bias."""
        to = self.settings
        return to.stride, to.padding, to.dilation, to.groups


class PackedConv(PackedSpatial):
    """Convolution in 1, 2 or 3 dimensions, with ReLU where the output is rectified."""

    kind = "conv"

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
        if engine_named(engine).fast_depthwise:
            self.settings, self._positions = fast_form(settings, weight.codes.shape)
        self._pack(weight, bias)

    def forward(self, codes: Tensor) -> Tensor:
        """Of ``codes``, ``quint8`` of shape [batch, in, *size]; ``quint8`` of shape [batch, out, *size]."""
        if self.settings.before:
            codes = F.pad(codes, self.settings.before)
        suffix = "_relu" if self.output.is_rectified else ""
        kernel = getattr(torch.ops.quantized, self._name + suffix)
        result = kernel(codes, self._packed, self.output.scale, self.output.zero_point)
        return self.clamped(result if self._positions is None else self._positions.of(result))


class PackedConvTranspose(PackedSpatial):
    """Transposed convolution in 1 or 2 dimensions; ``padding`` is that of the convolution it is the transpose of.

    Attributes:
        output_padding: What it makes the output larger by, at the end of each dimension.
    """

    kind = "conv_transpose"

    def __init__(
        self,
        engine: str,
        weight: QuantizedTensor,
        bias: Tensor | None,
        output: OutputCodes,
        settings: ConvSettings,
        *,
        output_padding: tuple[int, ...],
    ) -> None:
        """Pack ``weight``, codes of shape [in, out / groups, *kernel], for ``engine``."""
        super().__init__(engine, output)
        self.settings, self.output_padding = settings, output_padding
        if not engine_named(engine).two_rows:
            self.settings, weight = right_form(settings, weight)
        self._pack(weight, bias)

    def forward(self, codes: Tensor) -> Tensor:
        """Of ``codes``, ``quint8`` of shape [batch, in, *size]; ``quint8`` of shape [batch, out, *size]."""
        kernel = getattr(torch.ops.quantized, self._name)
        return self.clamped(kernel(codes, self._packed, self.output.scale, self.output.zero_point))

    def _geometry(self) -> tuple[Any, ...]:
        stride, padding, dilation, groups = super()._geometry()
        return stride, padding, self.output_padding, dilation, groups
