"""Qconfigs made to fit the dtypes a kernel takes, and ones made not to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from fusion_core.configs import (
    INTEGER_DTYPES,
    DTypeConfig,
    DTypeWithConstraints,
    ObserverSpec,
    QConfig,
)
from fusion_core.configs.dtypes import Place
from fusion_core.nn import (
    FixedQParamsObserver,
    MinMaxObserver,
    PerChannelMinMaxObserver,
    PlaceholderObserver,
)

_CODES = {
    torch.quint8: (0, 255),
    torch.uint8: (0, 255),
    torch.qint8: (-128, 127),
    torch.int8: (-128, 127),
    torch.quint4x2: (0, 15),
    torch.qint32: (-(2**31), 2**31 - 1),
    torch.int32: (-(2**31), 2**31 - 1),
}
_OBSERVED = {torch.int32: torch.qint32}
UNSIGNED = frozenset({torch.quint8, torch.uint8})
SIGNED = frozenset({torch.qint8, torch.int8})


def fitting_qconfig(
    config: DTypeConfig, *, per_channel: bool = False, is_affine: bool | None = None
) -> QConfig:
    """A qconfig whose observers stay within the limits of ``config``.

    Args:
        config: The combination of dtypes.
        per_channel: Whether the weight gets a scale for each output channel.
        is_affine: Whether the zero point of activations is free; default where nothing fixes it.

    Raises:
        ValueError: No observer can promise what ``config`` wants.
    """
    given = activation_observer(config.constraints("output"), is_affine=is_affine)
    read = activation_observer(
        config.constraints("input"), is_affine=is_affine, is_dynamic=config.is_dynamic
    )
    weight = weight_observer(config.constraints("weight"), per_channel=per_channel)
    return QConfig(activation=read, weight=weight, output=given)


def activation_observer(
    wanted: DTypeWithConstraints, *, is_affine: bool | None = None, is_dynamic: bool = False
) -> ObserverSpec:
    """An observer of values per tensor that ``wanted`` allows."""
    if wanted.dtype is not None and wanted.dtype not in INTEGER_DTYPES:
        return ObserverSpec(PlaceholderObserver, dtype=wanted.dtype)
    options = _options(wanted, torch.quint8)
    if wanted.scale_exact_match is not None:
        fixed = {
            "scale": wanted.scale_exact_match,
            "zero_point": wanted.zero_point_exact_match or 0,
        }
        return ObserverSpec(FixedQParamsObserver, **{**options, **fixed})
    is_symmetric = is_affine is False or wanted.zero_point_exact_match is not None
    qscheme = torch.per_tensor_symmetric if is_symmetric else torch.per_tensor_affine
    dynamic = {"is_dynamic": True} if is_dynamic else {}
    return ObserverSpec(MinMaxObserver, qscheme=qscheme, **options, **dynamic)


def weight_observer(wanted: DTypeWithConstraints, *, per_channel: bool) -> ObserverSpec:
    """An observer of weights that ``wanted`` allows; channels are the first dimension."""
    if wanted.dtype is not None and wanted.dtype not in INTEGER_DTYPES:
        return ObserverSpec(PlaceholderObserver, dtype=wanted.dtype)
    options = _options(wanted, torch.qint8)
    if per_channel:
        symmetric = torch.per_channel_symmetric
        return ObserverSpec(PerChannelMinMaxObserver, qscheme=symmetric, ch_axis=0, **options)
    return ObserverSpec(MinMaxObserver, qscheme=torch.per_tensor_symmetric, **options)


def _options(wanted: DTypeWithConstraints, default: torch.dtype) -> dict[str, Any]:
    dtype = wanted.dtype or default
    low, high = code_range(wanted, dtype)
    options: dict[str, Any] = {
        "dtype": _OBSERVED.get(dtype, dtype),
        "quant_min": low,
        "quant_max": high,
    }
    if wanted.scale_min_lower_bound is not None and wanted.scale_exact_match is None:
        options["eps"] = wanted.scale_min_lower_bound
    return options


def code_range(wanted: DTypeWithConstraints, dtype: torch.dtype) -> tuple[int, int]:
    """Smallest and largest code that ``wanted`` allows of ``dtype``."""
    low, high = _CODES[dtype]
    if wanted.quant_min_lower_bound is not None:
        low = max(low, int(wanted.quant_min_lower_bound))
    if wanted.quant_max_upper_bound is not None:
        high = min(high, int(wanted.quant_max_upper_bound))
    return low, high


def outside(
    config: DTypeConfig, fitting: QConfig, *, is_weighted: bool
) -> Iterator[tuple[str, QConfig]]:
    """Qconfigs that are in one thing outside of what ``config`` allows, and which.

    Args:
        config: The combination of dtypes.
        fitting: A qconfig within it.
        is_weighted: Whether the operation has a weight.
    """
    other = torch.quint8 if config.constraints("input").dtype in SIGNED else torch.qint8
    read = ObserverSpec(MinMaxObserver, dtype=other)
    yield f"inputs of {other}", fitting.model_copy(update={"input": read})
    places: tuple[Place, ...] = (
        ("input", "output", "weight") if is_weighted else ("input", "output")
    )
    for place in places:
        wanted = config.constraints(place)
        if wanted.dtype not in INTEGER_DTYPES or wanted.scale_exact_match is not None:
            continue
        observer: Any = getattr(fitting, place) or fitting.activation
        if code_range(wanted, wanted.dtype) != _CODES[wanted.dtype]:
            low, high = _CODES[wanted.dtype]
            wider = observer.with_options(quant_min=low, quant_max=high)
            yield f"{place} codes in [{low}, {high}]", fitting.model_copy(update={place: wider})
        if wanted.scale_min_lower_bound is not None:
            smaller = observer.with_options(eps=wanted.scale_min_lower_bound / 2)
            yield f"{place} scales half as large", fitting.model_copy(update={place: smaller})
