"""The numbers that models are judged by: signal over noise, and quantization steps apart."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from fusion_core.qops import dequantize_per_tensor

STEPS_OF_A_RANGE = 255
"""Steps in the range of eight bits; the yardstick for outputs that are not quantized."""


def tensors_in(value: Any) -> Iterator[Any]:
    """The leaves of nested tuples, lists and dicts, in order."""
    if isinstance(value, Mapping):
        value = tuple(value.values())
    if isinstance(value, (tuple, list)):
        for part in value:
            yield from tensors_in(part)
    else:
        yield value


def sqnr(want: Any, have: Any) -> float:
    """Signal over noise in decibel, of the output that has least of it.

    Args:
        want: The float outputs: tensors, nested in any way.
        have: The quantized ones, nested alike.
    """
    pairs = zip(tensors_in(want), tensors_in(have), strict=True)
    return min(_decibels(one, other) for one, other in pairs)


def _decibels(want: Tensor, have: Tensor) -> float:
    if want.shape != have.shape:
        return -math.inf
    signal = float(want.double().square().sum())
    noise = float((want.double() - have.double()).square().sum())
    if noise == 0.0:
        return math.inf
    return 10 * math.log10(signal / noise) if signal > 0 and math.isfinite(noise) else -math.inf


def steps_apart(model: GraphModule, one: Any, other: Any) -> float:
    """Largest difference of two outputs in steps of the output it is in.

    A step is the scale of a quantized output; of one that is given in float, a 255th of its range.

    Args:
        model: The reference model that gave ``one``.
        one: Outputs of ``model``.
        other: Outputs to compare with.
    """
    nodes = tensors_in(model.graph.output_node().args[0])
    values = zip(nodes, tensors_in(one), tensors_in(other), strict=True)
    return max(_steps(node, left, right) for node, left, right in values)


def _steps(node: Any, one: Tensor, other: Tensor) -> float:
    if one.shape != other.shape:
        return math.inf
    largest = float((one.double() - other.double()).abs().max())
    return largest / _step(node, one) if largest else 0.0


def _step(node: Any, values: Tensor) -> float:
    if isinstance(node, Node) and node.target is dequantize_per_tensor:
        return float(node.args[1])  # type: ignore[arg-type]  # a constant
    spread = float(values.max() - values.min()) / STEPS_OF_A_RANGE
    return max(spread, torch.finfo(torch.float32).eps)


def equal(one: Any, other: Any) -> bool:
    """Whether two outputs are the same to the last bit, shapes and dtypes included."""
    left, right = list(tensors_in(one)), list(tensors_in(other))
    return len(left) == len(right) and all(
        a.shape == b.shape and a.dtype == b.dtype and torch.equal(a, b)
        for a, b in zip(left, right, strict=True)
    )
