"""convert: a calibrated model becomes a reference model of integers that runs anywhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from fusion_core.errors import CalibrationError, first_few
from fusion_core.ledger import Status
from fusion_core.nn.protocol import SYMMETRIC_SCHEMES
from fusion_core.passes.biases import round_biases
from fusion_core.passes.edit import Names, finish
from fusion_core.passes.interface import open_to_codes
from fusion_core.passes.observed import label_of, needs_data
from fusion_core.passes.parts import each_part
from fusion_core.passes.qat import copy_to_convert, remove_dropout, trained_plans
from fusion_core.passes.record import PassRecord, Stage, advance, record_of
from fusion_core.passes.sizes import reads_size
from fusion_core.passes.weights import quantize_module
from fusion_core.passes.wishes import CUSTOM, quantize_own_modules
from fusion_core.qops import (
    dequantize_dynamic,
    dequantize_per_channel,
    dequantize_per_tensor,
    quantize_per_channel,
    quantize_per_tensor,
    quantize_per_tensor_dynamic,
    storage_dtype,
)


def convert(model: GraphModule) -> GraphModule:
    """Replace observers by quantize and dequantize, and weighted modules by their reference form.

    Every quantized value has one ``quantize`` and, for each place that it is read in, one
    ``dequantize``; ``x + x`` reads in two places. What asks for its size alone asks the codes.

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
    converted = copy_to_convert(model, record)
    mine = advance(converted, record, Stage.CONVERTED)
    if record.qat:
        mine.weights = trained_plans(converted, record.weights)
        remove_dropout(converted, mine.ledger)
    for path, plan in mine.weights.items():
        quantize_module(converted, path, plan)
    quantize_own_modules(converted, mine)
    observers, names = set(record.observers), Names(converted)
    for node in list(converted.graph.nodes):
        if node.op == "call_module" and node.target in observers:
            _replace_observer(converted, node, names)
    open_to_codes(converted, mine)
    round_biases(converted, mine.weights)
    mine.observers = ()
    for line in mine.ledger:
        if line.pattern is not None:
            line.status = Status.INT8 if line.plugin == CUSTOM else Status.REFERENCE
    each_part(converted, lambda graph, _: convert(graph))
    return finish(converted)


def _check_calibrated(model: GraphModule, record: PassRecord) -> None:
    if record.stage >= Stage.CALIBRATED:
        return
    observers = ((path, model.get_submodule(path)) for path in record.observers)
    unseen = [label_of(observer, path) for path, observer in observers if needs_data(observer)]
    if unseen:
        listed = first_few(unseen)
        msg = (
            f"the model has not been calibrated at {listed}; run calibrate(model, data) before convert, "
            "or give quantize calibration="
        )
        raise CalibrationError(msg)


def _replace_observer(model: GraphModule, node: Node, names: Names) -> None:
    """Put a quantize in place of an observer's call, and a dequantize at every place that reads it."""
    observer: Any = model.get_submodule(str(node.target))
    with model.graph.inserting_before(node):
        quantize, dequantize = _pair(model, node, observer, names)
    quantize.meta = dict(node.meta)

    def dequantized(value: Node) -> Node:
        if value is not node:
            return value
        read = dequantize()
        read.meta = dict(node.meta)
        return read

    for user in list(node.users):
        if reads_size(user):
            user.replace_input_with(node, quantize)
            continue
        with model.graph.inserting_before(user):
            user.args, user.kwargs = map_arg((user.args, user.kwargs), dequantized)
    model.graph.erase_node(node)


def _pair(
    model: GraphModule, node: Node, observer: Any, names: Names
) -> tuple[Node, Callable[[], Node]]:
    """A quantize of the observed value, and what makes a dequantize of it."""
    graph, value = model.graph, node.args[0]
    limits = observer.quant_min, observer.quant_max, storage_dtype(observer.dtype)
    if getattr(observer, "is_dynamic", False):
        is_symmetric = observer.qscheme in SYMMETRIC_SCHEMES
        arguments = (value, *limits, is_symmetric, float(observer.eps))
        quantize = graph.call_function(quantize_per_tensor_dynamic, arguments)
        return quantize, lambda: graph.call_function(dequantize_dynamic, (quantize,))
    scale, zero_point = observer.calculate_qparams()
    _check_scale(scale, label_of(observer, str(node.target)))
    if scale.numel() == 1 and getattr(observer, "ch_axis", None) is None:
        parameters: tuple[Any, ...] = float(scale), int(zero_point)
        quantize = graph.call_function(quantize_per_tensor, (value, *parameters, *limits))
        return quantize, lambda: graph.call_function(dequantize_per_tensor, (quantize, *parameters))
    held = (
        _held(model, "scale", scale.float(), names),
        _held(model, "zero_point", zero_point.to(torch.int32), names),
    )
    axis = observer.ch_axis
    quantize = graph.call_function(quantize_per_channel, (value, *held, axis, *limits))
    return quantize, lambda: graph.call_function(dequantize_per_channel, (quantize, *held, axis))


def _held(model: GraphModule, stem: str, value: torch.Tensor, names: Names) -> Node:
    """A buffer of the model with ``value``, and the node that reads it."""
    name = names.fresh(stem)
    model.register_buffer(name, value)
    return model.graph.get_attr(name)


def _check_scale(scale: torch.Tensor, label: str) -> None:
    if not bool(((scale > 0) & scale.isfinite()).all()):
        worst = float(scale.flatten()[0]) if scale.numel() == 1 else scale.tolist()
        msg = f"{label} was observed with a range that gives the scale {worst}; check the calibration data"
        raise CalibrationError(msg)
