"""What a function or method is called with, besides what the pattern says of its arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from fusion_core.patterns import Operator, operation_of

BINARY = frozenset(
    {
        *("add", "sub", "rsub", "mul", "div", "maximum", "minimum", "matmul", "bmm", "mm"),
        *("floor_divide", "remainder", "pow"),
    }
)
"""Operations of two values of one shape."""

RANKS: Mapping[str, int] = {
    **{f"{kind}{dim}d": dim + 2 for kind in ("conv", "conv_transpose") for dim in (1, 2, 3)},
    **{f"max_pool{dim}d": dim + 2 for dim in (1, 2, 3)},
    **{f"avg_pool{dim}d": dim + 2 for dim in (1, 2, 3)},
    **{f"adaptive_{kind}_pool{dim}d": dim + 2 for kind in ("avg", "max") for dim in (1, 2, 3)},
    **dict.fromkeys(("linear", "mm", "addmm"), 2),
    **dict.fromkeys(("bmm", "matmul"), 3),
    **dict.fromkeys(("pixel_shuffle", "pixel_unshuffle", "channel_shuffle", "interpolate"), 4),
    **dict.fromkeys(("instance_norm", "group_norm"), 4),
    "scaled_dot_product_attention": 4,
}
"""How many dimensions the input of an operation has, where that is not free."""

_POOLS = {f"{kind}_pool{dim}d": (3, 1, 1) for kind in ("max", "avg") for dim in (1, 2, 3)}
_SIZES: Mapping[str, Callable[[Tensor], tuple[Any, ...]]] = {
    **{
        f"adaptive_{kind}_pool{dim}d": lambda x: (x.shape[-1] if x.dim() == 3 else x.shape[2:],)  # noqa: PLR2004
        for kind in ("avg", "max")
        for dim in (1, 2, 3)
    },
    **{f"conv{dim}d": lambda x: _filters(x, (x.shape[1],)) for dim in (1, 2, 3)},
    **{f"conv_transpose{dim}d": lambda x: _filters(x, (x.shape[1],)) for dim in (1, 2, 3)},
    "linear": lambda x: (torch.randn(x.shape[-1], x.shape[-1]), torch.randn(x.shape[-1])),
    "prelu": lambda _: (torch.full((1,), 0.25),),
    "reshape": lambda x: (x.shape[0], -1),
    "resize_": lambda x: (tuple(x.shape),),
    "permute": lambda x: (tuple(reversed(range(x.dim()))),),
    "expand": lambda x: tuple(x.shape),
    "repeat": lambda x: (1,) * x.dim(),
    "layer_norm": lambda x: (x.shape[-1:],),
    "rms_norm": lambda x: (x.shape[-1:],),
    "masked_fill": lambda x: (x > 0, 0.0),
    "addmm": lambda x: (x, x),
    "scaled_dot_product_attention": lambda x: (x, x),
}
_CONSTANTS: Mapping[str, tuple[Any, ...]] = {
    **_POOLS,
    "flatten": (1,),
    "transpose": (1, 2),
    "movedim": (1, 2),
    "unsqueeze": (1,),
    "unflatten": (1, (2, 2)),
    "narrow": (1, 0, 2),
    "chunk": (2, 1),
    "split": (2, 1),
    "repeat_interleave": (2,),
    "roll": (1,),
    "flip": ((1,),),
    "pad": ((1, 1),),
    "interpolate": (None, 2),
    "pixel_shuffle": (2,),
    "pixel_unshuffle": (2,),
    "channel_shuffle": (2,),
    "group_norm": (2,),
    "clamp": (0.0, 6.0),
    "clamp_min": (0.0,),
    "clamp_max": (6.0,),
    "softmax": (-1,),
    "log_softmax": (-1,),
}
_OPTIONS: Mapping[str, dict[str, Any]] = {"dropout": {"training": False}}


def _filters(x: Tensor, bias: tuple[int, ...]) -> tuple[Any, ...]:
    """Weight and bias that keep the number of channels, and a padding that keeps the size."""
    weight = torch.randn(x.shape[1], x.shape[1], *(3,) * (x.dim() - 2))
    return weight, torch.randn(bias), 1, 1


def name_of(operator: Operator) -> str:
    """The operation that an operator spells, else the operator's own name."""
    operation = operation_of(operator)
    if operation is not None:
        return str(operation.target)
    return str(getattr(operator.target, "__name__", operator.target))


def rank_of(operator: Operator) -> int | None:
    """How many dimensions an operator's first input has; None if any number will do."""
    return RANKS.get(name_of(operator))


def takes_a_list(operator: Operator) -> bool:
    """Whether the first argument is a list of values."""
    return name_of(operator) in {"cat", "stack"}


def further_arguments(operator: Operator, value: Tensor) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments behind the first one, ``value``, with which the call keeps most of its shape.

    Returns:
        Positional arguments, constants and tensors, and keyword arguments.
    """
    name = name_of(operator)
    options = dict(_OPTIONS.get(name, {}))
    if name in BINARY:
        return (value.clone(),), options
    if name in _SIZES:
        return _SIZES[name](value), options
    return _CONSTANTS.get(name, ()), options
