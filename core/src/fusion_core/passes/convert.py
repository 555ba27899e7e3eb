"""convert: a calibrated model becomes a reference model of integers that runs anywhere."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from fusion_core.errors import CalibrationError, first_few
from fusion_core.ledger import Status
from fusion_core.passes.edit import copy_model, copy_module, finish
from fusion_core.passes.record import PassRecord, Stage, WeightPlan, advance, record_of
from fusion_core.qops import (
    QuantizedTensor,
    dequantize_per_tensor,
    quantize_per_tensor,
    storage_dtype,
)


def convert(model: GraphModule) -> GraphModule:
    """Replace observers by quantize and dequantize, and weighted modules by their reference form.

    Every quantized value has one ``quantize`` and, for each place that it is read in, one
    ``dequantize``; ``x + x`` reads in two places.

    Args:
        model: What :func:`calibrate` returned. It is not changed, and can be converted again.

    Returns:
        A new GraphModule, the reference model.

    Raises:
        CalibrationError: The model was not calibrated, or some observer gives no finite parameters;
            names it.
        ModelStateError: ``model`` has not been prepared.
    """
    record = record_of(model, Stage.PREPARED, "convert")
    _check_calibrated(model, record)
    converted = copy_model(model)
    mine = advance(converted, record, Stage.CONVERTED)
    for path, plan in record.weights.items():
        _quantize_weight(converted, path, plan)
    observers = set(record.observers)
    for node in list(converted.graph.nodes):
        if node.op == "call_module" and node.target in observers:
            _replace_observer(converted, node)
    mine.observers = ()
    for line in mine.ledger:
        if line.pattern is not None:
            line.status = Status.REFERENCE
    return finish(converted)


def _check_calibrated(model: GraphModule, record: PassRecord) -> None:
    if record.stage >= Stage.CALIBRATED:
        return
    unseen = []
    for path in record.observers:
        observer = model.get_submodule(path)
        if not _has_seen_data(observer):
            unseen.append(str(getattr(observer, "label", "") or path))
    if unseen:
        listed = first_few(unseen)
        msg = f"the model has not been calibrated at {listed}; run calibrate(model, data) before convert"
        raise CalibrationError(msg)


def _has_seen_data(observer: Any) -> bool:
    """Whether an observer recorded anything; PyTorch's say so by a range that is not inside out."""
    observed = getattr(observer, "observed", None)
    low, high = getattr(observer, "min_val", None), getattr(observer, "max_val", None)
    if observed is not None or not isinstance(low, Tensor) or not isinstance(high, Tensor):
        return observed is not False
    return low.numel() > 0 and bool((low <= high).all())


def quantize_weight(weight: Tensor, plan: WeightPlan) -> QuantizedTensor:
    """``weight`` rounded to the nearest code at the scale its observer chooses.

    Args:
        weight: Float tensor.
        plan: How it is quantized.
    """
    observer: Any = plan.observer()
    observer(weight.detach())
    scale, zero_point = observer.calculate_qparams()
    axis = (
        getattr(observer, "ch_axis", None)
        if scale.numel() > 1 or _is_per_channel(observer)
        else None
    )
    return QuantizedTensor.from_float(
        weight,
        scale.float(),
        zero_point.to(torch.int32),
        axis=axis,
        quant_min=observer.quant_min,
        quant_max=observer.quant_max,
        dtype=storage_dtype(observer.dtype),
    )


def _is_per_channel(observer: Any) -> bool:
    return observer.qscheme in {torch.per_channel_affine, torch.per_channel_symmetric}


def _quantize_weight(model: GraphModule, path: str, plan: WeightPlan) -> None:
    module = model.get_submodule(path)
    weighted = module.get_submodule(plan.part) if plan.part else module
    codes = quantize_weight(weighted.weight, plan)  # type: ignore[arg-type]  # what makes it weighted
    reference: nn.Module = plan.reference.from_float(copy_module(weighted), codes)
    if not plan.part:
        model.add_submodule(path, reference.eval())
        return
    container = copy_module(module)
    container.add_module(plan.part, reference)
    model.add_submodule(path, container.eval())


def _replace_observer(model: GraphModule, node: Node) -> None:
    observer: Any = model.get_submodule(str(node.target))
    scale, zero_point = _parameters(observer, str(node.target))
    dtype = storage_dtype(observer.dtype)
    graph = model.graph
    with graph.inserting_before(node):
        arguments = (node.args[0], scale, zero_point, observer.quant_min, observer.quant_max, dtype)
        quantize = graph.call_function(quantize_per_tensor, arguments)
    quantize.meta = dict(node.meta)

    def dequantized(value: Node) -> Node:
        if value is not node:
            return value
        dequantize = graph.call_function(dequantize_per_tensor, (quantize, scale, zero_point))
        dequantize.meta = dict(node.meta)
        return dequantize

    for user in list(node.users):
        with graph.inserting_before(user):
            user.args, user.kwargs = map_arg((user.args, user.kwargs), dequantized)
    graph.erase_node(node)


def _parameters(observer: Any, path: str) -> tuple[float, int]:
    scale, zero_point = observer.calculate_qparams()
    value = float(scale)
    if not 0.0 < value < float("inf"):
        label = getattr(observer, "label", "") or path
        msg = f"{label} was observed with a range that gives the scale {value}; check the calibration data"
        raise CalibrationError(msg)
    return value, int(zero_point)
