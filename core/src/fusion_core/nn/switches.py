"""What is switched on and off while a model is trained: ranges, rounding, and the statistics of batch norms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

from torch import nn
from typing_extensions import Self

from fusion_core.nn.fake_quantize import FakeQuantize

AnyModule = TypeVar("AnyModule", bound=nn.Module)


def freeze_observers(model: AnyModule) -> AnyModule:
    """Hold every range of a model where it is; rounding goes on. Returns the model itself."""
    return _switch(model, "observer_enabled", on=False)


def unfreeze_observers(model: AnyModule) -> AnyModule:
    """Let ranges move in training again. Returns the model itself."""
    return _switch(model, "observer_enabled", on=True)


def disable_fake_quantize(model: AnyModule) -> AnyModule:
    """Let all values pass unrounded, so that the model computes in float. Returns the model itself."""
    return _switch(model, "fake_quantize_enabled", on=False)


def enable_fake_quantize(model: AnyModule) -> AnyModule:
    """Round values again. Returns the model itself."""
    return _switch(model, "fake_quantize_enabled", on=True)


def freeze_batch_norm(model: AnyModule) -> AnyModule:
    """Let every batch norm use its running statistics, also in training, and not change them.

    Unlike ``norm.eval()`` it outlasts ``model.train()``. Gamma and beta are trained as before.

    Args:
        model: Any module; also one in ``DistributedDataParallel``.

    Returns:
        The model itself.

    Raises:
        TypeError: Some batch norm is of a subclass of those of ``torch.nn``.
    """
    for path, module in model.named_modules():
        if not isinstance(module, BATCH_NORMS) or isinstance(module, _Frozen):
            continue
        frozen = _FROZEN.get(type(module))
        if frozen is None:
            msg = (
                f"{path or 'the model'} is a {type(module).__name__}; only the batch norms of torch.nn can be "
                "frozen. Override its train() to stay in eval mode"
            )
            raise TypeError(msg)
        _turn_into(module, frozen)
        module.train(mode=False)
    return model


def unfreeze_batch_norm(model: AnyModule) -> AnyModule:
    """Let batch norms follow ``train()`` and ``eval()`` again, beginning with the model's present mode.

    Returns:
        The model itself.
    """
    for module in model.modules():
        if isinstance(module, _Frozen):
            _turn_into(module, _THAWED[type(module)])
            module.train(model.training)
    return model


def is_frozen(module: nn.Module) -> bool:
    """Whether ``module`` is a batch norm that :func:`freeze_batch_norm` has frozen."""
    return isinstance(module, _Frozen)


@contextmanager
def observing(model: nn.Module) -> Iterator[None]:
    """Ranges move within, as they do in training, whatever mode the model is in."""
    stopped = [
        each for each in model.modules() if isinstance(each, FakeQuantize) and not each.training
    ]
    for each in stopped:
        each.training = True
    try:
        yield
    finally:
        for each in stopped:
            each.training = False


def _switch(model: AnyModule, name: str, *, on: bool) -> AnyModule:
    for module in model.modules():
        if isinstance(module, FakeQuantize):
            getattr(module, name).fill_(int(on))
    return model


def _turn_into(module: nn.Module, kind: type[nn.Module]) -> None:
    """Change the type in place, so that optimizers and wrappers keep hold of the module."""
    module.__class__ = kind


class _Frozen(nn.Module):
    """Stays in eval mode."""

    def train(self, mode: bool = True) -> Self:  # noqa: ARG002, FBT001, FBT002  torch's signature
        """Nothing changes, whatever ``mode`` is."""
        return super().train(mode=False)


class FrozenBatchNorm1d(_Frozen, nn.BatchNorm1d):
    """BatchNorm1d that is not trained."""


class FrozenBatchNorm2d(_Frozen, nn.BatchNorm2d):
    """BatchNorm2d that is not trained."""


class FrozenBatchNorm3d(_Frozen, nn.BatchNorm3d):
    """BatchNorm3d that is not trained."""


class FrozenSyncBatchNorm(_Frozen, nn.SyncBatchNorm):
    """SyncBatchNorm that is not trained."""


_FROZEN: Mapping[type[nn.Module], type[nn.Module]] = {
    nn.BatchNorm1d: FrozenBatchNorm1d,
    nn.BatchNorm2d: FrozenBatchNorm2d,
    nn.BatchNorm3d: FrozenBatchNorm3d,
    nn.SyncBatchNorm: FrozenSyncBatchNorm,
}
BATCH_NORMS: tuple[type[nn.Module], ...] = tuple(_FROZEN)
"""Batch norms that can be frozen."""

_THAWED: Mapping[type[nn.Module], type[nn.Module]] = {
    frozen: plain for plain, frozen in _FROZEN.items()
}
