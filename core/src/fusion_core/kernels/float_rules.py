"""Rules for operations that take and give float: quantized while running, or by their weight alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.fx import Node

from fusion_core.configs import LoweringRule, Replacement, Skip
from fusion_core.kernels.codes import HIGHEST_CODE
from fusion_core.kernels.facts import Engine, engine_named
from fusion_core.kernels.products import FloatLinear
from fusion_core.kernels.recurrent import ElmanCell, RecurrentCell, RecurrentLayer
from fusion_core.kernels.rows import EmbeddingBagRows, EmbeddingRows
from fusion_core.kernels.weighted import input_of, layer_and_bounds
from fusion_core.nn import fused, reference
from fusion_core.patterns import any_arguments, any_of
from fusion_core.qops import QuantizedTensor, dequantize_dynamic, quantize_per_tensor_dynamic

Modules = Mapping[str, nn.Module]

_LINEAR = any_of(reference.Linear, fused.LinearReLU, fused.LinearHardtanh)
_LAYERS = (reference.LSTM, reference.GRU)
_CELLS = (reference.LSTMCell, reference.GRUCell)
_RECURRENT = any_of(*map(any_arguments, (*_LAYERS, *_CELLS, reference.RNNCell)))
_CODES = {(0, 255, torch.uint8), (-128, 127, torch.int8)}
_SHORT_CODES = {(0, 127, torch.uint8), (-64, 63, torch.int8)}
_BEYOND = 2.0**31


def dynamic_rules(engine: str) -> list[LoweringRule]:
    """Rules for linear layers, LSTM, GRU and cells whose input is quantized while running.

    Args:
        engine: ``"fbgemm"``, ``"qnnpack"``, ...; weights are packed for it and run in it.
    """
    facts = engine_named(engine)
    return [
        LoweringRule(pattern=_LINEAR, lower=DynamicLinear(facts), name=f"{engine} dynamic linear"),
        LoweringRule(
            pattern=_RECURRENT, lower=DynamicRecurrent(facts), name=f"{engine} dynamic recurrent"
        ),
    ]


def half_rules(engine: str) -> list[LoweringRule]:
    """Rules for linear layers, LSTM, GRU and cells whose weights are in float16.

    Args:
        engine: An engine that has such kernels, ``"fbgemm"``.
    """
    facts = engine_named(engine)
    return [
        LoweringRule(pattern=_LINEAR, lower=HalfLinear(facts), name=f"{engine} float16 linear"),
        LoweringRule(
            pattern=_RECURRENT, lower=HalfRecurrent(facts), name=f"{engine} float16 recurrent"
        ),
    ]


def embedding_rules() -> list[LoweringRule]:
    """Rules for embeddings and bags of them with codes of 8 or 4 bits; their kernels are no engine's."""
    return [
        LoweringRule(
            pattern=any_of(*map(any_arguments, (reference.Embedding, reference.EmbeddingBag))),
            lower=lower_embedding,
            name="native embedding",
        )
    ]


@dataclass(frozen=True)
class _OnFloat:
    """What every rule for weights that meet float values knows.

    Attributes:
        engine: Engine that weights are packed for.
    """

    engine: Engine

    def dynamic(self, call: Node) -> tuple[Node, bool] | Skip:
        """The float value that a call reads quantized while running, and whether in codes of 7 bits."""
        read = input_of(call)
        if not isinstance(read, Node) or read.target is not dequantize_dynamic:
            return Skip("its input is not quantized while running")
        quantize = read.args[0]
        if not isinstance(quantize, Node) or quantize.target is not quantize_per_tensor_dynamic:
            return Skip("its input is not quantized while running")
        value, low, high, dtype, *rest = quantize.args
        if rest and rest[0]:
            return Skip("the kernel chooses a zero point from the input, and 0 shall be the middle")
        codes: Any = (low, high, dtype)
        if codes in _CODES or (codes in _SHORT_CODES and self.engine.short_inputs):
            return value, codes in _SHORT_CODES  # type: ignore[return-value]  # a node
        return Skip(f"the kernel gives its input other codes than {low} to {high} of {dtype}")

    def half(self, weight: QuantizedTensor) -> Skip | None:
        """Why a weight is none that a kernel takes in float16; None where it is."""
        if weight.codes.dtype is not torch.float16:
            return Skip("its weight is not in float16")
        if not self.engine.half:
            return Skip(f"{self.engine.name} has no kernel for weights in float16")
        return None


class DynamicLinear(_OnFloat):
    """Lowers linear layers, with or without their activation, on an input quantized while running."""

    def __call__(self, call: Node, modules: Modules) -> Replacement | Skip:
        """A packed module on the float values, or why not."""
        layer, bounds = layer_and_bounds(modules[str(call.target)])
        found = self.dynamic(call)
        if layer is None or isinstance(found, Skip):
            return found if isinstance(found, Skip) else Skip("its weight is not quantized")
        value, short = found
        weight = layer.quantized_weight
        problem = _unfit(weight)
        if problem is not None:
            return problem
        kernel = FloatLinear(self.engine.name, weight, layer.bias, bounds=bounds, short=short)
        return Replacement(kernel, (value,))


class HalfLinear(_OnFloat):
    """Lowers linear layers, with or without their activation, whose weight is in float16."""

    def __call__(self, call: Node, modules: Modules) -> Replacement | Skip:
        """A packed module on the float values, or why not."""
        layer, bounds = layer_and_bounds(modules[str(call.target)])
        if layer is None:
            return Skip("its weight is not quantized")
        problem = self.half(layer.quantized_weight)
        if problem is not None:
            return problem
        kernel = FloatLinear(self.engine.name, layer.quantized_weight, layer.bias, bounds=bounds)
        return Replacement(kernel, (input_of(call),))


class DynamicRecurrent(_OnFloat):
    """Lowers recurrent layers and cells on an input quantized while running."""

    def __call__(self, call: Node, modules: Modules) -> Replacement | Skip:
        """A packed module on the float values, or why not."""
        layer: Any = modules[str(call.target)]
        found = _projecting(layer) or self.dynamic(call)
        if isinstance(found, Skip):
            return found
        value, short = found
        weights = layer.quantized_weights.values()
        problem = next(filter(None, map(_unfit, weights)), None)
        if problem is not None:
            return problem
        kernel = _recurrent_kernel(self.engine.name, layer, short=short)
        return Replacement(kernel, (value, *call.args[1:]), _other_options(call))


class HalfRecurrent(_OnFloat):
    """Lowers recurrent layers and cells whose weights are in float16."""

    def __call__(self, call: Node, modules: Modules) -> Replacement | Skip:
        """A packed module on the float values, or why not."""
        layer: Any = modules[str(call.target)]
        weights = layer.quantized_weights.values()
        problem = next(filter(None, map(self.half, weights)), None) or _projecting(layer)
        if problem is not None:
            return problem
        kernel = _recurrent_kernel(self.engine.name, layer, short=False)
        return Replacement(kernel, (input_of(call), *call.args[1:]), _other_options(call))


def lower_embedding(call: Node, modules: Modules) -> Replacement | Skip:
    """An embedding on rows of codes, or why not."""
    layer: Any = modules[str(call.target)]
    held, weight = layer.float_module, layer.quantized_weight
    problem = _unfit_rows(weight, held)
    if problem is not None:
        return problem
    is_bag = isinstance(layer, reference.EmbeddingBag)
    kernel = EmbeddingBagRows(weight, held) if is_bag else EmbeddingRows(weight)
    return Replacement(kernel, tuple(call.args), dict(call.kwargs))


def _unfit_rows(weight: QuantizedTensor, held: Any) -> Skip | None:
    if weight.codes.dtype not in {torch.uint8, torch.int8}:
        return Skip(f"the kernel takes codes of 8 or 4 bits, not {weight.codes.dtype}")
    if weight.axis not in {None, 0}:
        return Skip("the kernel takes one scale for each row; the weight has one for each column")
    if held.max_norm is not None:
        return Skip("the kernel does not shorten rows to max_norm")
    mode = getattr(held, "mode", None)
    if mode == "max":
        return Skip("the kernel gives sums, not the largest value")
    if mode == "mean" and held.padding_idx is not None:
        return Skip("the kernel counts rows of padding among those that it averages")
    return None


def _recurrent_kernel(engine: str, layer: Any, *, short: bool) -> nn.Module:
    if isinstance(layer, reference.RNNCell):
        return ElmanCell(engine, layer, short=short)
    kind = RecurrentLayer if isinstance(layer, _LAYERS) else RecurrentCell
    return kind(engine, layer, short=short)


def _other_options(call: Node) -> dict[str, Any]:
    return {name: value for name, value in call.kwargs.items() if name != "input"}


def _projecting(layer: Any) -> Skip | None:
    if getattr(layer.float_module, "proj_size", 0):
        return Skip("the kernel does not project states to a smaller size")
    return None


def _unfit(weight: QuantizedTensor) -> Skip | None:
    """Why a weight of shape [out, in] is none that a kernel multiplies codes with; None where it is."""
    if weight.codes.dtype is not torch.int8:
        return Skip(f"the kernels take int8 weights, not {weight.codes.dtype}")
    if weight.axis not in {None, 0} or weight.zero_point.is_floating_point():
        return Skip("the kernel takes a scale for each output, and zero points that are codes")
    offset = float(weight.zero_point.abs().max())
    largest = HIGHEST_CODE * float(weight.codes.double().abs().add(offset).sum(1).max())
    if largest >= _BEYOND:
        return Skip(f"the kernel counts in 32 bits, and its sums could reach {largest:.3g}")
    return None
