"""A copy of the user's model that the passes may change: plain modules, plain parameters, nothing in place."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize, prune

from fusion_core.errors import TrainingModeError, UnsupportedModelError, first_few
from fusion_core.passes.edit import evaluating
from fusion_core.passes.norms import process_groups, thaw

_WRAPPERS = (nn.DataParallel, nn.parallel.DistributedDataParallel)


def private_copy(model: nn.Module, *, qat: bool = False, inplace: bool = False) -> nn.Module:
    """A deep copy of ``model`` whose weights are constants of its own.

    Weight normalisation, pruning and other parametrizations are replaced by the weight they give, which
    is trained if anything was that it is computed from.
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
            the model itself has forward hooks, which a graph would not run, or was scripted or exported.
            Or it is to be trained and has pruned weights, or shares parameters in place and has weights
            that are computed or attention layers, whose projections are cut apart.
    """
    _check(model, qat=qat)
    if qat:
        _check_trainable(model, inplace=inplace)
    memo: dict[int, Any] = {
        id(tensor): tensor.detach().clone() for tensor in _computed_tensors(model)
    }
    memo.update(process_groups(model))
    if inplace:
        memo.update((id(each), each) for each in (*model.parameters(), *model.buffers()))
    mine = copy.deepcopy(model, memo)
    with evaluating(mine):  # the spectral norm of torch moves in training
        for module in list(mine.modules()):
            _materialise(module)
    _plain_types(mine)
    if qat:
        thaw(mine)
    for module in mine.modules():
        if getattr(module, "inplace", False) is True:
            vars(module)["inplace"] = False
    return mine


def computed_weights(model: nn.Module) -> dict[str, str]:
    """What computes weights of ``model`` before they are used, by the paths of the weights."""
    return {
        f"{path}.{name}" if path else name: by
        for path, module in model.named_modules()
        for name, by in _computed(module)
    }


def _computed(module: nn.Module) -> Iterator[tuple[str, str]]:
    if parametrize.is_parametrized(module):
        chains: Any = module.parametrizations
        for name, chain in chains.items():
            yield name, " and ".join(type(each).__name__.strip("_") for each in chain)
    for hook in module._forward_pre_hooks.values():
        name = _tensor_of(hook)
        if name is not None:
            yield name, type(hook).__name__


def _tensor_of(hook: Any) -> str | None:
    """The tensor that a pre-hook of torch computes, or None for other hooks."""
    if isinstance(hook, prune.BasePruningMethod):
        return str(hook._tensor_name)
    is_torchs = type(hook).__module__.startswith("torch.nn.utils.")
    return str(getattr(hook, "name", "weight")) if is_torchs else None


def has_hooks(module: nn.Module) -> bool:
    """Whether something of the user's runs before or after the forward of ``module``."""
    return bool(module._forward_hooks or module._forward_pre_hooks)


def _check(model: nn.Module, *, qat: bool) -> None:
    if isinstance(model, torch.jit.ScriptModule) or "eval" in vars(model):
        made_by = "torch.jit" if isinstance(model, torch.jit.ScriptModule) else "torch.export"
        msg = (
            f"the model was made by {made_by}, and its layers are no modules of torch.nn any more; give the "
            "model that it was made from"
        )
        raise UnsupportedModelError(msg)
    training = [name for name, module in model.named_modules() if module.training]
    if training and not qat:
        raise TrainingModeError(training)
    if has_hooks(model):
        msg = "the model itself has forward hooks, which the quantized graph would not run; remove them first"
        raise UnsupportedModelError(msg)
    if isinstance(model, _WRAPPERS) or type(model).__name__ == "OptimizedModule":
        msg = (
            f"the model is wrapped in {type(model).__name__}, which computes nothing itself; give the module in "
            "it, which is model.module, or what torch.compile was given"
        )
        raise UnsupportedModelError(msg)
    tensors = [*model.named_parameters(), *model.named_buffers()]
    for name, tensor in tensors:
        if tensor.is_floating_point() and tensor.dtype != torch.float32:
            msg = f"{name} is {tensor.dtype}; quantization starts from float32. Call model.float() first"
            raise UnsupportedModelError(msg)


def _check_trainable(model: nn.Module, *, inplace: bool) -> None:
    pruned = [
        name
        for path, module in model.named_modules()
        for hook in module._forward_pre_hooks.values()
        if isinstance(hook, prune.BasePruningMethod)
        for name in [f"{path}.{hook._tensor_name}".lstrip(".")]
        if not getattr(module, f"{hook._tensor_name}_mask").all()
    ]
    if pruned:
        msg = (
            f"pruned weights would not keep their zeros in training: {first_few(pruned)}. Train with the pruning "
            "first and quantize then; or call torch.nn.utils.prune.remove on them, and they are trained without it"
        )
        raise UnsupportedModelError(msg)
    if not inplace:
        return
    computed = computed_weights(model)
    if computed:
        msg = (
            f"inplace=True cannot share weights that are computed: {first_few(computed)}. Make them parameters with "
            "torch.nn.utils.parametrize.remove_parametrizations, remove_weight_norm or remove_spectral_norm, or "
            "leave inplace out and make the optimizer afterwards"
        )
        raise UnsupportedModelError(msg)
    packed = [
        path or "the model"
        for path, module in model.named_modules()
        if type(module) is nn.MultiheadAttention and module.in_proj_weight is not None
    ]
    if packed:
        msg = (
            f"inplace=True cannot share the projections of {first_few(packed)}, which are one parameter and are "
            "quantized one by one; leave inplace out and make the optimizer afterwards"
        )
        raise UnsupportedModelError(msg)


def _computed_tensors(model: nn.Module) -> Iterator[Tensor]:
    """Tensors kept as plain attributes that autograd computed, which cannot be deep-copied."""
    for module in model.modules():
        for value in vars(module).values():
            # Recurrent layers keep theirs in a list.
            for each in value if isinstance(value, list) else (value,):
                if isinstance(each, Tensor) and not each.is_leaf:
                    yield each


def _materialise(module: nn.Module) -> None:
    """Replace every computed weight of ``module`` by its value."""
    if parametrize.is_parametrized(module):
        # The class that computes the weights is shared with the user's module, so it is left, not changed.
        chains: Any = module.parametrizations
        values = {name: _trained_like(getattr(module, name), chains[name]) for name in chains}
        module.__class__ = parametrize.type_before_parametrizations(module)
        del module.parametrizations
        for name, value in values.items():
            setattr(module, name, value)  # recurrent layers keep a list of their own, and see this
    # The older forms of weight norm, spectral norm and pruning are pre-hooks that know their
    # tensor's name.
    for key, hook in list(module._forward_pre_hooks.items()):
        if isinstance(hook, prune.BasePruningMethod):
            prune.remove(module, hook._tensor_name)
        elif (name := _tensor_of(hook)) is not None:
            hook(module, ())
            _keep(module, name)
            del module._forward_pre_hooks[key]


def _keep(module: nn.Module, name: str) -> None:
    """Make a parameter of a tensor that a hook has computed."""
    weight = getattr(module, name)
    delattr(module, name)
    sources = (module._parameters.pop(name + suffix, None) for suffix in ("_g", "_v", "_orig"))
    trained = [each for each in sources if each is not None]
    setattr(module, name, _trained_like(weight, nn.ParameterList(trained)))


def _trained_like(value: Tensor, sources: nn.Module) -> nn.Parameter:
    trained = any(each.requires_grad for each in sources.parameters())
    return nn.Parameter(value.detach().clone(), requires_grad=trained)


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
