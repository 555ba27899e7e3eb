"""Lowering rules: which parts of a reference model the chip runs, and with what numbers.

There an operation reads ``dequantize(codes, scale, zero_point)`` and gives its result to ``quantize(x, scale,
zero_point, lowest, highest, dtype)``. A rule matches all of it, and says what is called on the codes.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import torch
from torch import nn
from torch.fx.node import map_arg

from fusion_backend_example_npu.chip import Pass
from fusion_backend_example_npu.residual import ConvAddReLU
from fusion_core import Replacement, Skip, any_of, ops
from fusion_core.nn import fused, reference
from fusion_core.qops import dequantize_per_tensor, quantize_per_tensor

CODES = (dequantize_per_tensor, ...)  # further arguments are free
LINEAR = any_of(reference.Linear, fused.LinearReLU, fused.LinearHardtanh)
CONV = any_of(reference.Conv2d, fused.ConvReLU2d, fused.ConvHardtanh2d)
LAYER = (quantize_per_tensor, (any_of(LINEAR, CONV), CODES), ...)
BLOCK = (quantize_per_tensor, (ConvAddReLU, CODES, CODES), ...)
MOVES = any_of(ops.flatten, ops.reshape, ops.permute, ops.transpose, ops.squeeze, ops.unsqueeze)
COPIES = any_of(ops.relu, ops.max_pool2d, MOVES)  # what gives codes of its input and no others
COPY = (quantize_per_tensor, (COPIES, CODES, ...), ...)


def lower_layer(nodes: Any, modules: Any) -> Replacement | Skip:
    """A convolution or linear layer and what was fused with it, as one pass of the chip."""
    quantize, (call, *inputs) = nodes
    module = modules[call.target]
    layer, *activation = (module,) if hasattr(module, "codes") else module  # alone, or fused
    channels = (-1, *[1] * (layer.codes.dim() - 2))  # how a value per channel meets the output
    scales = [torch.tensor(each.args[1]) for each in (*inputs, quantize)]
    scales[0] = scales[0] * layer.weight_scale.view(channels)
    mantissas, exponents = zip(*map(torch.frexp, scales), strict=True)
    if layer.axis not in {0, None} or any(each.ne(0.5).any() for each in mantissas):
        return Skip("the chip shifts output channels, so their scales must be powers of two")
    *terms, output = (each - 1 for each in exponents)
    finest = reduce(torch.minimum, terms)  # the step of the sum, in which nothing is lost
    align = torch.stack(torch.broadcast_tensors(*terms)) - finest
    rescale = finest - output
    bias = torch.zeros(1) if layer.bias is None else layer.bias.detach().view(channels)
    bias = torch.round(bias.double() * 2.0**-finest)
    largest = 128 * layer.codes.double().abs().flatten(1).sum(1).view(channels)
    largest = largest * 2.0 ** align[0] + 128 * (2.0 ** align[1:]).sum(0) + bias.abs()
    if (largest * 2.0 ** rescale.clamp(min=0)).max() >= 2**31 or rescale.lt(-30).any():
        return Skip("its sums could leave the 32 bits of the accumulator")
    # Saturating at what an activation makes of the ends of the output's range does what it does.
    ends = dequantize_per_tensor(torch.tensor(quantize.args[3:5]), *quantize.args[1:3])
    ends = quantize_per_tensor(nn.Sequential(*activation)(ends), *quantize.args[1:])
    chip = Pass(layer, align, bias.int(), rescale, ends.tolist())
    return Replacement(chip, tuple(each.args[0] for each in inputs))


def lower_copy(nodes: Any, modules: Any) -> Replacement | Skip:
    """The same call, on codes."""
    quantize, (call, values) = nodes
    if quantize.args[1:3] != values.args[1:]:
        return Skip("its output has another scale than its input")
    target = modules[call.target] if call.op == "call_module" else call.target
    arguments = (call.args, call.kwargs)
    return Replacement(target, *map_arg(arguments, lambda n: n.args[0] if n is values else n))
