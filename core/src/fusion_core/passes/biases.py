"""Biases in the precision that the qconfig promises: 32-bit multiples of the product's scale, or float16."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import GraphModule, Node

from fusion_core.nn.reference import ReferenceModule
from fusion_core.passes.edit import copy_module
from fusion_core.passes.record import WeightPlan
from fusion_core.qops import dequantize_per_tensor

_INT32 = {torch.qint32, torch.int32}
_LIMITS = torch.iinfo(torch.int32)


def round_biases(model: GraphModule, plans: dict[str, WeightPlan]) -> None:
    """Round the bias of every weighted module whose plan says so.

    An int32 bias is a multiple of ``input scale * weight scale``, which is what a kernel adds to
    its 32-bit sums (Jacob et al. 2018, section 2.4).

    Args:
        model: A reference model; the modules are replaced, not changed.
        plans: How each weight is quantized, by the module's path.
    """
    for node in model.graph.nodes:
        plan = plans.get(str(node.target)) if node.op == "call_module" else None
        if plan is not None and plan.bias is not None:
            _round(model, node, plan)


def _round(model: GraphModule, node: Node, plan: WeightPlan) -> None:
    path = str(node.target)
    module = copy_module(model.get_submodule(path))
    layer: Any = module.get_submodule(plan.part) if plan.part else module
    if not isinstance(layer, ReferenceModule) or layer.bias is None:
        return
    rounded = _rounded(layer, layer.bias.detach(), node, plan)
    if rounded is None:
        return
    layer = copy_module(layer)
    layer.float_module = copy_module(layer.float_module)
    layer.float_module.bias = nn.Parameter(rounded, requires_grad=False)
    if plan.part:
        module.add_module(plan.part, layer)
    model.add_submodule(path, module if plan.part else layer)


def _rounded(layer: ReferenceModule, bias: Tensor, node: Node, plan: WeightPlan) -> Tensor | None:
    if plan.bias is torch.float16:
        return bias.to(torch.float16).float()
    source = node.all_input_nodes[0]
    if plan.bias not in _INT32 or source.target is not dequantize_per_tensor:
        return None
    step = float(source.args[1]) * layer.weight_scale.double()  # type: ignore[arg-type]  # a constant
    codes = torch.round(bias.double() / step).clamp(_LIMITS.min, _LIMITS.max)
    return (codes * step).to(bias.dtype)
