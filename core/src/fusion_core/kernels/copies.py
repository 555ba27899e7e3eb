"""Lowering of operations that run on quantized tensors as they are."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.fx import Node
from torch.fx.node import map_arg

from fusion_core.configs import Replacement, Skip
from fusion_core.kernels import steady
from fusion_core.kernels.codes import HIGHEST_CODE, CodeTypes, OutputCodes
from fusion_core.kernels.padding import shape_of
from fusion_core.patterns import operation_name
from fusion_core.qops import dequantize_per_tensor

Modules = Mapping[str, nn.Module]

COPIES = (
    *("max_pool1d", "max_pool2d", "max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d"),
    *("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "mean", "cat", "pad"),
    *("relu", "relu6", "hardtanh", "clamp", "clamp_min", "clamp_max", "flatten", "reshape"),
    *("permute", "transpose", "squeeze", "unsqueeze", "contiguous", "identity", "detach"),
    *("narrow", "repeat", "repeat_interleave", "stack", "pixel_shuffle", "pixel_unshuffle"),
    *("channel_shuffle", "interpolate"),
)
"""Operations that PyTorch runs on quantized tensors as they are; the output has the input's parameters."""

_CLAMPS: Mapping[str, Callable[..., tuple[Any, Any]]] = {
    "relu6": lambda _codes, inplace=False: (0.0, 6.0),  # noqa: ARG005
    "hardtanh": lambda _codes, min_val=-1.0, max_val=1.0, inplace=False: (min_val, max_val),  # noqa: ARG005
    "clamp": lambda _codes, min=None, max=None: (min, max),  # noqa: A006
    "clamp_min": lambda _codes, min: (min, None),  # noqa: A006
    "clamp_max": lambda _codes, max: (None, max),  # noqa: A006
}
"""The bounds of each clamping function, from what it is called with."""

_STEADY: Mapping[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        *(steady.mean, steady.max_pool1d, steady.max_pool2d, steady.avg_pool1d, steady.avg_pool2d),
        *(steady.adaptive_avg_pool1d, steady.adaptive_avg_pool2d, steady.adaptive_avg_pool3d),
        steady.interpolate,
    )
}

_RESIZED = {
    "nearest": (1, 2, 3),
    "nearest-exact": (1, 2, 3),
    "area": (1, 2, 3),
    "linear": (1,),
    "bilinear": (2,),
}
"""Numbers of spatial dimensions in which a mode of resizing has a kernel."""

_IMAGES = 4
"""Dimensions of a batch of images."""

_GROWING = {
    "pad": ("value", 3),
    "avg_pool2d": ("divisor_override", 6),
    "avg_pool3d": ("divisor_override", 6),
}
"""The setting with which an operation can give more than its input holds, and its place in a call."""

_INSTEAD = {
    # Kernels put channels last in memory, where a view may not be possible.
    "view": "reshape",
    torch.ops.aten.view: torch.reshape,
    torch.ops.aten.view.default: torch.reshape,
}


@dataclass(frozen=True)
class Copy:
    """Lowers an operation whose output has its input's parameters.

    Attributes:
        types: Codes that are taken.
        steady: Whether the result may not depend on the engine that the process has selected.
    """

    types: CodeTypes
    steady: bool

    def __call__(self, node_pattern: Any, modules: Modules) -> Replacement | Skip:
        """The operation on the codes, or why not."""
        quantize, call = node_pattern
        output = self.types.output(quantize)
        if isinstance(output, Skip):
            return output
        holder = modules[str(call.target)] if call.op == "call_module" else None
        problem = self._unfit(quantize, call) or _unsupported(call, holder, output)
        if problem is not None:
            return problem
        if _name(call, holder) in _CLAMPS:
            return _clamp(call, holder, self._source(call), output)
        if self.steady or _name(call, holder) == "interpolate":
            return self._steadily(call, holder)
        return self._as_it_is(call, holder)

    def _steadily(self, call: Node, holder: nn.Module | None) -> Replacement | Skip:
        """The operation in a form that looks at no selected engine."""
        name = _name(call, holder)
        if name == "max_pool3d":
            return Skip("PyTorch has no kernel for it while the engine qnnpack is selected")
        if name == "relu" and shape_of(call) == ():
            return Skip("PyTorch has no kernel for a single value while qnnpack is selected")
        if name in _STEADY:
            return _in_place_of(_STEADY[name], call, holder, self._source(call))
        return self._as_it_is(call, holder)

    def _as_it_is(self, call: Node, holder: nn.Module | None) -> Replacement:
        target: Any = call.target if holder is None else holder
        inputs, options = map_arg(
            (call.args, call.kwargs), lambda node: self.types.source(node) or node
        )
        if _name(call, holder).startswith("max_pool"):
            inputs, options, target = _spelled_out(inputs), _spelled_out(options), _pooling(target)
        instead: Any = target if holder is not None else _INSTEAD.get(target, target)
        return Replacement(instead, tuple(inputs), dict(options))

    def _source(self, call: Node) -> Node:
        """The codes of the first operand."""
        return next(node for node in map(self.types.source, call.all_input_nodes) if node)

    def _unfit(self, quantize: Node, call: Node) -> Skip | None:
        operands = [node for node in call.all_input_nodes if node.target is dequantize_per_tensor]
        sources = [self.types.source(operand) for operand in operands]
        if any(each is None or each.args[1:] != quantize.args[1:] for each in sources):
            return Skip("its output has other parameters than its input")
        return None if sources else Skip("its input is not quantized")


def _spelled_out(settings: Any) -> Any:
    """Settings of max pooling with each list of one, which its kernels do not know, as a number."""
    if isinstance(settings, Mapping):
        return {name: _of_one(value) for name, value in settings.items()}
    return tuple(map(_of_one, settings))


def _of_one(value: Any) -> Any:
    return value[0] if isinstance(value, (list, tuple)) and len(value) == 1 else value


def _pooling(target: Any) -> Any:
    """A function as it is, a module with its settings spelled out."""
    if not isinstance(target, nn.Module):
        return target
    copied = copy.copy(target)
    copied.__dict__.update(_spelled_out(vars(target)))
    return copied


def _name(call: Node, holder: nn.Module | None) -> str:
    """The name of an operation of :data:`COPIES`."""
    return operation_name(call.target if holder is None else type(holder))


def _unsupported(call: Node, holder: nn.Module | None, output: OutputCodes) -> Skip | None:
    if getattr(holder, "return_indices", False) or call.kwargs.get("return_indices"):
        return Skip("the kernel gives no indices")
    if call.kwargs.get("dtype") is not None:
        return Skip(f"it gives {call.kwargs['dtype']}, the kernel gives codes")
    if _name(call, holder) == "channel_shuffle" and len(shape_of(call) or ()) != _IMAGES:
        return Skip("the kernel shuffles channels of batches of images")
    if _name(call, holder) == "interpolate" and not _resizes(call, holder):
        return Skip("the kernel resizes by nearest values, areas, and linearly up to 2 dimensions")
    if (output.low > 0 or output.high < HIGHEST_CODE) and _may_grow(call, holder):
        return Skip(f"it could give codes outside of {output.low} to {output.high}")
    return None


def _resizes(call: Node, holder: nn.Module | None) -> bool:
    """Whether there is a kernel for the mode of an interpolation."""
    parameters = inspect.signature(steady.interpolate)
    given: Mapping[str, Any] = (
        parameters.bind(*_positional(call), **_named(call)).arguments
        if holder is None
        else vars(holder)
    )
    mode = given.get("mode", "nearest")
    dims = len(shape_of(call) or ()) - 2
    return dims in _RESIZED.get(mode, ()) and not given.get("antialias", False)


def _may_grow(call: Node, holder: nn.Module | None) -> bool:
    """Whether a copying operation can give more than its input holds: padding with a value, a divisor."""
    name, place = _GROWING.get(_name(call, holder), ("", 0))
    if holder is not None or not name:
        return bool(getattr(holder, name, None))
    return bool(call.kwargs.get(name, next(iter(call.args[place:]), None)))


def _clamp(call: Node, holder: Any, source: Node, output: OutputCodes) -> Replacement | Skip:
    bounds = _clamp_bounds(call) if holder is None else (holder.min_val, holder.max_val)
    if not all(bound is None or isinstance(bound, (int, float)) for bound in bounds):
        return Skip("it clamps to bounds that are not constant")
    left = output.within(*bounds)
    # Where the bounds are crossed, torch gives the upper one.
    low, high = replace(left, low=min(left.low, left.high)).values
    return Replacement(steady.Steady(steady.clamp), (source,), {"low": low, "high": high})


def _clamp_bounds(call: Node) -> tuple[Any, Any]:
    return _CLAMPS[_name(call, None)](*_positional(call), **_named(call))


def _in_place_of(
    function: Callable[..., Any], call: Node, holder: nn.Module | None, source: Node
) -> Replacement | Skip:
    """``function`` on ``source``, with the settings of a call or of a module."""
    signature = inspect.signature(function)
    settings = list(signature.parameters)[1:]
    if holder is not None:
        held = {name: getattr(holder, name) for name in settings if hasattr(holder, name)}
        return Replacement(steady.Steady(function), (source,), held)
    try:
        given = signature.bind(*_positional(call), **_named(call)).arguments
    except TypeError as error:
        return Skip(f"it is called in a way the kernel does not know: {error}")
    options = {name: given[name] for name in settings if name in given}
    return Replacement(steady.Steady(function), (source,), options)


def _positional(call: Node) -> tuple[Any, ...]:
    """Positional arguments of a call, the operand first even where it was given by name."""
    operand = [call.kwargs[name] for name in ("input", "self") if name in call.kwargs]
    return (*operand, *call.args)


def _named(call: Node) -> dict[str, Any]:
    """Arguments given by name, but for the operand."""
    return {name: value for name, value in call.kwargs.items() if name not in {"input", "self"}}
