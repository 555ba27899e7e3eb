"""Weights become codes: the observer of each is asked, and the module that carries it takes its reference form."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import GraphModule

from fusion_core.nn.fake_quantize import is_per_channel
from fusion_core.passes.edit import copy_module
from fusion_core.passes.record import WeightPlan
from fusion_core.qops import QuantizedTensor, storage_dtype

_ONE_WEIGHT = ("weight",)


def quantize_weight(weight: Tensor, plan: WeightPlan) -> QuantizedTensor:
    """``weight`` rounded to the nearest code at the scale its observer chooses.

    Args:
        weight: Float tensor.
        plan: How it is quantized.

    Returns:
        Codes; of dtype float16, with the scale 1, where that is what the plan's observer asks for.
    """
    observer: Any = plan.observer()
    if observer.dtype is torch.float16:
        return _half(weight)
    observer(weight.detach())
    return _rounded(weight, observer)


def _half(weight: Tensor) -> QuantizedTensor:
    # Beyond the range of float16 there is infinity, which one weight would spread to all outputs.
    largest = torch.finfo(torch.float16).max
    codes = weight.detach().clamp(-largest, largest).to(torch.float16)
    return QuantizedTensor(codes, torch.ones(1), torch.zeros(1, dtype=torch.int32))


def _rounded(weight: Tensor, observer: Any) -> QuantizedTensor:
    scale, zero_point = observer.calculate_qparams()
    has_channels = scale.numel() > 1 or is_per_channel(observer)
    axis = getattr(observer, "ch_axis", None) if has_channels else None
    return QuantizedTensor.from_float(
        weight,
        scale.float(),
        zero_point if zero_point.is_floating_point() else zero_point.to(torch.int32),
        axis=axis,
        quant_min=observer.quant_min,
        quant_max=observer.quant_max,
        dtype=storage_dtype(observer.dtype),
    )


def quantize_module(model: GraphModule, path: str, plan: WeightPlan) -> None:
    """Put the reference form of a weighted module in its place.

    Args:
        model: Its module at ``path`` is replaced; the module itself is left as it is.
        path: Path of the module.
        plan: How its weights are quantized.
    """
    module = model.get_submodule(path)
    weighted = module.get_submodule(plan.part) if plan.part else module
    reference = reference_of(weighted, plan)
    if not plan.part:
        model.add_submodule(path, reference.eval())
        return
    container = copy_module(module)
    container.add_module(plan.part, reference)
    model.add_submodule(path, container.eval())


def reference_of(weighted: nn.Module, plan: WeightPlan) -> nn.Module:
    """The reference form of a module, which is left as it is."""
    weights = quantized_weights(weighted, plan)
    given = weights if hasattr(plan.reference, "weight_names") else weights["weight"]
    reference: nn.Module = plan.reference.from_float(copy_module(weighted), given)
    return reference


def quantized_weights(weighted: nn.Module, plan: WeightPlan) -> dict[str, QuantizedTensor]:
    """The weights of a module by name: those that the plan's reference type has."""
    names = getattr(plan.reference, "weight_names", lambda _: _ONE_WEIGHT)(weighted)
    return {name: quantize_weight(getattr(weighted, name), plan) for name in names}
