"""Fuser methods that most backends share: folding batch norm, and keeping an activation with its weighted module."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from fusion_core.configs import Skip
from fusion_core.nn import fused
from fusion_core.nn.weighted import plain_type


def fuse_batch_norm(is_qat: bool, weighted: Any, norm: Any) -> nn.Module | Skip:  # noqa: FBT001  the hook's signature
    """Fold a batch norm in eval mode into the convolution or linear layer before it.

    With ``s = gamma / sqrt(running_var + eps)`` per output channel, the weight becomes ``W * s``
    and the bias ``(b - running_mean) * s + beta`` (Jacob et al. 2018, section 3.2). The result
    always has a bias.

    Args:
        is_qat: Whether the model is to be trained; folding is for inference only.
        weighted: The convolution or linear layer; not changed.
        norm: The batch norm.

    Returns:
        A folded copy of ``weighted``, or why it cannot be folded.
    """
    if is_qat:
        return Skip("folding batch norm for training needs a QAT module")
    if norm.training:
        return Skip("the batch norm is in training mode")
    if norm.running_mean is None or norm.running_var is None:
        return Skip("the batch norm keeps no running statistics")
    channels = output_channels(weighted)
    if norm.num_features != channels:
        return Skip(
            f"the batch norm has {norm.num_features} channels, the layer before it {channels}"
        )
    folded: nn.Module = copy.deepcopy(weighted)
    weight, bias = folded_parameters(weighted, norm)
    folded.weight = nn.Parameter(weight, requires_grad=weighted.weight.requires_grad)
    folded.bias = nn.Parameter(bias, requires_grad=weighted.weight.requires_grad)
    return folded


@torch.no_grad()
def folded_parameters(weighted: Any, norm: Any) -> tuple[Tensor, Tensor]:
    """Weight and bias of a layer with the batch norm behind it folded in.

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
    folded_weight = weight.double() * _along_weight(scale, weighted)
    return folded_weight.to(weight.dtype), folded_bias.to(weight.dtype)


def output_channels(weighted: Any) -> int:
    """How many channels a convolution, transposed or not, or a linear layer gives."""
    weight = weighted.weight
    if _is_transposed(weighted):
        return int(weight.shape[1] * weighted.groups)
    return int(weight.shape[0])


def _is_transposed(weighted: Any) -> bool:
    """Whether the weight is of shape [in, out / groups, ...] and not [out, in / groups, ...]."""
    return bool(getattr(weighted, "transposed", False))


def _along_weight(scale: Tensor, weighted: Any) -> Tensor:
    """A value per output channel, in a shape that multiplies the weight of ``weighted``."""
    rows = scale.unsqueeze(1)
    if _is_transposed(weighted):
        # The inputs of one group share a row, which holds the outputs of that group alone.
        by_group = scale.view(weighted.groups, -1)
        rows = by_group.repeat_interleave(weighted.weight.shape[0] // weighted.groups, dim=0)
    return rows.view(*rows.shape, *[1] * (weighted.weight.dim() - 2))


def fuse_activation(is_qat: bool, weighted: nn.Module, activation: Any) -> nn.Module | Skip:  # noqa: FBT001, ARG001
    """Keep an activation with the weighted module before it, so that it owns the output's range.

    Args:
        is_qat: Not used; the same in training.
        weighted: A convolution or linear layer.
        activation: ReLU, or one with a bounded range.

    Returns:
        The fused module, or why the activation cannot be taken.
    """
    kind = plain_type(weighted)
    if isinstance(activation, nn.ReLU):
        return fused.RELU_OF[kind](weighted, activation)
    if isinstance(activation, nn.Hardtanh):
        return fused.HARDTANH_OF[kind](weighted, activation)
    return Skip("the activation has no constant bounds on both sides")


def fuse_batch_norm_activation(
    is_qat: bool,  # noqa: FBT001  the hook's signature
    weighted: Any,
    norm: Any,
    activation: Any,
) -> nn.Module | Skip:
    """Fold the batch norm, then keep the activation; see the two methods for what each does."""
    folded = fuse_batch_norm(is_qat, weighted, norm)
    return folded if isinstance(folded, Skip) else fuse_activation(is_qat, folded, activation)
