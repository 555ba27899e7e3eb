"""Multiply-accumulates of an operation, from the shapes of the example input."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from torch.fx import Node

from fusion_core.matcher import CallGraph

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
_FUNCTIONAL_WEIGHTS = {"linear", "conv1d", "conv2d", "conv3d"}
_PRODUCTS = {"matmul", "bmm", "mm"}


def shape_of(value: Any) -> tuple[int, ...] | None:
    """Shape of the tensor that a node gives, or None where it gives none or is not a node."""
    meta = value.meta.get("tensor_meta") if isinstance(value, Node) else None
    shape = getattr(meta, "shape", None)
    return None if shape is None else tuple(shape)


def dtype_of(value: Any) -> torch.dtype | None:
    """Dtype of the tensor that a node gives, or None where it gives none or is not a node."""
    meta = value.meta.get("tensor_meta") if isinstance(value, Node) else None
    dtype = getattr(meta, "dtype", None)
    return dtype if isinstance(dtype, torch.dtype) else None


def count_macs(node: Node, calls: CallGraph) -> int:
    """Multiply-accumulates of ``node``; 0 for operations that are no products of weights or matrices."""
    shape = shape_of(node)
    if shape is None:
        return 0
    module = calls.module(node)
    if isinstance(module, nn.Linear):
        return math.prod(shape) * module.in_features
    if isinstance(module, _CONVOLUTIONS):
        return (
            math.prod(shape) * (module.in_channels // module.groups) * math.prod(module.kernel_size)
        )
    if isinstance(module, _TRANSPOSED):
        source = shape_of(node.all_input_nodes[0]) or ()
        return (
            math.prod(source)
            * (module.out_channels // module.groups)
            * math.prod(module.kernel_size)
        )
    return _functional_macs(node, shape, calls)


def _functional_macs(node: Node, shape: tuple[int, ...], calls: CallGraph) -> int:
    site = calls.site(node)
    if site is None or not site.arguments[1:]:
        return 0
    name = str(
        node.target if node.op == "call_method" else getattr(node.target, "__name__", "")
    ).split(".")[0]
    if name in _FUNCTIONAL_WEIGHTS:
        weight = shape_of(site.arguments[1]) or (0,)
        return math.prod(shape) * math.prod(weight[1:])
    if name in _PRODUCTS:
        left = shape_of(site.arguments[0]) or (0,)
        return math.prod(shape) * left[-1]
    return 0
