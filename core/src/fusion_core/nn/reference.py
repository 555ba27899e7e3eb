"""Reference modules: a float operation on a weight that is kept as integer codes. They run anywhere."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fusion_core.qops import QuantizedTensor


class ReferenceModule(nn.Module):
    """A weighted float module whose weight is quantized.

    The forward is that of the float module, on the dequantized weight; padding modes, groups and
    all other settings are therefore the float module's own. The codes are stored, the float weight
    is not.

    Attributes:
        float_module: The module whose forward runs; its weight is empty.
        codes: Integer tensor in the shape of the weight.
        weight_scale: Float32 tensor of shape [1] or [channels].
        weight_zero_point: Integer tensor of the same shape.
        axis: Which dimension of the weight is the channel, or None.
    """

    codes: Tensor
    weight_scale: Tensor
    weight_zero_point: Tensor

    def __init__(self, float_module: nn.Module, weight: QuantizedTensor) -> None:
        """Of ``float_module``, which is taken over, and the quantized form of its ``weight``."""
        super().__init__()
        float_module.weight = nn.Parameter(torch.empty(0), requires_grad=False)
        self.float_module = float_module
        self.register_buffer("codes", weight.codes)
        self.register_buffer("weight_scale", weight.scale)
        self.register_buffer("weight_zero_point", weight.zero_point)
        self.axis = weight.axis

    @classmethod
    def from_float(cls, float_module: nn.Module, weight: QuantizedTensor) -> ReferenceModule:
        """The reference form of ``float_module``, which must be a copy that nobody else uses."""
        return cls(float_module, weight)

    @property
    def quantized_weight(self) -> QuantizedTensor:
        """The weight as codes, scale and zero point."""
        return QuantizedTensor(self.codes, self.weight_scale, self.weight_zero_point, self.axis)

    @property
    def bias(self) -> Tensor | None:
        """The float bias, or None."""
        bias = self.float_module.bias
        return bias if isinstance(bias, Tensor) else None

    def forward(self, input: Tensor, *args: Any, **kwargs: Any) -> Any:  # noqa: A002  torch's name
        """The float module's forward with the dequantized weight."""
        weight = {"weight": self.quantized_weight.dequantize()}
        return functional_call(self.float_module, weight, (input, *args), kwargs)


class Linear(ReferenceModule):
    """Reference form of ``nn.Linear``."""


class Conv1d(ReferenceModule):
    """Reference form of ``nn.Conv1d``."""


class Conv2d(ReferenceModule):
    """Reference form of ``nn.Conv2d``."""


class Conv3d(ReferenceModule):
    """Reference form of ``nn.Conv3d``."""


class ConvTranspose1d(ReferenceModule):
    """Reference form of ``nn.ConvTranspose1d``."""


class ConvTranspose2d(ReferenceModule):
    """Reference form of ``nn.ConvTranspose2d``."""


class ConvTranspose3d(ReferenceModule):
    """Reference form of ``nn.ConvTranspose3d``."""


REFERENCE_OF: dict[type[nn.Module], type[ReferenceModule]] = {
    nn.Linear: Linear,
    nn.Conv1d: Conv1d,
    nn.Conv2d: Conv2d,
    nn.Conv3d: Conv3d,
    nn.ConvTranspose1d: ConvTranspose1d,
    nn.ConvTranspose2d: ConvTranspose2d,
    nn.ConvTranspose3d: ConvTranspose3d,
}
"""The reference module of each float module."""
