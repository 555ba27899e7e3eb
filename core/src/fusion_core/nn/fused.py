"""Float modules that fusing makes: a weighted operation and the activation that owns its output range."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn
from torch.nn.utils.parametrize import type_before_parametrizations


class Activated(nn.Sequential):
    """A weighted module and its activation as one module.

    Attributes:
        weighted_type: Type that the first member must have.
        activation_types: Types the second member may have.
    """

    weighted_type: type[nn.Module] = nn.Module
    activation_types: tuple[type[nn.Module], ...] = (nn.ReLU,)

    def __init__(self, weighted: nn.Module, activation: nn.Module) -> None:
        """Of ``weighted``, or its reference form, and ``activation``.

        Raises:
            TypeError: ``activation`` is not one that this module may hold.
        """
        if type_before_parametrizations(activation) not in self.activation_types:
            allowed = ", ".join(each.__name__ for each in self.activation_types)
            msg = f"{type(self).__name__} holds {allowed}, not {type(activation).__name__}"
            raise TypeError(msg)
        super().__init__(weighted, activation)

    @property
    def weighted(self) -> nn.Module:
        """The weighted member."""
        return self[0]

    @property
    def activation(self) -> nn.Module:
        """The activation."""
        return self[1]

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  the name torch gives it
        """The activation of the weighted operation on ``input``."""
        activated: Tensor = self[1](self[0](input))
        return activated


_BOUNDED = (nn.ReLU6, nn.Hardtanh)


class ConvReLU1d(Activated):
    """Conv1d and ReLU."""

    weighted_type = nn.Conv1d


class ConvReLU2d(Activated):
    """Conv2d and ReLU."""

    weighted_type = nn.Conv2d


class ConvReLU3d(Activated):
    """Conv3d and ReLU."""

    weighted_type = nn.Conv3d


class LinearReLU(Activated):
    """Linear and ReLU."""

    weighted_type = nn.Linear


class ConvHardtanh1d(Activated):
    """Conv1d and an activation with a bounded range: ReLU6, Hardtanh, or a clamp with both bounds."""

    weighted_type = nn.Conv1d
    activation_types = _BOUNDED


class ConvHardtanh2d(Activated):
    """Conv2d and an activation with a bounded range."""

    weighted_type = nn.Conv2d
    activation_types = _BOUNDED


class ConvHardtanh3d(Activated):
    """Conv3d and an activation with a bounded range."""

    weighted_type = nn.Conv3d
    activation_types = _BOUNDED


class LinearHardtanh(Activated):
    """Linear and an activation with a bounded range."""

    weighted_type = nn.Linear
    activation_types = _BOUNDED


class BatchNormReLU2d(Activated):
    """BatchNorm2d and ReLU, where there is no convolution to fold the batch norm into."""

    weighted_type = nn.BatchNorm2d


class BatchNormReLU3d(Activated):
    """BatchNorm3d and ReLU, where there is no convolution to fold the batch norm into."""

    weighted_type = nn.BatchNorm3d


RELU_OF: Mapping[type[nn.Module], type[Activated]] = {
    each.weighted_type: each for each in (ConvReLU1d, ConvReLU2d, ConvReLU3d, LinearReLU)
}
"""The fused module with ReLU, by type of the weighted module."""

HARDTANH_OF: Mapping[type[nn.Module], type[Activated]] = {
    each.weighted_type: each
    for each in (ConvHardtanh1d, ConvHardtanh2d, ConvHardtanh3d, LinearHardtanh)
}
"""The fused module with a bounded activation, by type of the weighted module."""
