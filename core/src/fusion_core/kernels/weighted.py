"""Lowering of convolutions and linear layers into modules with a packed weight."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.fx import Node

from fusion_core.configs import Replacement, Skip
from fusion_core.kernels.codes import CodeTypes, OutputCodes
from fusion_core.kernels.facts import Engine
from fusion_core.kernels.geometry import ConvSettings
from fusion_core.kernels.limits import beyond_32_bits
from fusion_core.kernels.packed import (
    PackedConv,
    PackedConvTranspose,
    PackedLinear,
    PackedLinearToFloat,
)
from fusion_core.kernels.padding import conv_settings, shape_of, through_padding, with_batch
from fusion_core.nn import fused, reference

Modules = Mapping[str, nn.Module]
Bounds = tuple[float | None, float | None]


@dataclass(frozen=True)
class _Packing:
    """What every rule for a weight knows.

    Attributes:
        engine: Engine that weights are packed for.
        types: Codes that are taken.
    """

    engine: Engine
    types: CodeTypes

    def parts(
        self, node_pattern: Any, modules: Modules
    ) -> tuple[nn.Module, OutputCodes, Node] | Skip:
        """Called module, codes of the output and source of the input, where kernels take them."""
        quantize, call = node_pattern
        output, source = self.types.output(quantize), self.types.source(input_of(call))
        if isinstance(output, Skip):
            return output
        if source is None:
            return Skip("its input is not quantized")
        return modules[str(call.target)], output, source

    def problem(
        self, layer: reference.ReferenceModule, source: Node, output: OutputCodes, channels: int = 0
    ) -> Skip | None:
        """Why the weight of ``layer`` does not run in the engine, or None where it does."""
        if layer.codes.dtype is not torch.int8:
            return Skip(f"the kernels take int8 weights, not {layer.codes.dtype}")
        if layer.axis not in {None, channels}:
            return Skip(
                f"the kernel takes a scale for each output channel, dimension {channels} of the "
                f"weight; it has one for each index of dimension {layer.axis}"
            )
        if not self.engine.integer_bias:
            return None
        return beyond_32_bits(
            layer.quantized_weight,
            layer.bias,
            channels=channels,
            input_scale=OutputCodes.of(source).scale,
            output_scale=output.scale,
        )


class Weighted(_Packing):
    """Lowers convolutions and linear layers, with or without their activation."""

    def __call__(self, node_pattern: Any, modules: Modules) -> Replacement | Skip:
        """A packed module on the codes, or why not."""
        parts = self.parts(node_pattern, modules)
        if isinstance(parts, Skip):
            return parts
        layer, bounds = layer_and_bounds(parts[0])
        _, output, source = parts
        if layer is None:
            return Skip("its weight is not quantized")
        problem = self.problem(layer, source, output)
        if problem is not None:
            return problem
        return self._pack(layer, output.within(*bounds), source, modules)

    def _pack(
        self,
        layer: reference.ReferenceModule,
        output: OutputCodes,
        source: Node,
        modules: Modules,
    ) -> Replacement | Skip:
        arguments = (self.engine.name, layer.quantized_weight, layer.bias, output)
        if isinstance(layer, reference.Linear):
            problem = _without_rows(source)
            if problem is not None:
                return problem
            return Replacement(PackedLinear(*arguments), (source,))
        settings = conv_settings(layer.float_module, source)
        if isinstance(settings, Skip):
            return settings
        if not settings.before:
            source, before = through_padding(
                source, len(settings.stride), modules, self.types.source
            )
            settings = replace(settings, before=before)
        return Replacement(PackedConv(*arguments, settings), (source,))


class LinearToFloat(_Packing):
    """Lowers linear layers whose result nobody reads quantized."""

    def __call__(self, call: Node, modules: Modules) -> Replacement | Skip:
        """A packed module on the float values of the codes, or why not."""
        values = input_of(call)
        source = self.types.source(values)
        if source is None:
            return Skip("its input is not quantized")
        problem = _without_rows(source)
        if problem is not None:
            return problem
        layer, bounds = layer_and_bounds(modules[str(call.target)])
        if layer is None or layer.codes.dtype is not torch.int8:
            return Skip("its weight is not int8")
        arguments = (self.engine.name, layer.quantized_weight, layer.bias, OutputCodes.of(source))
        return Replacement(PackedLinearToFloat(*arguments, bounds=bounds), (values,))


class Transposed(_Packing):
    """Lowers transposed convolutions."""

    def __call__(self, node_pattern: Any, modules: Modules) -> Replacement | Skip:
        """A packed module on the codes, or why not."""
        parts = self.parts(node_pattern, modules)
        if isinstance(parts, Skip):
            return parts
        layer: Any = parts[0]
        _, output, source = parts
        problem = self._unfit(layer, source, node_pattern[1]) or self.problem(
            layer, source, output, channels=1
        )
        if problem is not None:
            return problem
        conv = layer.float_module
        kernel = PackedConvTranspose(
            self.engine.name,
            layer.quantized_weight,
            layer.bias,
            output,
            ConvSettings(conv.stride, conv.padding, conv.dilation, conv.groups),
            output_padding=conv.output_padding,
        )
        return Replacement(kernel, (source,))

    def _unfit(self, layer: Any, source: Node, call: Node) -> Skip | None:
        conv = layer.float_module
        dims = len(conv.kernel_size)
        if dims not in self.engine.transposed:
            return Skip(
                f"{self.engine.name} has no right kernel for transposed convolutions in {dims} "
                "dimensions"
            )
        if len(call.all_input_nodes) + len(call.kwargs) > 1 or len(call.args) > 1:
            return Skip("it is called with an output size")
        one_scale = conv.groups > 1 or not self.engine.transposed_per_channel
        if one_scale and layer.axis is not None:
            grouped = "in groups " if self.engine.transposed_per_channel else ""
            return Skip(
                f"the kernel takes transposed convolutions {grouped}with one scale for the whole "
                "weight only"
            )
        return with_batch(source, dims)


def input_of(call: Node) -> Any:
    """What a call of a layer reads, however it is given."""
    return call.args[0] if call.args else call.kwargs.get("input")


def layer_and_bounds(module: Any) -> tuple[reference.ReferenceModule | None, Bounds]:
    """The layer in a module, if its weight is quantized, and what its activation bounds it to."""
    bounds: Bounds = (None, None)
    if isinstance(module, fused.Activated):
        module, bounds = module.weighted, _bounds(module.activation)
    return (module if isinstance(module, reference.ReferenceModule) else None), bounds


def _bounds(activation: nn.Module) -> Bounds:
    if isinstance(activation, nn.Hardtanh):  # ReLU6 is one
        return activation.min_val, activation.max_val
    return 0.0, None


def _without_rows(source: Node) -> Skip | None:
    """Refuse a linear layer on a single vector."""
    shape = shape_of(source)
    if shape is None or len(shape) > 1:
        return None
    return Skip(f"the kernel takes inputs of at least 2 dimensions, not of {len(shape)}")
