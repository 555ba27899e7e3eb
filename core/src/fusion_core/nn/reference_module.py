"""What every reference module is: a float operation on weights that are kept as integer codes."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.utils.parametrize import is_parametrized, remove_parametrizations

from fusion_core.qops import QuantizedTensor


class ReferenceModule(nn.Module):
    """A weighted float module whose weight is quantized.

    The forward is that of the float module, on the dequantized weight; padding modes, groups and
    all other settings are therefore the float module's own. The codes are stored, the float weight
    is not.

    Attributes:
        float_module: The module whose forward runs; its weight is empty.
        codes: Integer tensor in the shape of the weight; or the weight itself in float16.
        weight_scale: Float32 tensor of shape [1] or [channels].
        weight_zero_point: Integer or float32 tensor of the same shape.
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
        bias = getattr(self.float_module, "bias", None)
        return bias if isinstance(bias, Tensor) else None

    def forward(self, input: Tensor, *args: Any, **kwargs: Any) -> Any:  # noqa: A002  torch's name
        """The float module's forward with the dequantized weight."""
        weight = {"weight": self.quantized_weight.dequantize()}
        return functional_call(self.float_module, weight, (input, *args), kwargs)


class MultiReferenceModule(nn.Module):
    """A float module with several weights, all of them quantized.

    A subclass says in :meth:`weight_names` which they are. Each is kept as the buffers
    ``<name>_codes``, ``<name>_scale`` and ``<name>_zero_point``.

    Attributes:
        float_module: The module whose forward runs; its weights are empty.
        axes: For each weight, which of its dimensions is the channel, or None.
    """

    def __init__(self, float_module: nn.Module, weights: Mapping[str, QuantizedTensor]) -> None:
        """Of a copy of ``float_module``, and the quantized form of its weights by name."""
        super().__init__()
        self.float_module = _emptied(float_module, weights)
        self.axes = {name: weight.axis for name, weight in weights.items()}
        for name, weight in weights.items():
            self.register_buffer(f"{name}_codes", weight.codes)
            self.register_buffer(f"{name}_scale", weight.scale)
            self.register_buffer(f"{name}_zero_point", weight.zero_point)

    @staticmethod
    def weight_names(float_module: Any) -> tuple[str, ...]:
        """The names of the parameters of ``float_module`` that are quantized.

        Raises:
            NotImplementedError: The subclass does not say.
        """
        raise NotImplementedError

    @classmethod
    def from_float(
        cls, float_module: nn.Module, weights: Mapping[str, QuantizedTensor]
    ) -> MultiReferenceModule:
        """The reference form of ``float_module``, which is left as it is.

        Args:
            float_module: The float module.
            weights: The quantized form of each parameter that :meth:`weight_names` names.

        Raises:
            ValueError: ``weights`` are those of other names.
        """
        names = cls.weight_names(float_module)
        if set(weights) != set(names):
            msg = (
                f"{cls.__name__} has the weights {', '.join(names)}, and was given "
                f"{', '.join(weights) or 'none'}"
            )
            raise ValueError(msg)
        return cls(float_module, {name: weights[name] for name in names})

    @property
    def quantized_weights(self) -> dict[str, QuantizedTensor]:
        """The weights as codes, scale and zero point, by name."""
        return {
            name: QuantizedTensor(
                getattr(self, f"{name}_codes"),
                getattr(self, f"{name}_scale"),
                getattr(self, f"{name}_zero_point"),
                axis,
            )
            for name, axis in self.axes.items()
        }

    def forward(self, input: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: A002  torch's name
        """The float module's forward with the dequantized weights."""
        weights = {name: each.dequantize() for name, each in self.quantized_weights.items()}
        # Recurrent layers remember the weights of their last call; the copy is dropped with them.
        passing = copy.copy(self.float_module)
        return functional_call(passing, weights, (input, *args), kwargs)


def _emptied(module: nn.Module, names: Iterable[str]) -> nn.Module:
    """A copy of ``module`` with empty tensors in the place of some of its parameters."""
    emptied = copy.deepcopy(module)
    for name in names:
        if is_parametrized(emptied, name):
            remove_parametrizations(emptied, name)
        setattr(emptied, name, nn.Parameter(torch.empty(0), requires_grad=False))
    return emptied
