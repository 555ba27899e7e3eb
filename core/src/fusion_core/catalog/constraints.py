"""Constraints of the catalog's families: what a pattern matches and a kernel does not compute."""

from __future__ import annotations

from typing import Any

from torch.fx import Node

from fusion_core.configs import Skip
from fusion_core.patterns import operation_name

_ROWS_AND_CHANNELS = 2
_OVERSHOOTING = ("bicubic", "lanczos")


def norm_sees_channels_last(node_pattern: Any) -> Skip | None:
    """Refuse to fold a batch norm behind a linear layer whose output has more than two dimensions.

    The norm is over dimension 1, the linear layer's channels are the last one.
    """
    node = node_pattern
    while isinstance(node, tuple) and isinstance(node[1], tuple):
        node = node[1]
    norm: Node = node[0]
    dims = len(getattr(norm.meta.get("tensor_meta"), "shape", ()))
    if dims == _ROWS_AND_CHANNELS:
        return None
    return Skip(
        f"the batch norm is over dimension 1 of {dims}, the linear layer's channels are the last"
    )


def takes_a_number(node_pattern: Any) -> Skip | None:
    """Refuse an operation of two tensors, and division of a number."""
    node = node_pattern
    while isinstance(node, tuple):
        node = node[1]
    if len(node.all_input_nodes) > 1:
        return Skip("the kernel takes a tensor and a number, not two tensors")
    first = node.args[0] if node.args else node.kwargs.get("input")
    divides = _is("div", node)
    return Skip("it divides a number") if divides and not isinstance(first, Node) else None


def resizes_within_range(node: Any) -> Skip | None:
    """Refuse cubic and Lanczos interpolation, which overshoot the values that they lie between."""
    if isinstance(node, tuple) or not _is("interpolate", node):
        return None
    given = node.kwargs.get("mode", (*node.args, *[None] * 4)[3])
    mode = _module(node).mode if node.op == "call_module" else given
    return Skip(f"mode {mode!r} overshoots its input's range") if mode in _OVERSHOOTING else None


def pads_with_zeros(node: Any) -> Skip | None:
    """Refuse padding other than with a constant; that needs values which the kernel does not have."""
    if not _is("pad", node):
        return None
    positional = node.args[2:3]
    mode = node.kwargs.get("mode", positional[0] if positional else "constant")
    if node.op == "call_module" or mode == "constant":
        return None
    return Skip(f"it pads in mode {mode!r}")


def clamps_to_numbers(node: Any) -> Skip | None:
    """Refuse to clamp to the values of a tensor."""
    tensors = len(node.all_input_nodes) > 1
    return Skip("it clamps to bounds that are not constant") if tensors else None


def _is(name: str, node: Any) -> bool:
    """Whether ``node`` calls an operation of the alias table."""
    called = type(_module(node)) if node.op == "call_module" else node.target
    return operation_name(called) == name


def _module(node: Any) -> Any:
    return node.graph.owning_module.get_submodule(node.target)
