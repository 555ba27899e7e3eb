"""Which part of a module carries the weight, and what takes its place in a reference model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from torch import nn
from torch.nn.utils.parametrize import type_before_parametrizations

from fusion_core.nn.normed import Normed
from fusion_core.nn.reference import REFERENCE_OF


class _HasReference(Protocol):
    root_module: type[nn.Module] | None
    reference_quantized_module: type[nn.Module] | None


def weighted_part(module: nn.Module, config: _HasReference) -> tuple[str, Any] | None:
    """Where in ``module`` the weight sits and the type of its reference form.

    A module is its own weighted part where its exact type has a reference form; otherwise its first
    child is, as in fused modules, which hold the weighted module first.

    Args:
        module: A module of the fused graph.
        config: May name a reference form of its own for a type.

    Returns:
        The child's name (empty for the module itself) and the reference type, or None without a
        weight.
    """
    known: Mapping[type[nn.Module], Any] = REFERENCE_OF
    if config.root_module is not None and config.reference_quantized_module is not None:
        known = {**known, config.root_module: config.reference_quantized_module}
    kind = operator_type(module)
    if kind in known:
        return "", known[kind]
    name, child = next(module.named_children(), ("", None))
    if child is not None and operator_type(child) in known:
        return name, known[operator_type(child)]
    return None


def operator_type(module: nn.Module) -> type[nn.Module]:
    """What patterns take ``module`` for: its type; with its batch norm for training, the layer's."""
    kind = plain_type(module)
    return kind.weighted_type if issubclass(kind, Normed) else kind


def plain_type(module: nn.Module) -> type[nn.Module]:
    """The type of ``module``, seen through parametrizations."""
    kind: type[nn.Module] = type_before_parametrizations(module)
    return kind
