"""Batch norms that patterns shall take for plain ones: synchronized between processes, or frozen."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from fusion_core.nn.switches import freeze_batch_norm, is_frozen, unfreeze_batch_norm

_SYNCHRONIZED = "was_synchronized"
_FROZEN = "was_frozen"
_PLAIN = "plain_type"


def plain_norm(norm: nn.SyncBatchNorm, kind: type[nn.Module]) -> nn.Module:
    """A norm of a plain type that shares the parameters and statistics of a synchronized one.

    Args:
        norm: The norm; not changed.
        kind: The plain type, for values of as many dimensions as the norm is given.
    """
    with torch.device("meta"):
        plain: Any = kind(
            norm.num_features, norm.eps, norm.momentum, norm.affine, norm.track_running_stats
        )
    _take_tensors(plain, norm)
    setattr(plain, _SYNCHRONIZED, True)
    if hasattr(norm, _FROZEN):
        setattr(plain, _FROZEN, True)
    return plain.train(norm.training)  # type: ignore[no-any-return]  # a module, by its type


def thaw(model: nn.Module) -> None:
    """Make frozen batch norms plain; each remembers that it was frozen."""
    for module in model.modules():
        if is_frozen(module):
            unfreeze_batch_norm(module)
            setattr(module, _FROZEN, True)


def restored_norm(module: nn.Module) -> nn.Module | None:
    """What a plain norm was before it was made plain; None for every other module."""
    if not (hasattr(module, _SYNCHRONIZED) or hasattr(module, _FROZEN)):
        return None
    made: Any = module
    if hasattr(module, _SYNCHRONIZED):
        made = nn.SyncBatchNorm(
            *(module.num_features, module.eps, module.momentum),  # type: ignore[arg-type]  # a norm's
            *(bool(module.affine), bool(module.track_running_stats)),
        )
        _take_tensors(made, module)
        setattr(made, _PLAIN, type(module))
        made.train(module.training)
    else:
        made = _alike(module)
    return freeze_batch_norm(made) if hasattr(module, _FROZEN) else made  # type: ignore[no-any-return]  # a norm


def settled_norm(module: nn.Module) -> nn.Module | None:
    """The plain norm in the place of a synchronized one, for inference; None for every other module."""
    kind: Any = getattr(module, _PLAIN, None)
    if not isinstance(module, nn.SyncBatchNorm) or kind is None:
        return None
    return plain_norm(module, kind).eval()


def _alike(norm: nn.Module) -> nn.Module:
    """A norm of the same type that shares parameters and statistics."""
    made: Any = norm
    alike: nn.Module = type(norm)(
        *(made.num_features, made.eps, made.momentum, made.affine, made.track_running_stats)
    )
    _take_tensors(alike, norm)
    return alike.train(norm.training)


def _take_tensors(norm: Any, source: Any) -> None:
    """Give ``norm`` the parameters and buffers of ``source`` themselves."""
    for name, parameter in source.named_parameters(recurse=False):
        norm.register_parameter(name, parameter)
    for name, buffer in source.named_buffers(recurse=False):
        norm.register_buffer(name, buffer)
