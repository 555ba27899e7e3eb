"""Ready-made pattern configs by family of operations, as functions of the dtype configs a backend has kernels for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from torch import nn
from torch.fx import Node

from fusion_core.catalog.fusers import fuse_activation, fuse_batch_norm, fuse_batch_norm_activation
from fusion_core.configs import BackendPatternConfig, DTypeConfig, ObservationType, Skip
from fusion_core.nn import fused, reference
from fusion_core.patterns import Operation, any_arguments, any_of, ops

_SEPARATE = ObservationType.OUTPUT_USE_DIFFERENT_OBSERVER_AS_INPUT
_SHARED = ObservationType.OUTPUT_SHARE_OBSERVER_WITH_INPUT

_BATCH_NORMS: dict[type[nn.Module], type[nn.Module]] = {
    nn.Conv1d: nn.BatchNorm1d,
    nn.Conv2d: nn.BatchNorm2d,
    nn.Conv3d: nn.BatchNorm3d,
    nn.Linear: nn.BatchNorm1d,
}
_ACTIVATIONS = any_of(ops.relu, ops.relu6, any_arguments(ops.hardtanh), any_arguments(ops.clamp))

_ROWS_AND_CHANNELS = 2

POOLING = (
    *("max_pool1d", "max_pool2d", "max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d"),
    *("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "mean"),
)
"""Operations of :func:`pooling`."""

SHAPE = (
    *("flatten", "reshape", "permute", "transpose", "squeeze", "unsqueeze", "contiguous", "pad"),
)
"""Operations of :func:`shape`."""

ACTIVATIONS = ("relu", "relu6", "hardtanh", "clamp")
"""Operations of :func:`activation`."""


def conv(
    dtypes: Sequence[DTypeConfig], dims: Iterable[int] = (1, 2, 3)
) -> list[BackendPatternConfig]:
    """Convolutions, alone and with batch norm and activation behind them.

    Args:
        dtypes: Combinations of dtypes the kernel takes, preferred ones first.
        dims: Numbers of spatial dimensions the backend has kernels for.
    """
    kinds: dict[int, type[nn.Module]] = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
    return [config for dim in dims for config in _weighted(kinds[dim], dtypes)]


def linear(dtypes: Sequence[DTypeConfig]) -> list[BackendPatternConfig]:
    """Linear layers, alone and with batch norm and activation behind them.

    Args:
        dtypes: Combinations of dtypes the kernel takes, preferred ones first.
    """
    return _weighted(nn.Linear, dtypes)


def binary(
    dtypes: Sequence[DTypeConfig], names: Iterable[str] = ("add", "mul")
) -> list[BackendPatternConfig]:
    """Elementwise operations of two tensors, with ReLU and without.

    Args:
        dtypes: Combinations of dtypes the kernel takes, preferred ones first.
        names: Which operations.
    """
    return [
        BackendPatternConfig(pattern, dtype_configs=dtypes, observation_type=_SEPARATE)
        for name in names
        for pattern in ((Operation(name), ops.relu), Operation(name))
    ]


def cat(dtypes: Sequence[DTypeConfig]) -> list[BackendPatternConfig]:
    """Concatenation; all inputs and the output share their parameters."""
    return _shared(("cat",), dtypes)


def pooling(dtypes: Sequence[DTypeConfig]) -> list[BackendPatternConfig]:
    """Pooling and mean; the output has the input's parameters."""
    return _shared(POOLING, dtypes)


def shape(dtypes: Sequence[DTypeConfig]) -> list[BackendPatternConfig]:
    """What moves values without changing them, constant padding included; the output has the input's parameters."""
    return _shared(SHAPE, dtypes)


def activation(dtypes: Sequence[DTypeConfig]) -> list[BackendPatternConfig]:
    """Clamping activations that stand alone; the output has the input's parameters."""
    return _shared(ACTIVATIONS, dtypes)


def _shared(names: Iterable[str], dtypes: Sequence[DTypeConfig]) -> list[BackendPatternConfig]:
    return [
        BackendPatternConfig(
            Operation(name),
            dtype_configs=dtypes,
            observation_type=_SHARED,
            constraint=_CONSTRAINTS.get(name),
        )
        for name in names
    ]


def _weighted(kind: type[nn.Module], dtypes: Sequence[DTypeConfig]) -> list[BackendPatternConfig]:
    norm = _BATCH_NORMS[kind]
    constraint = norm_sees_channels_last if kind is nn.Linear else None
    fusions: list[tuple[tuple[Any, ...], Any, type[nn.Module], Any]] = [
        ((kind, norm, _ACTIVATIONS), fuse_batch_norm_activation, fused.Activated, constraint),
        ((kind, norm), fuse_batch_norm, kind, constraint),
        ((kind, _ACTIVATIONS), fuse_activation, fused.Activated, None),
    ]
    configs = [
        BackendPatternConfig(
            pattern,
            fuser_method=fuser,
            fused_module=module,
            root_module=kind,
            dtype_configs=dtypes,
            constraint=check,
        )
        for pattern, fuser, module, check in fusions
    ]
    modules = (kind, fused.RELU_OF[kind], fused.HARDTANH_OF[kind])
    return configs + [
        BackendPatternConfig(
            module,
            dtype_configs=dtypes,
            root_module=kind,
            reference_quantized_module=reference.REFERENCE_OF[kind],
        )
        for module in modules
    ]


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


def pads_with_zeros(node: Any) -> Skip | None:
    """Refuse padding other than with a constant; that needs values which the kernel does not have."""
    positional = node.args[2:3]
    mode = node.kwargs.get("mode", positional[0] if positional else "constant")
    if node.op == "call_module" or mode == "constant":
        return None
    return Skip(f"it pads in mode {mode!r}")


def clamps_to_numbers(node: Any) -> Skip | None:
    """Refuse to clamp to the values of a tensor."""
    tensors = len(node.all_input_nodes) > 1
    return Skip("it clamps to bounds that are not constant") if tensors else None


_CONSTRAINTS = {"pad": pads_with_zeros, "clamp": clamps_to_numbers}
