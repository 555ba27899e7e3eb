"""A weighted layer and the batch norm behind it: as one module for training, and folded for inference."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn


class Normed(nn.Sequential):
    """A weighted layer and its batch norm, which stays a module of its own while the model is trained.

    Patterns take it for the layer alone, which it becomes when the batch norm is folded. Settings of
    the layer can be read from it, for the same reason.

    Attributes:
        weighted_type: Type of the first member.
    """

    weighted_type: type[nn.Module] = nn.Module

    def __init__(self, weighted: nn.Module, norm: nn.Module) -> None:
        """Of ``weighted`` and ``norm``, which are taken over and not copied."""
        super().__init__(weighted, norm)

    def __getattr__(self, name: str) -> Any:
        """What the container does not have, the layer may."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            layer = (self.__dict__.get("_modules") or {}).get("0")
            if layer is None:  # while it is built, copied or unpickled
                raise
            return getattr(layer, name)

    def folded(self) -> nn.Module:
        """The layer with the batch norm folded in; a module of its own."""
        return folded(self[0], self[1])


class ConvBn1d(Normed):
    """Conv1d and BatchNorm1d."""

    weighted_type = nn.Conv1d


class ConvBn2d(Normed):
    """Conv2d and BatchNorm2d."""

    weighted_type = nn.Conv2d


class ConvBn3d(Normed):
    """Conv3d and BatchNorm3d."""

    weighted_type = nn.Conv3d


class ConvTransposeBn1d(Normed):
    """ConvTranspose1d and BatchNorm1d."""

    weighted_type = nn.ConvTranspose1d


class ConvTransposeBn2d(Normed):
    """ConvTranspose2d and BatchNorm2d."""

    weighted_type = nn.ConvTranspose2d


class ConvTransposeBn3d(Normed):
    """ConvTranspose3d and BatchNorm3d."""

    weighted_type = nn.ConvTranspose3d


class LinearBn1d(Normed):
    """Linear and BatchNorm1d."""

    weighted_type = nn.Linear


NORMED_OF: Mapping[type[nn.Module], type[Normed]] = {
    each.weighted_type: each
    for each in (
        *(ConvBn1d, ConvBn2d, ConvBn3d, LinearBn1d),
        *(ConvTransposeBn1d, ConvTransposeBn2d, ConvTransposeBn3d),
    )
}
"""The module with batch norm, by type of the weighted layer."""


def folded(weighted: Any, norm: Any) -> nn.Module:
    """A copy of ``weighted`` that does what both do; it always has a bias.

    Args:
        weighted: A convolution, transposed or not, or a linear layer; not changed.
        norm: Batch norm over its output channels with running statistics.
    """
    made: nn.Module = copy.deepcopy(weighted)
    weight, bias = folded_parameters(weighted, norm)
    made.weight = nn.Parameter(weight, requires_grad=weighted.weight.requires_grad)
    made.bias = nn.Parameter(bias, requires_grad=weighted.weight.requires_grad)
    return made


@torch.no_grad()
def folded_parameters(weighted: Any, norm: Any) -> tuple[Tensor, Tensor]:
    """Weight and bias of a layer with the batch norm behind it folded in.

    With ``s = gamma / sqrt(running_var + eps)`` per output channel, the weight becomes ``W * s``
    and the bias ``(b - running_mean) * s + beta`` (Jacob et al. 2018, section 3.2).

    Args:
        weighted: A convolution, transposed or not, or a linear layer.
        norm: Batch norm over its output channels with running statistics.

    Returns:
        Weight and bias in the layout of the layer, computed in float64 and returned in the weight's
        dtype.
    """
    weight, bias = weighted.weight, weighted.bias
    scale = torch.rsqrt(norm.running_var.double() + norm.eps)
    if norm.weight is not None:
        scale = scale * norm.weight.double()
    shift = (0.0 if bias is None else bias.double()) - norm.running_mean.double()
    folded_bias = shift * scale + (0.0 if norm.bias is None else norm.bias.double())
    folded_weight = weight.double() * along_weight(scale, weighted)
    return folded_weight.to(weight.dtype), folded_bias.to(weight.dtype)


def output_channels(weighted: Any) -> int:
    """How many channels a convolution, transposed or not, or a linear layer gives."""
    weight = weighted.weight
    if _is_transposed(weighted):
        return int(weight.shape[1] * weighted.groups)
    return int(weight.shape[0])


def along_weight(values: Tensor, weighted: Any) -> Tensor:
    """One value per output channel, in a shape that multiplies the weight of ``weighted``.

    Args:
        values: Of shape [output channels].
        weighted: A convolution, transposed or not, or a linear layer.
    """
    rows = values.unsqueeze(1)
    if _is_transposed(weighted):
        # The inputs of one group share a row, which holds the outputs of that group alone.
        by_group = values.view(weighted.groups, -1)
        rows = by_group.repeat_interleave(weighted.weight.shape[0] // weighted.groups, dim=0)
    return rows.view(*rows.shape, *[1] * (weighted.weight.dim() - 2))


def _is_transposed(weighted: Any) -> bool:
    """Whether the weight is of shape [in, out / groups, ...] and not [out, in / groups, ...]."""
    return bool(getattr(weighted, "transposed", False))
