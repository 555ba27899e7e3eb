"""Fuser methods that most backends share: folding batch norm, and keeping an activation with its weighted module."""

from __future__ import annotations

from typing import Any

from torch import nn

from fusion_core.configs import Skip
from fusion_core.nn import fused, normed
from fusion_core.nn.weighted import operator_type, plain_type


def fuse_batch_norm(is_qat: bool, weighted: Any, norm: Any) -> nn.Module | Skip:  # noqa: FBT001  the hook's signature
    """Fold a batch norm into the convolution or linear layer before it; in training, keep both as one module.

    With ``s = gamma / sqrt(running_var + eps)`` per output channel, the weight becomes ``W * s``
    and the bias ``(b - running_mean) * s + beta`` (Jacob et al. 2018, section 3.2). The folded
    layer always has a bias.

    Args:
        is_qat: Whether the model is to be trained; then the batch norm may be in training mode.
        weighted: The convolution, transposed or not, or the linear layer; not changed.
        norm: The batch norm.

    Returns:
        A folded copy of ``weighted``; in training one of :mod:`fusion_core.nn.normed`, which holds the two
        themselves; or why neither can be.
    """
    if norm.training and not is_qat:
        return Skip("the batch norm is in training mode")
    if norm.running_mean is None or norm.running_var is None:
        return Skip("the batch norm keeps no running statistics")
    channels = normed.output_channels(weighted)
    if norm.num_features != channels:
        return Skip(
            f"the batch norm has {norm.num_features} channels, the layer before it {channels}"
        )
    if is_qat:
        both = normed.NORMED_OF.get(plain_type(weighted))
        if both is None:
            return Skip(f"a {type(weighted).__name__} cannot be trained with its batch norm")
        return both(weighted, norm)
    return normed.folded(weighted, norm)


def fuse_activation(is_qat: bool, weighted: nn.Module, activation: Any) -> nn.Module | Skip:  # noqa: FBT001, ARG001
    """Keep an activation with the weighted module before it, so that it owns the output's range.

    Args:
        is_qat: Not used; the same in training.
        weighted: A convolution or linear layer; in training also one with its batch norm.
        activation: ReLU, or one with a bounded range.

    Returns:
        The fused module, or why the activation cannot be taken.
    """
    kind = operator_type(weighted)
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
    """Take up the batch norm, then keep the activation; see the two methods for what each does."""
    folded = fuse_batch_norm(is_qat, weighted, norm)
    return folded if isinstance(folded, Skip) else fuse_activation(is_qat, folded, activation)
