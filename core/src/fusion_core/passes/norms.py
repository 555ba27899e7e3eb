"""Batch norms that patterns shall take for plain ones: synchronized between processes, or frozen."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from fusion_core.nn.switches import freeze_batch_norm, is_frozen, unfreeze_batch_norm

_SYNCHRONIZED = "was_synchronized"
_FROZEN = "was_frozen"
_PLAIN = "plain_type"


def plain_norm(
    norm: nn.SyncBatchNorm, kind: type[nn.Module], *, trained: bool = False
) -> nn.Module:
    """A norm of a plain type that shares the parameters and statistics of a synchronized one.

    Args:
        norm: The norm; not changed.
        kind: The plain type, for values of as many dimensions as the norm is given.
        trained: Whether it is to be synchronized again in training.
    """
    with torch.device("meta"):
        plain: Any = kind(
            norm.num_features, norm.eps, norm.momentum, norm.affine, norm.track_running_stats
        )
    _take_tensors(plain, norm)
    if trained:
        setattr(plain, _SYNCHRONIZED, True)
        plain.process_group = norm.process_group
    if was_frozen(norm):
        remember_frozen(plain)
    return plain.train(norm.training)  # type: ignore[no-any-return]  # a module, by its type


def process_groups(model: nn.Module) -> dict[int, Any]:
    """The groups of processes of synchronized norms, by id: what ``deepcopy`` cannot copy, and need not."""
    held = (getattr(module, "process_group", None) for module in model.modules())
    return {id(group): group for group in held if group is not None}


def thaw(model: nn.Module) -> None:
    """Make frozen batch norms plain; each remembers that it was frozen."""
    for module in model.modules():
        if is_frozen(module):
            unfreeze_batch_norm(module)
            remember_frozen(module)


def remember_frozen(norm: nn.Module) -> None:
    """Have a plain norm frozen in training."""
    setattr(norm, _FROZEN, True)


def was_frozen(module: nn.Module) -> bool:
    """Whether ``module`` is a plain norm that will be frozen in training."""
    return hasattr(module, _FROZEN)


def restored_norm(module: nn.Module) -> nn.Module | None:
    """What a plain norm was before it was made plain; None for every other module."""
    if not (hasattr(module, _SYNCHRONIZED) or was_frozen(module)):
        return None
    made: Any = module
    if hasattr(module, _SYNCHRONIZED):
        made = nn.SyncBatchNorm(
            *(module.num_features, module.eps, module.momentum),  # type: ignore[arg-type]  # a norm's
            *(bool(module.affine), bool(module.track_running_stats)),
            process_group=getattr(module, "process_group", None),
        )
        _take_tensors(made, module)
        setattr(made, _PLAIN, type(module))
        made.train(module.training)
    else:
        made = _alike(module)
    return freeze_batch_norm(made) if was_frozen(module) else made  # type: ignore[no-any-return]  # a norm


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
