"""Geometry of a convolution in a graph: its own padding, and padding that stands before it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import nn
from torch.fx import Node

from fusion_core.configs import Skip
from fusion_core.kernels.geometry import ConvSettings
from fusion_core.patterns import operation_name

_PADDINGS = (nn.ConstantPad1d, nn.ConstantPad2d, nn.ConstantPad3d)


def conv_settings(conv: Any, source: Node) -> ConvSettings | Skip:
    """The geometry of a convolution on ``source``, where kernels have it."""
    dims = len(conv.kernel_size)
    problem = with_batch(source, dims)
    if problem is not None:
        return problem
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


def with_batch(source: Node, dims: int) -> Skip | None:
    """Refuse an image, or the like in ``dims`` dimensions, without a batch."""
    shape = shape_of(source)
    if shape is None or len(shape) == dims + 2:
        return None
    return Skip(
        f"the kernel takes inputs of {dims + 2} dimensions with a batch, not of {len(shape)}"
    )


def shape_of(node: Node) -> Sequence[int] | None:
    """The shape of a node's value, where it is known."""
    shape: Sequence[int] | None = getattr(node.meta.get("tensor_meta"), "shape", None)
    return shape


def through_padding(
    codes: Node,
    dims: int,
    modules: Mapping[str, nn.Module],
    source_of: Callable[[Any], Node | None],
) -> tuple[Node, tuple[int, ...]]:
    """The codes in front of a zero padding and what it adds; ``codes`` and nothing without one.

    Args:
        codes: Quantize node that a convolution reads.
        dims: Number of its spatial dimensions.
        modules: Modules by path.
        source_of: Gives the quantize node that a dequantized value comes from.
    """
    pad = codes.args[0]
    if not isinstance(pad, Node):
        return codes, ()
    source = source_of(pad.args[0]) if pad.args else None
    if source is None or source.args[1:] != codes.args[1:]:
        return codes, ()
    amounts: Any = ()
    if pad.op == "call_module":
        module: Any = modules[str(pad.target)]
        amounts = module.padding if isinstance(module, _PADDINGS) and not module.value else ()
    elif is_pad(pad):
        rest = {**dict(zip(("pad", "mode", "value"), pad.args[1:], strict=False)), **pad.kwargs}
        constant = rest.get("mode", "constant") == "constant"
        amounts = rest["pad"] if constant and not rest.get("value") else ()
    else:
        return codes, ()
    fits = len(amounts) == 2 * dims and all(type(each) is int and each >= 0 for each in amounts)
    return (source, tuple(amounts)) if fits else (codes, ())


def is_pad(call: Node) -> bool:
    """Whether a call is constant padding as a function."""
    return operation_name(call.target) == "pad"
