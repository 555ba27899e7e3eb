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

_CONVOLUTIONS = {
    f"{kind}{dim}d": dim + 2 for kind in ("conv", "conv_transpose") for dim in (1, 2, 3)
}
RANKS: Mapping[str, int] = {
    **_CONVOLUTIONS,
    **{f"{kind}_pool{dim}d": dim + 2 for kind in ("max", "avg") for dim in (1, 2, 3)},
    **{f"adaptive_{kind}_pool{dim}d": dim + 2 for kind in ("avg", "max") for dim in (1, 2, 3)},
    **dict.fromkeys(("linear", "mm", "addmm"), 2),
    **dict.fromkeys(("bmm", "matmul"), 3),
    **dict.fromkeys(("pixel_shuffle", "pixel_unshuffle", "channel_shuffle", "interpolate"), 4),
    **dict.fromkeys(("instance_norm", "group_norm"), 4),
    "scaled_dot_product_attention": 4,
}
"""How many dimensions the input of an operation has, where that is not free."""

PARAMETERS = frozenset({*_CONVOLUTIONS, "linear", "prelu"})
"""Operations whose further tensors are parameters of the model, not inputs."""


def _filters(x: Tensor) -> tuple[Any, ...]:
    """Weight and bias that keep the number of channels, and a padding that keeps the size."""
    weight = torch.randn(x.shape[1], x.shape[1], *(3,) * (x.dim() - 2))
    return weight, torch.randn(x.shape[1]), 1, 1


_POOLS = {f"{kind}_pool{dim}d": (3, 1, 1) for kind in ("max", "avg") for dim in (1, 2, 3)}
_SIZES: Mapping[str, Callable[[Tensor], tuple[Any, ...]]] = {
    **{
        f"adaptive_{kind}_pool{dim}d": lambda x: (x.shape[-1] if x.dim() == 3 else x.shape[2:],)  # noqa: PLR2004
        for kind in ("avg", "max")
        for dim in (1, 2, 3)
    },
    **dict.fromkeys(_CONVOLUTIONS, _filters),
    "linear": lambda x: (torch.randn(x.shape[-1], x.shape[-1]), torch.randn(x.shape[-1])),
    "prelu": lambda _: (torch.full((1,), 0.25),),
    "resize_": lambda x: (tuple(x.shape),),
    "permute": lambda x: (tuple(reversed(range(x.dim()))),),
    "layer_norm": lambda x: (x.shape[-1:],),
    "rms_norm": lambda x: (x.shape[-1:],),
    "masked_fill": lambda x: (x > 0, 0.0),
    **dict.fromkeys(("addmm", "scaled_dot_product_attention"), lambda x: (x, x)),
    "where": lambda x: (torch.randn(x.shape), torch.randn(x.shape)),
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

# Where spellings of one operation differ in what they are called with. What a pattern names that is
# no operation at all is tried on one, two and three tensors.
_OTHERWISE: Mapping[str, Callable[[Tensor], tuple[tuple[Any, ...], ...]]] = {
    **dict.fromkeys(BINARY, lambda _: ((2.0,),)),
    **dict.fromkeys(("clamp", "clamp_min", "clamp_max"), lambda x: ((torch.full(x.shape, 0.5),),)),
    **dict.fromkeys(("mean", "sum"), lambda _: (((1,), True), ())),
    "reshape": lambda x: ((x.shape[0], -1), ((x.shape[0], -1),)),
    "expand": lambda x: (tuple(x.shape), (tuple(x.shape),)),
    "repeat": lambda x: ((1,) * x.dim(), ((1,) * x.dim(),)),
    "roll": lambda _: (((1,),),),
    "squeeze": lambda _: ((1,), ((1,),), ()),
    "movedim": lambda _: (((1,), (2,)),),
    "split": lambda x: (((1, x.shape[1] - 1), 1),),
    "repeat_interleave": lambda x: ((torch.ones(x.shape[0], dtype=torch.int64), 0),),
    "masked_fill": lambda x: ((x > 0, torch.tensor(0.0)),),
    "where": lambda x: ((torch.randn(x.shape), 0.0), (0.0, torch.randn(x.shape)), (0.0, 1.0)),
    "dropout": lambda _: ((0.5, False),),
}


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


def first_input(operator: Operator, like: Tensor) -> Tensor:
    """What the first argument of an operator may be, in the shape of ``like``."""
    return like > 0 if name_of(operator) == "where" else like


def further_arguments(
    operator: Operator, value: Tensor, choice: int = 0
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments behind the first one, ``value``, with which the call keeps most of its shape.

    Args:
        operator: What is called.
        value: Its first argument.
        choice: Which of several such lists; the usual one is 0. Where there are not so many, the
            last one.

    Returns:
        Positional arguments, constants and tensors, and keyword arguments.
    """
    found = _choices(operator, value)
    return found[min(choice, len(found) - 1)]


MOST_CHOICES = 4
"""No operator has more lists of arguments that :func:`further_arguments` can give."""


def _choices(operator: Operator, value: Tensor) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
    name = name_of(operator)
    others = _OTHERWISE.get(name)
    otherwise: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
    if others is not None:
        otherwise = [(each, {}) for each in others(value)]
    options = dict(_OPTIONS.get(name, {}))
    if name in BINARY:
        return [((value.clone(),), {}), *otherwise]
    if name in _SIZES:
        return [(_SIZES[name](value), options), *otherwise]
    if name in _CONSTANTS or name in _OPTIONS:
        return [(_CONSTANTS.get(name, ()), options), *otherwise]
    if otherwise or operation_of(operator) is not None:
        return otherwise or [((), {})]
    return [((value.clone(),) * count, {}) for count in (1, 2)]
