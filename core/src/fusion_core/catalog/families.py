"""Ready-made pattern configs by family of operations, as functions of the dtype configs a backend has kernels for."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any

import torch.nn.functional as F  # noqa: N812  the name everyone knows it by
from torch import nn

from fusion_core.catalog.constraints import (
    clamps_to_numbers,
    norm_sees_channels_last,
    pads_with_zeros,
    resizes_within_range,
    takes_a_number,
)
from fusion_core.catalog.fixed import with_fixed_range
from fusion_core.catalog.fusers import fuse_activation, fuse_batch_norm, fuse_batch_norm_activation
from fusion_core.configs import BackendPatternConfig, DTypeConfig, ObservationType
from fusion_core.nn import fused, reference
from fusion_core.patterns import (
    SPELLINGS,
    Operation,
    any_arguments,
    any_of,
    call,
    ops,
    optional,
)

_SHARED = ObservationType.OUTPUT_SHARE_OBSERVER_WITH_INPUT
_UNOBSERVED = ObservationType.INPUT_OUTPUT_NOT_OBSERVED

_BATCH_NORMS: dict[int, type[nn.Module]] = {
    1: nn.BatchNorm1d,
    2: nn.BatchNorm2d,
    3: nn.BatchNorm3d,
}
_CONVS: dict[int, type[nn.Module]] = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
_TRANSPOSED: dict[int, type[nn.Module]] = {
    1: nn.ConvTranspose1d,
    2: nn.ConvTranspose2d,
    3: nn.ConvTranspose3d,
}
_CONV_FUNCTIONS: dict[int, Any] = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
_TRANSPOSED_FUNCTIONS: dict[int, Any] = {
    1: F.conv_transpose1d,
    2: F.conv_transpose2d,
    3: F.conv_transpose3d,
}
_CLAMPS = ("clamp", "clamp_min", "clamp_max")
_BOUNDED = (any_arguments(Operation(name)) for name in ("hardtanh", *_CLAMPS))
_ACTIVATIONS = any_of(ops.relu, ops.relu6, *_BOUNDED)


POOLING = (
    *("max_pool1d", "max_pool2d", "max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d"),
    *("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "mean"),
)
"""Operations of :func:`pooling`."""

SHAPE = (
    *("flatten", "reshape", "permute", "transpose", "squeeze", "unsqueeze", "contiguous", "pad"),
)
"""Operations of :func:`shape`."""

GENERAL = (
    *("identity", "detach", "narrow", "repeat", "repeat_interleave", "stack"),
    *("pixel_shuffle", "pixel_unshuffle", "channel_shuffle", "interpolate"),
)
"""Operations of :func:`general`, beside items of :data:`PARTS`."""

PARTS = ("chunk", "split", "unbind")
"""Operations of :func:`general` that give a tuple; an item of it has the input's parameters."""

_PARTS = call(operator.getitem, any_of(*(any_arguments(Operation(name)) for name in PARTS)), ...)

ACTIVATIONS = ("relu", "relu6", "hardtanh", *_CLAMPS)
"""Operations of :func:`activation`."""

FIXED_RANGE = ("sigmoid", "tanh", "hardsigmoid", "softmax")
"""Operations of :func:`fixed_range`."""

OWN_RANGE = ("elu", "leaky_relu", "hardswish", "dropout")
"""Operations of :func:`own_range`, beside ``nn.PReLU``."""


def conv(
    dtypes: Sequence[DTypeConfig], dims: Iterable[int] = (1, 2, 3), *, functional: bool = False
) -> list[BackendPatternConfig]:
    """Convolutions, alone and with batch norm and activation behind them.

    Args:
        dtypes: Combinations of dtypes the kernel takes, preferred ones first.
        dims: Numbers of spatial dimensions the backend has kernels for.
        functional: Whether the functions, on weights that the graph hands to them, have kernels
            too. Their calls are then left as they are and not made into modules.
    """
    dims = tuple(dims)
    functions = [_CONV_FUNCTIONS[dim] for dim in dims if functional]
    modules = [
        config for dim in dims for config in _weighted(_CONVS[dim], _BATCH_NORMS[dim], dtypes)
    ]
    return modules + _functional(functions, optional(ops.relu), dtypes=dtypes)


def linear(
    dtypes: Sequence[DTypeConfig], *, functional: bool = False
) -> list[BackendPatternConfig]:
    """Linear layers, alone and with batch norm and activation behind them.

    Args:
        dtypes: Combinations of dtypes the kernel takes, preferred ones first.
        functional: Whether the function has a kernel too; see :func:`conv`.
    """
    modules = _weighted(nn.Linear, nn.BatchNorm1d, dtypes)
    return modules + _functional([F.linear] * functional, optional(ops.relu), dtypes=dtypes)


def conv_transpose(
    dtypes: Sequence[DTypeConfig], dims: Iterable[int] = (1, 2, 3), *, functional: bool = False
) -> list[BackendPatternConfig]:
    """Transposed convolutions, alone and with batch norm behind them.

    Args:
        dtypes: Combinations of dtypes the kernel takes, preferred ones first.
        dims: Numbers of spatial dimensions the backend has kernels for.
        functional: Whether the functions have kernels too; see :func:`conv`.
    """
    dims = tuple(dims)
    functions = [_TRANSPOSED_FUNCTIONS[dim] for dim in dims if functional]
    modules = [
        config
        for dim in dims
        for config in (
            _folded(_TRANSPOSED[dim], _BATCH_NORMS[dim], dtypes),
            _root(_TRANSPOSED[dim], _TRANSPOSED[dim], dtypes),
        )
    ]
    return modules + _functional(functions, dtypes=dtypes)


def batch_norm(
    dtypes: Sequence[DTypeConfig], dims: Iterable[int] = (2, 3)
) -> list[BackendPatternConfig]:
    """Batch norms that nothing before them takes up, with ReLU and without.

    Args:
        dtypes: Combinations of dtypes the kernel takes, preferred ones first.
        dims: Numbers of spatial dimensions the backend has kernels for, of 2 and 3.
    """
    kinds = {2: fused.BatchNormReLU2d, 3: fused.BatchNormReLU3d}
    dims = tuple(dims)
    with_relu = [
        BackendPatternConfig(
            (_BATCH_NORMS[dim], ops.relu),
            fuser_method=kinds[dim],
            fused_module=kinds[dim],
            dtype_configs=dtypes,
        )
        for dim in dims
    ]
    modules = (kind for dim in dims for kind in (_BATCH_NORMS[dim], kinds[dim]))
    return [*with_relu, BackendPatternConfig(any_of(*modules), dtype_configs=dtypes)]


def binary(
    dtypes: Sequence[DTypeConfig], names: Iterable[str] = ("add", "mul")
) -> list[BackendPatternConfig]:
    """Elementwise operations of two tensors, with ReLU and without.

    Args:
        dtypes: Combinations of dtypes the kernel takes, preferred ones first.
        names: Which operations.
    """
    pattern = (any_of(*map(Operation, names)), optional(ops.relu))
    return [BackendPatternConfig(pattern, dtype_configs=dtypes)]


def scalar(
    dtypes: Sequence[DTypeConfig], names: Iterable[str] = ("sub", "rsub", "div")
) -> list[BackendPatternConfig]:
    """Elementwise operations of a tensor and a number, with ReLU and without; :func:`binary` has sums and products.

    Args:
        dtypes: Combinations of dtypes the kernel takes, preferred ones first.
        names: Which operations. A number is never divided by a tensor.
    """
    pattern = (any_of(*map(Operation, names)), optional(ops.relu))
    return [BackendPatternConfig(pattern, dtype_configs=dtypes, constraint=takes_a_number)]


def matmul(dtypes: Sequence[DTypeConfig]) -> list[BackendPatternConfig]:
    """The product of two computed matrices, or of a batch of them."""
    return [BackendPatternConfig(any_of(ops.matmul, ops.bmm, ops.mm), dtype_configs=dtypes)]


def cat(dtypes: Sequence[DTypeConfig]) -> list[BackendPatternConfig]:
    """Concatenation; all inputs and the output share their parameters."""
    return _shared(("cat",), dtypes)


def pooling(dtypes: Sequence[DTypeConfig]) -> list[BackendPatternConfig]:
    """Pooling and mean; the output has the input's parameters."""
    return _shared(POOLING, dtypes)


def shape(dtypes: Sequence[DTypeConfig]) -> list[BackendPatternConfig]:
    """What moves values without changing them, constant padding included; the output has the input's parameters."""
    return _shared(SHAPE, dtypes, constraint=pads_with_zeros)


def general(dtypes: Sequence[DTypeConfig]) -> list[BackendPatternConfig]:
    """Less common operations that give values within their input's range; the output has the input's parameters."""
    operations = (*map(Operation, GENERAL), "resize_", _PARTS)
    return [_moving(operations, dtypes, constraint=resizes_within_range)]


def sizes() -> list[BackendPatternConfig]:
    """The size of a tensor, and division with a floor, which models do on sizes; neither is observed."""
    pattern = any_of("size", (getattr, "shape"), ops.floor_divide)
    return [BackendPatternConfig(pattern, observation_type=_UNOBSERVED)]


def activation(dtypes: Sequence[DTypeConfig]) -> list[BackendPatternConfig]:
    """Clamping activations that stand alone; the output has the input's parameters."""
    return _shared(ACTIVATIONS, dtypes, constraint=clamps_to_numbers)


def fixed_range(dtypes: Sequence[DTypeConfig]) -> list[BackendPatternConfig]:
    """Activations whose output range is known without data, which all codes are spread over.

    Codes from ``l`` to ``h`` for values in [0, 1) have the scale ``1 / (h - l + 1)`` and the zero
    point ``l``, those of tanh, which gives values in (-1, 1), twice that scale and their middle.

    Args:
        dtypes: Combinations of dtypes the kernel takes, preferred ones first. Where the output has
            codes, it gets this scale and zero point; an exact zero point that it has already stays.
    """
    positive = any_of(*(Operation(name) for name in FIXED_RANGE if name != "tanh"))
    of_positive = [with_fixed_range(each, lowest=0) for each in dtypes]
    of_both = [with_fixed_range(each, lowest=-1) for each in dtypes]
    return [
        BackendPatternConfig(positive, dtype_configs=of_positive),
        BackendPatternConfig(ops.tanh, dtype_configs=of_both),
    ]


def own_range(dtypes: Sequence[DTypeConfig]) -> list[BackendPatternConfig]:
    """Elementwise operations of one tensor whose output range is their own; dropout grows values in training."""
    operations = any_of(*map(Operation, OWN_RANGE), nn.PReLU)
    return [BackendPatternConfig(operations, dtype_configs=dtypes)]


def normalization(dtypes: Sequence[DTypeConfig]) -> list[BackendPatternConfig]:
    """Norms over the values of one sample: layer, group and instance norm."""
    weights = {"weight": 2, "bias": 3}
    return [
        BackendPatternConfig(
            any_of(ops.layer_norm, ops.group_norm),
            dtype_configs=dtypes,
            input_type_to_index=weights,
        ),
        BackendPatternConfig(
            ops.instance_norm, dtype_configs=dtypes, input_type_to_index={"weight": 3, "bias": 4}
        ),
    ]


def embedding(dtypes: Sequence[DTypeConfig]) -> list[BackendPatternConfig]:
    """Embeddings, one by one and in bags; by weight alone, since what they read is indices."""
    return [_root(kind, kind, dtypes) for kind in (nn.Embedding, nn.EmbeddingBag)]


def recurrent(dtypes: Sequence[DTypeConfig]) -> list[BackendPatternConfig]:
    """Recurrent layers and cells; all weights of one are quantized alike."""
    kinds = (nn.LSTM, nn.GRU, nn.LSTMCell, nn.GRUCell, nn.RNNCell)
    return [_root(kind, kind, dtypes) for kind in kinds]


def _weighted(
    kind: type[nn.Module], norm: type[nn.Module], dtypes: Sequence[DTypeConfig]
) -> list[BackendPatternConfig]:
    constraint = norm_sees_channels_last if kind is nn.Linear else None
    return [
        BackendPatternConfig(
            (kind, norm, _ACTIVATIONS),
            fuser_method=fuse_batch_norm_activation,
            fused_module=fused.Activated,
            root_module=kind,
            dtype_configs=dtypes,
            constraint=constraint,
        ),
        _folded(kind, norm, dtypes, constraint),
        BackendPatternConfig(
            (kind, _ACTIVATIONS),
            fuser_method=fuse_activation,
            fused_module=fused.Activated,
            root_module=kind,
            dtype_configs=dtypes,
        ),
        _root(any_of(kind, fused.RELU_OF[kind], fused.HARDTANH_OF[kind]), kind, dtypes),
    ]


def _folded(
    kind: type[nn.Module],
    norm: type[nn.Module],
    dtypes: Sequence[DTypeConfig],
    constraint: Any = None,
) -> BackendPatternConfig:
    return BackendPatternConfig(
        (kind, norm),
        fuser_method=fuse_batch_norm,
        fused_module=kind,
        root_module=kind,
        dtype_configs=dtypes,
        constraint=constraint,
    )


def _root(
    pattern: Any, kind: type[nn.Module], dtypes: Sequence[DTypeConfig]
) -> BackendPatternConfig:
    return BackendPatternConfig(
        pattern,
        dtype_configs=dtypes,
        root_module=kind,
        reference_quantized_module=reference.REFERENCE_OF[kind],
    )


def _functional(
    functions: Sequence[Any], *behind: Any, dtypes: Sequence[DTypeConfig]
) -> list[BackendPatternConfig]:
    weights = {"weight": 1, "bias": 2}
    patterns = [(any_of(*functions), *behind)] if functions else []
    return [
        BackendPatternConfig(each, dtype_configs=dtypes, input_type_to_index=weights)
        for each in patterns
    ]


def _shared(
    names: Iterable[str], dtypes: Sequence[DTypeConfig], constraint: Any = None
) -> list[BackendPatternConfig]:
    # What is no operation of the alias table is the name of a method.
    operations = (Operation(name) if name in SPELLINGS else name for name in names)
    return [_moving(operations, dtypes, constraint)]


def _moving(
    operations: Iterable[Any], dtypes: Sequence[DTypeConfig], constraint: Any
) -> BackendPatternConfig:
    return BackendPatternConfig(
        any_of(*operations),
        dtype_configs=dtypes,
        observation_type=_SHARED,
        constraint=constraint,
    )
