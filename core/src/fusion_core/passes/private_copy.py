"""A copy of the user's model that the passes may change: plain modules, plain parameters, nothing in place."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize, prune

from fusion_core.errors import TrainingModeError, UnsupportedModelError
from fusion_core.passes.norms import thaw


def private_copy(model: nn.Module, *, qat: bool = False, inplace: bool = False) -> nn.Module:
    """A deep copy of ``model`` whose weights are constants of its own.

    Weight normalisation, pruning and other parametrizations are replaced by the weight they give.
    Subclasses of ``torch.nn`` modules that change nothing but their constructor become the plain
    type.

    Args:
        model: The user's model, in eval mode unless it is to be trained; it is not changed.
        qat: Whether it is to be trained. It may be in training mode then, and frozen batch norms
            become plain ones that remember it.
        inplace: Whether the copy shares parameters and buffers with ``model``.

    Raises:
        TrainingModeError: Some module is in training mode.
        UnsupportedModelError: Some parameter or buffer is of another float type than float32, or
            the model itself has forward hooks, which a graph would not run.
    """
    _check(model, qat=qat)
    memo: dict[int, Any] = {
        id(tensor): tensor.detach().clone() for tensor in _computed_tensors(model)
    }
    if inplace:
        memo.update((id(each), each) for each in (*model.parameters(), *model.buffers()))
    mine = copy.deepcopy(model, memo)
    for module in list(mine.modules()):
        _materialise(module)
    _plain_types(mine)
    if qat:
        thaw(mine)
    for module in mine.modules():
        if getattr(module, "inplace", False) is True:
            vars(module)["inplace"] = False
    return mine


def has_hooks(module: nn.Module) -> bool:
    """Whether something of the user's runs before or after the forward of ``module``."""
    return bool(module._forward_hooks or module._forward_pre_hooks)


def _check(model: nn.Module, *, qat: bool) -> None:
    training = [name for name, module in model.named_modules() if module.training]
    if training and not qat:
        raise TrainingModeError(training)
    if has_hooks(model):
        msg = "the model itself has forward hooks, which the quantized graph would not run; remove them first"
        raise UnsupportedModelError(msg)
    tensors = [*model.named_parameters(), *model.named_buffers()]
    for name, tensor in tensors:
        if tensor.is_floating_point() and tensor.dtype != torch.float32:
            msg = f"{name} is {tensor.dtype}; quantization starts from float32. Call model.float() first"
            raise UnsupportedModelError(msg)


def _computed_tensors(model: nn.Module) -> Iterator[Tensor]:
    """Tensors kept as plain attributes that autograd computed, which cannot be deep-copied."""
    for module in model.modules():
        for value in vars(module).values():
            if isinstance(value, Tensor) and not value.is_leaf:
                yield value


def _materialise(module: nn.Module) -> None:
    """Replace every computed weight of ``module`` by its value."""
    if parametrize.is_parametrized(module):
        # The class that computes the weights is shared with the user's module, so it is left, not changed.
        values = {name: getattr(module, name).detach() for name in module.parametrizations}  # type: ignore[union-attr]  # a ModuleDict, by is_parametrized
        module.__class__ = parametrize.type_before_parametrizations(module)
        del module.parametrizations
        for name, value in values.items():
            module.register_parameter(name, nn.Parameter(value.clone(), requires_grad=False))
    # The older forms of weight norm, spectral norm and pruning are pre-hooks that know their
    # tensor's name.
    for key, hook in list(module._forward_pre_hooks.items()):
        if isinstance(hook, prune.BasePruningMethod):
            prune.remove(module, hook._tensor_name)
        elif type(hook).__module__.startswith("torch.nn.utils."):
            hook(module, ())
            _freeze(module, str(getattr(hook, "name", "weight")))
            del module._forward_pre_hooks[key]


def _freeze(module: nn.Module, name: str) -> None:
    weight = getattr(module, name)
    delattr(module, name)
    for suffix in ("_g", "_v", "_orig"):
        if name + suffix in module._parameters:
            del module._parameters[name + suffix]
    module.register_parameter(name, nn.Parameter(weight.detach().clone(), requires_grad=False))


# What a subclass may define without changing what the module computes.
_HARMLESS = frozenset(
    {
        "__init__",
        "__module__",
        "__doc__",
        "__qualname__",
        "extra_repr",
        "__repr__",
        "__annotations__",
    }
    | {
        "__constants__",
        "__firstlineno__",
        "__static_attributes__",
        "__annotate__",
        "__annotate_func__",
    }
    | {
        "__annotations_cache__",
        "reset_parameters",
        "__parameters__",
        "__orig_bases__",
        "__type_params__",
    }
)


def _plain_types(model: nn.Module) -> None:
    for module in model.modules():
        plain = _plain_type(type(module))
        if plain is not None:
            module.__class__ = plain


def _plain_type(kind: type[nn.Module]) -> type[nn.Module] | None:
    """The ``torch.nn`` type that ``kind`` merely renames, or None."""
    for base in kind.__mro__:
        if base.__module__.startswith("torch.nn.modules") and issubclass(base, nn.Module):
            known = base is not kind and base is not nn.Module
            return base if known and not issubclass(base, nn.Sequential) else None
        if set(vars(base)) - _HARMLESS:
            return None
    return None
