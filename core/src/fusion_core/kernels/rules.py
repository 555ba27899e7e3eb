"""Lowering rules onto PyTorch's native int8 CPU kernels, shared by the backends that use them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import Node
from torch.fx.node import map_arg

from fusion_core.configs import LoweringRule, Replacement, Skip
from fusion_core.kernels.geometry import ConvSettings
from fusion_core.kernels.modules import (
    HIGHEST_CODE,
    Binary,
    Dequantize,
    OutputCodes,
    PackedConv,
    PackedLinear,
    PackedLinearToFloat,
    Quantize,
)
from fusion_core.nn import fused, reference
from fusion_core.patterns import Operation, Operator, any_of, as_operator, operation_of, ops
from fusion_core.qops import dequantize_per_tensor, quantize_per_tensor

Modules = Mapping[str, nn.Module]

_TENSORS_OF_A_BINARY = 2

COPIES = (
    *("max_pool1d", "max_pool2d", "max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d"),
    *("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "mean", "cat", "pad"),
    *("relu", "relu6", "hardtanh", "clamp", "clamp_min", "clamp_max", "flatten", "reshape"),
    *("permute", "transpose", "squeeze", "unsqueeze", "contiguous"),
)
"""Operations that PyTorch runs on quantized tensors as they are; the output has the input's parameters."""


def native_rules(engine: str, *, float_output: bool = False) -> list[LoweringRule]:
    """Every rule for one of PyTorch's quantized engines.

    Args:
        engine: ``"fbgemm"``, ``"qnnpack"``, ...
        float_output: Whether the engine has a linear kernel with float output.

    Returns:
        Rules for conv and linear with their activations, add and mul with ReLU, the operations of
        :data:`COPIES`, and quantize and dequantize themselves.
    """
    convolutions = (reference.Conv1d, reference.Conv2d, reference.Conv3d)
    activated = (*fused.RELU_OF.values(), *fused.HARDTANH_OF.values())
    weighted = any_of(*convolutions, reference.Linear, *activated)
    to_float = LoweringRule(
        pattern=any_of(reference.Linear, fused.LinearReLU, fused.LinearHardtanh),
        lower=partial(_lower_linear_to_float, engine),
        name=f"{engine} linear to float",
    )
    return [
        *([to_float] if float_output else []),
        LoweringRule(
            complex_pattern=(quantize_per_tensor, weighted, ...),
            lower=_Weighted(engine),
            name=f"{engine} conv/linear",
        ),
        *_binary_rules(engine),
        LoweringRule(
            complex_pattern=(quantize_per_tensor, any_of(*map(Operation, COPIES)), ...),
            lower=_lower_copy,
            name="native copy",
        ),
        LoweringRule(pattern=quantize_per_tensor, lower=_lower_quantize, name="native quantize"),
        LoweringRule(
            pattern=dequantize_per_tensor, lower=_lower_dequantize, name="native dequantize"
        ),
    ]


def _binary_rules(engine: str) -> Iterator[LoweringRule]:
    for name in ("add", "mul"):
        lower, operation = partial(_lower_binary, name), Operation(name)
        for inner, label in (((ops.relu, operation), f"{name}_relu"), (operation, name)):
            yield LoweringRule(
                complex_pattern=(quantize_per_tensor, inner, ...),
                lower=lower,
                name=f"{engine} {label}",
            )


def _output(quantize: Node) -> OutputCodes | Skip:
    """What the output of a quantize node may be, where the engines' kernels can give it."""
    _, scale, zero_point, low, high, dtype = quantize.args
    if dtype is not torch.uint8:
        return Skip(f"the kernels give uint8, not {dtype}")
    return OutputCodes(float(scale), int(zero_point), int(low), int(high))  # type: ignore[arg-type]  # constants


def _codes_of(value: Any) -> Node | None:
    """The quantize node that a dequantized value comes from."""
    if not isinstance(value, Node) or value.target is not dequantize_per_tensor:
        return None
    source = value.args[0]
    native = (
        isinstance(source, Node)
        and source.target is quantize_per_tensor
        and source.args[5] is torch.uint8
    )
    return source if native else None  # type: ignore[return-value]  # a Node, by native


@dataclass(frozen=True)
class _Weighted:
    """Lowers convolutions and linear layers, with or without their activation.

    Attributes:
        engine: Engine that weights are packed for.
    """

    engine: str

    def __call__(self, node_pattern: Any, modules: Modules) -> Replacement | Skip:
        """A packed module on the codes, or why not."""
        quantize, call = node_pattern
        output, codes = (
            _output(quantize),
            _codes_of(call.args[0] if call.args else call.kwargs.get("input")),
        )
        if isinstance(output, Skip):
            return output
        if codes is None:
            return Skip("its input is not quantized")
        module = modules[str(call.target)]
        weighted: Any = module
        if isinstance(module, fused.Activated):
            weighted, output = (
                module.weighted,
                output.within(*_activation_bounds(module.activation)),
            )
        if not isinstance(weighted, reference.ReferenceModule):
            return Skip("its weight is not quantized")
        if weighted.codes.dtype is not torch.int8:
            return Skip(f"the kernels take int8 weights, not {weighted.codes.dtype}")
        return self._pack(weighted, output, codes, modules)

    def _pack(
        self,
        weighted: reference.ReferenceModule,
        output: OutputCodes,
        codes: Node,
        modules: Modules,
    ) -> Replacement | Skip:
        arguments = (self.engine, weighted.quantized_weight, weighted.bias, output)
        if isinstance(weighted, reference.Linear):
            problem = _without_rows(codes)
            if problem is not None:
                return problem
            return Replacement(PackedLinear(*arguments), (codes,))
        settings = _conv_settings(weighted.float_module, codes)
        if isinstance(settings, Skip):
            return settings
        if not settings.before:
            codes, before = _through_padding(codes, len(settings.stride), modules)
            settings = replace(settings, before=before)
        return Replacement(PackedConv(*arguments, settings), (codes,))


def _through_padding(codes: Node, dims: int, modules: Modules) -> tuple[Node, tuple[int, ...]]:
    """The codes in front of a zero padding and what it adds; ``codes`` and nothing without one."""
    pad = codes.args[0]
    if not isinstance(pad, Node):
        return codes, ()
    source = _codes_of(pad.args[0]) if pad.args else None
    if source is None or source.args[1:] != codes.args[1:]:
        return codes, ()
    amounts: Any = ()
    if pad.op == "call_module":
        module: Any = modules[str(pad.target)]
        amounts = module.padding if isinstance(module, _PADDINGS) and not module.value else ()
    elif _is_pad(pad):
        rest = {**dict(zip(("pad", "mode", "value"), pad.args[1:], strict=False)), **pad.kwargs}
        constant = rest.get("mode", "constant") == "constant"
        amounts = rest["pad"] if constant and not rest.get("value") else ()
    else:
        return codes, ()
    fits = len(amounts) == 2 * dims and all(type(each) is int and each >= 0 for each in amounts)
    return (source, tuple(amounts)) if fits else (codes, ())


def _is_pad(call: Node) -> bool:
    return operation_of(as_operator(call.target)) == Operator("operation", "pad")


_PADDINGS = (nn.ConstantPad1d, nn.ConstantPad2d, nn.ConstantPad3d)


def _lower_linear_to_float(engine: str, call: Node, modules: Modules) -> Replacement | Skip:
    values = call.args[0] if call.args else call.kwargs.get("input")
    codes = _codes_of(values)
    if codes is None:
        return Skip("its input is not quantized")
    source = _without_rows(codes) or _output(codes)
    if isinstance(source, Skip):
        return source
    module = modules[str(call.target)]
    layer: Any = module.weighted if isinstance(module, fused.Activated) else module
    if not isinstance(layer, reference.ReferenceModule) or layer.codes.dtype is not torch.int8:
        return Skip("its weight is not int8")
    bounds: tuple[float | None, float | None] = (None, None)
    if isinstance(module, fused.Activated):
        bounds = _activation_bounds(module.activation)
    arguments = (engine, layer.quantized_weight, layer.bias, source)
    return Replacement(PackedLinearToFloat(*arguments, bounds=bounds), (values,))


def _without_rows(codes: Node) -> Skip | None:
    """Refuse a linear layer on a single vector."""
    shape = getattr(codes.meta.get("tensor_meta"), "shape", None)
    if shape is None or len(shape) > 1:
        return None
    return Skip(f"the kernel takes inputs of at least 2 dimensions, not of {len(shape)}")


def _activation_bounds(activation: nn.Module) -> tuple[float | None, float | None]:
    if isinstance(activation, nn.Hardtanh):  # ReLU6 is one
        return activation.min_val, activation.max_val
    return 0.0, None


def _conv_settings(conv: Any, codes: Node) -> ConvSettings | Skip:
    dims = len(conv.kernel_size)
    shape = getattr(codes.meta.get("tensor_meta"), "shape", None)
    if shape is not None and len(shape) != dims + 2:
        return Skip(
            f"the kernel takes inputs of {dims + 2} dimensions with a batch, not of {len(shape)}"
        )
    if conv.padding_mode != "zeros":
        return Skip(f"the kernel pads with zeros, not in mode {conv.padding_mode!r}")
    if not isinstance(conv.padding, str):
        return ConvSettings(conv.stride, conv.padding, conv.dilation, conv.groups)
    spans = [step * (size - 1) for step, size in zip(conv.dilation, conv.kernel_size, strict=True)]
    totals = spans if conv.padding == "same" else [0] * dims
    low = tuple(total // 2 for total in totals)
    high = tuple(total - less for total, less in zip(totals, low, strict=True))
    if low == high:
        return ConvSettings(conv.stride, low, conv.dilation, conv.groups)
    before = tuple(each for pair in zip(low[::-1], high[::-1], strict=True) for each in pair)
    return ConvSettings(conv.stride, (0,) * dims, conv.dilation, conv.groups, before)


def _lower_binary(name: str, node_pattern: Any, _modules: Modules) -> Replacement | Skip:
    quantize, inner = node_pattern
    rectified, call = isinstance(inner, tuple), inner[1] if isinstance(inner, tuple) else inner
    output = _output(quantize)
    if isinstance(output, Skip):
        return output
    operands = [each for each in (*call.args, *call.kwargs.values()) if isinstance(each, Node)]
    codes = tuple(map(_codes_of, operands))
    if len(codes) != _TENSORS_OF_A_BINARY or None in codes:
        return Skip("the kernel takes two quantized tensors")
    return Replacement(Binary(name, output.within(0.0, None) if rectified else output), codes)


def _clamp_min(codes: Tensor, min: float) -> Tensor:  # noqa: A002  the name torch gives it
    return torch.clamp(codes, min=min)


def _clamp_max(codes: Tensor, max: float) -> Tensor:  # noqa: A002  the name torch gives it
    return torch.clamp(codes, max=max)


_INSTEAD = {
    # Kernels put channels last in memory, where a view may not be possible.
    "view": "reshape",
    torch.ops.aten.view: torch.reshape,
    torch.ops.aten.view.default: torch.reshape,
    # These have no kernel for quantized tensors.
    "clamp_min": _clamp_min,
    torch.clamp_min: _clamp_min,
    torch.ops.aten.clamp_min: _clamp_min,
    torch.ops.aten.clamp_min.default: _clamp_min,
    "clamp_max": _clamp_max,
    torch.clamp_max: _clamp_max,
    torch.ops.aten.clamp_max: _clamp_max,
    torch.ops.aten.clamp_max.default: _clamp_max,
}


def _lower_copy(node_pattern: Any, modules: Modules) -> Replacement | Skip:
    quantize, call = node_pattern
    output = _output(quantize)
    if isinstance(output, Skip):
        return output
    for operand in call.all_input_nodes:
        if operand.target is not dequantize_per_tensor:
            continue
        codes = _codes_of(operand)
        if codes is None or codes.args[1:] != quantize.args[1:]:
            return Skip("its output has other parameters than its input")
    if not any(map(_codes_of, call.all_input_nodes)):
        return Skip("its input is not quantized")
    if output.high < HIGHEST_CODE and _may_grow(call, modules):
        return Skip(f"it could give codes beyond {output.high}")
    target: Any = modules[str(call.target)] if call.op == "call_module" else call.target
    if call.op != "call_module":
        target = _INSTEAD.get(target, target)
    inputs, options = map_arg((call.args, call.kwargs), lambda node: _codes_of(node) or node)
    return Replacement(target, tuple(inputs), dict(options))


def _may_grow(call: Node, modules: Modules) -> bool:
    """Whether a copying operation can give more than its input holds: padding with a value, a divisor."""
    holder = modules.get(str(call.target)) if call.op == "call_module" else None
    names = ("value", "divisor_override")
    settings = [*call.args[1:], *(call.kwargs.get(name) for name in names)]
    if holder is not None:
        return any(getattr(holder, name, None) for name in names)
    is_listed = _is_pad(call) or "avg_pool" in str(getattr(call.target, "__name__", ""))
    return is_listed and any(type(each) in {float, int} and each != 0 for each in settings[2:])


def _lower_quantize(node_pattern: Node, _modules: Modules) -> Replacement | Skip:
    output = _output(node_pattern)
    if isinstance(output, Skip):
        return output
    return Replacement(Quantize(output), (node_pattern.args[0],))


def _lower_dequantize(node_pattern: Node, _modules: Modules) -> Replacement | Skip:
    codes = _codes_of(node_pattern)
    return Skip("its codes are not uint8") if codes is None else Replacement(Dequantize(), (codes,))
