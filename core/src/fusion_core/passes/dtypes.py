"""Whether what a qconfig promises is what a kernel takes; one rule for modules and functions alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch

from fusion_core.configs import (
    INTEGER_DTYPES,
    DTypeConfig,
    DTypeWithConstraints,
    Mode,
    QConfig,
    QuantizedType,
    mode_of,
    quantized_type,
)
from fusion_core.configs.dtypes import Place

_FLOAT = QuantizedType(
    torch.float32,
    qscheme=None,
    quant_min=None,
    quant_max=None,
    eps=None,
    is_dynamic=False,
    fixed=None,
)
_SAME = {torch.uint8: torch.quint8, torch.int8: torch.qint8, torch.int32: torch.qint32}


def choose_dtype_config(
    configs: Iterable[DTypeConfig], qconfig: QConfig, *, weighted: bool
) -> tuple[DTypeConfig | None, str]:
    """The first combination of dtypes that ``qconfig`` satisfies.

    Input, output, weight and bias are held against the combination alike, whether a module or a
    function has them. The output of a dynamic operation is float32.

    Args:
        configs: Combinations the backend's kernel takes, preferred ones first.
        qconfig: What the operation is to be quantized with.
        weighted: Whether the operation has a weight.

    Returns:
        The combination, or None and why the first one is not satisfied.
    """
    nonsense = _nonsense(qconfig, weighted=weighted)
    if nonsense is not None:
        return None, nonsense
    first = "the backend lists no dtypes for it"
    for index, config in enumerate(configs):
        problem = _problem(config, qconfig, weighted=weighted)
        if problem is None:
            return config, ""
        first = problem if index == 0 else first
    return None, first


def allows_float_output(configs: Iterable[DTypeConfig], qconfig: QConfig) -> bool:
    """Whether some kernel takes ``qconfig``'s input, weight and bias and gives float32."""
    return any(
        config.constraints("output").dtype is torch.float32
        and not config.is_dynamic
        and _place_problem(
            config, {"output": _FLOAT, "input": _input(qconfig), **_weights(qconfig)}
        )
        is None
        for config in configs
    )


def _nonsense(qconfig: QConfig, *, weighted: bool) -> str | None:
    """Why ``qconfig`` means nothing for an operation, whatever the backend."""
    mode = mode_of(qconfig)
    if mode is not Mode.STATIC and not weighted:
        return f"the qconfig is {mode.value}, and it has no weight"
    given = _input(qconfig).dtype
    if mode is Mode.STATIC and given not in INTEGER_DTYPES:
        return f"the qconfig gives its input {given}, which has no codes"
    weight = quantized_type(qconfig.weight)
    if weighted and weight.dtype not in INTEGER_DTYPES and weight.dtype is not torch.float16:
        return f"the qconfig gives its weight {weight.dtype}, which is not quantized"
    return None


def _problem(config: DTypeConfig, qconfig: QConfig, *, weighted: bool) -> str | None:
    dynamic = mode_of(qconfig) is Mode.DYNAMIC
    if dynamic != config.is_dynamic:
        return (
            "the qconfig is dynamic, the backend's kernel is not"
            if dynamic
            else "the backend's kernel is dynamic"
        )
    # Nobody knows beforehand what range a dynamic operation would give, so it gives float.
    output = _FLOAT if dynamic else quantized_type(qconfig.output_observer)
    places: dict[Place, QuantizedType] = {"input": _input(qconfig), "output": output}
    return _place_problem(config, {**places, **(_weights(qconfig) if weighted else {})})


def _input(qconfig: QConfig) -> QuantizedType:
    return quantized_type(qconfig.input_observer)


def _weights(qconfig: QConfig) -> dict[Place, QuantizedType]:
    bias = _FLOAT if qconfig.bias is None else quantized_type(qconfig.bias)
    return {"weight": quantized_type(qconfig.weight), "bias": bias}


def _place_problem(config: DTypeConfig, places: Mapping[Place, QuantizedType]) -> str | None:
    for place, have in places.items():
        problem = unsatisfied(config.constraints(place), have)
        if problem is not None:
            return f"its {place} {problem}"
    return None


def unsatisfied(wanted: DTypeWithConstraints, have: QuantizedType) -> str | None:
    """Why ``have`` is not what ``wanted`` allows, or None where it is."""
    if wanted.dtype is not None and _SAME.get(wanted.dtype, wanted.dtype) != _SAME.get(
        have.dtype, have.dtype
    ):
        return f"must be {wanted.dtype}, the qconfig gives {have.dtype}"
    return _range_problem(wanted, have) or _scale_problem(wanted, have)


def _range_problem(wanted: DTypeWithConstraints, have: QuantizedType) -> str | None:
    low, high = wanted.quant_min_lower_bound, wanted.quant_max_upper_bound
    if low is None and high is None:
        return None
    limits = f"must have codes {_between(low, high)}, the qconfig"
    if have.quant_min is None or have.quant_max is None:
        return f"{limits}'s observer says nothing of its range"
    if (low is not None and have.quant_min < low) or (high is not None and have.quant_max > high):
        return f"{limits} gives [{have.quant_min}, {have.quant_max}]"
    return None


def _between(low: float | None, high: float | None) -> str:
    if low is None:
        return f"of at most {high}"
    return f"of at least {low}" if high is None else f"in [{low}, {high}]"


def _scale_problem(wanted: DTypeWithConstraints, have: QuantizedType) -> str | None:
    floor, ceiling = wanted.scale_min_lower_bound, wanted.scale_max_upper_bound
    smallest, largest = (have.eps, None) if have.fixed is None else (have.fixed[0],) * 2
    if floor is not None and (smallest is None or smallest < floor):
        return f"must have a scale of at least {floor}, the qconfig's smallest is {smallest}"
    if ceiling is not None and (largest is None or largest > ceiling):
        found = "has no limit" if largest is None else f"is {largest}"
        return f"must have a scale of at most {ceiling}, the qconfig's {found}"
    known = (None if have.fixed is None else have.fixed[0], known_zero_point(have))
    exact = (wanted.scale_exact_match, wanted.zero_point_exact_match)
    names = ("scale", "zero point")
    for name, need, given in zip(names, exact, known, strict=True):
        if need is not None and need != given:
            found = "measures it" if given is None else f"gives {given}"
            return f"must have the fixed {name} {need}, the qconfig {found}"
    return None


def known_zero_point(have: QuantizedType) -> int | None:
    """The zero point, where it does not depend on data; signed codes that are symmetric have it at 0."""
    if have.fixed is not None:
        return have.fixed[1]
    symmetric = have.qscheme in {torch.per_tensor_symmetric, torch.per_channel_symmetric}
    return 0 if symmetric and have.dtype in {torch.qint8, torch.int8, torch.qint32} else None
