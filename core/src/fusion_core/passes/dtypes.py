"""Whether what a qconfig promises is what a kernel takes; one rule for modules and functions alike."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from fusion_core.configs import (
    DTypeConfig,
    DTypeWithConstraints,
    QConfig,
    QuantizedType,
    quantized_type,
)

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

    Args:
        configs: Combinations the backend's kernel takes, preferred ones first.
        qconfig: What the operation is to be quantized with.
        weighted: Whether the operation has a weight.

    Returns:
        The combination, or None and why the first one is not satisfied.
    """
    first = "the backend lists no dtypes for it"
    for index, config in enumerate(configs):
        problem = _problem(config, qconfig, weighted=weighted)
        if problem is None:
            return config, ""
        first = problem if index == 0 else first
    return None, first


def allows_float_output(configs: Iterable[DTypeConfig], qconfig: QConfig) -> bool:
    """Whether some kernel takes ``qconfig``'s input and weight and gives float32."""
    return any(
        config.constraints("output").dtype is torch.float32
        and not config.is_dynamic
        and unsatisfied(config.constraints("input"), quantized_type(qconfig.input_observer)) is None
        and unsatisfied(config.constraints("weight"), quantized_type(qconfig.weight)) is None
        for config in configs
    )


def _problem(config: DTypeConfig, qconfig: QConfig, *, weighted: bool) -> str | None:
    dynamic = quantized_type(qconfig.input_observer).is_dynamic
    if dynamic != config.is_dynamic:
        return (
            "the qconfig is dynamic, the backend's kernel is not"
            if dynamic
            else "the backend's kernel is dynamic"
        )
    checks: list[tuple[str, DTypeWithConstraints, QuantizedType]] = [
        ("input", config.constraints("input"), quantized_type(qconfig.input_observer)),
        ("output", config.constraints("output"), _given(qconfig, dynamic=dynamic)),
    ]
    if weighted:
        checks.append(("weight", config.constraints("weight"), quantized_type(qconfig.weight)))
    for place, wanted, have in checks:
        problem = unsatisfied(wanted, have)
        if problem is not None:
            return f"its {place} {problem}"
    return None


def _given(qconfig: QConfig, *, dynamic: bool) -> QuantizedType:
    """What the output will be; nobody knows beforehand what a dynamic operation would give, so it is float."""
    return _FLOAT if dynamic else quantized_type(qconfig.output_observer)


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
    if have.quant_min is None or have.quant_max is None:
        return (
            f"must have codes in [{low}, {high}], the qconfig's observer says nothing of its range"
        )
    if (low is not None and have.quant_min < low) or (high is not None and have.quant_max > high):
        return f"must have codes in [{low}, {high}], the qconfig gives [{have.quant_min}, {have.quant_max}]"
    return None


def _scale_problem(wanted: DTypeWithConstraints, have: QuantizedType) -> str | None:
    floor, ceiling = wanted.scale_min_lower_bound, wanted.scale_max_upper_bound
    smallest, largest = (have.eps, None) if have.fixed is None else (have.fixed[0],) * 2
    if floor is not None and (smallest is None or smallest < floor):
        return f"must have a scale of at least {floor}, the qconfig's smallest is {smallest}"
    if ceiling is not None and (largest is None or largest > ceiling):
        found = "has no limit" if largest is None else f"is {largest}"
        return f"must have a scale of at most {ceiling}, the qconfig's {found}"
    known = (None if have.fixed is None else have.fixed[0], _known_zero_point(have))
    exact = (wanted.scale_exact_match, wanted.zero_point_exact_match)
    names = ("scale", "zero point")
    for name, need, given in zip(names, exact, known, strict=True):
        if need is not None and need != given:
            found = "measures it" if given is None else f"gives {given}"
            return f"must have the fixed {name} {need}, the qconfig {found}"
    return None


def _known_zero_point(have: QuantizedType) -> int | None:
    """The zero point, where it does not depend on data; signed codes that are symmetric have it at 0."""
    if have.fixed is not None:
        return have.fixed[1]
    symmetric = have.qscheme in {torch.per_tensor_symmetric, torch.per_channel_symmetric}
    return 0 if symmetric and have.dtype in {torch.qint8, torch.int8, torch.qint32} else None
