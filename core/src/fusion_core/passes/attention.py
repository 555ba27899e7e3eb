"""open_attention: the attention and transformer layers of torch in a form that shows their linear layers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from torch import nn
from torch.fx import GraphModule

from fusion_core.nn import attention, transformer, windows
from fusion_core.passes.private_copy import has_hooks

OPENED: Mapping[type[nn.Module], Callable[[Any], nn.Module]] = {
    nn.MultiheadAttention: attention.MultiheadAttention,
    nn.TransformerEncoderLayer: transformer.TransformerEncoderLayer,
    nn.TransformerDecoderLayer: transformer.TransformerDecoderLayer,
    nn.TransformerEncoder: transformer.TransformerEncoder,
    nn.TransformerDecoder: transformer.TransformerDecoder,
    nn.Transformer: transformer.Transformer,
}
"""What takes the place of a module of each type."""

OPENED_BY_NAME: Mapping[str, Callable[[Any], nn.Module]] = {
    f"torchvision.models.swin_transformer.ShiftedWindowAttention{version}": windows.WindowAttention
    for version in ("", "V2")
}
"""The same for types of a library that need not be installed."""

_NOT_IN_TRAINING = "torchvision.models.swin_transformer.ShiftedWindowAttentionV2"
"""Sets a part of a bias to zero in every step, and computes its position bias with layers."""

STANDS_FOR: Mapping[type[nn.Module], type[nn.Module]] = {
    attention.MultiheadAttention: nn.MultiheadAttention,
    transformer.TransformerEncoderLayer: nn.TransformerEncoderLayer,
    transformer.TransformerDecoderLayer: nn.TransformerDecoderLayer,
    transformer.TransformerEncoder: nn.TransformerEncoder,
    transformer.TransformerDecoder: nn.TransformerDecoder,
    transformer.Transformer: nn.Transformer,
}
"""The type by which a user knows a module of each type."""


def open_attention(
    model: nn.Module, leaf_types: Collection[type[nn.Module]]
) -> tuple[nn.Module, dict[str, str]]:
    """Put modules that FX can trace in the place of torch's attention and transformer layers.

    Subclasses are left alone, for their forward is their own, and so is what carries hooks, which
    would not run.

    Args:
        model: A private copy; changed in place.
        leaf_types: Types that a pattern of the backend names; those are left alone too.

    Returns:
        The model, or what takes its place where it is such a layer itself, and for each layer that was left
        as it is, by path, why.
    """
    opened: dict[int, nn.Module] = {}
    kept: dict[str, str] = {}
    # Children come before what holds them, which takes them over.
    for path, module in reversed(list(model.named_modules(remove_duplicate=False))):
        build = None if type(module) in leaf_types else _build(module)
        if build is not None and has_hooks(module):
            kept[path] = "forward hooks on it, which the linear layers in it would not run"
            build = None
        if build is None:
            _without_nested_tensors(module)
            continue
        if id(module) not in opened:
            opened[id(module)] = build(module)
        if not path:
            return opened[id(module)], kept
        model.set_submodule(path, opened[id(module)], strict=True)
    return model, kept


def known_type(module: nn.Module) -> type[nn.Module]:
    """The type by which the user knows ``module``."""
    if isinstance(module, windows.WindowAttention):
        return module.stands_for
    if isinstance(module, GraphModule):  # each has a class of its own, which cannot be pickled
        return GraphModule
    return STANDS_FOR.get(type(module), type(module))


def _build(module: nn.Module) -> Callable[[Any], nn.Module] | None:
    kind = type(module)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if kind in OPENED or (module.training and name == _NOT_IN_TRAINING):
        return OPENED.get(kind)
    return OPENED_BY_NAME.get(name)


def _without_nested_tensors(module: nn.Module) -> None:
    """Keep an encoder from handing nested tensors to layers that may have changed under it."""
    if isinstance(module, nn.TransformerEncoder):
        module.use_nested_tensor = False
