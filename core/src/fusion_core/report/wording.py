"""What a backend's configs say, in a few words each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from fusion_core.configs import (
    BackendPatternConfig,
    DTypeConfig,
    DTypeWithConstraints,
    ObservationType,
    ObserverFactory,
    QConfig,
    QConfigMapping,
    quantized_type,
)

_OBSERVED = {
    ObservationType.OUTPUT_USE_DIFFERENT_OBSERVER_AS_INPUT: "output observed by itself",
    ObservationType.OUTPUT_SHARE_OBSERVER_WITH_INPUT: "output shares the input's observer",
    ObservationType.INPUT_OUTPUT_NOT_OBSERVED: "not observed, stays as it is",
}


def dtypes_in_words(config: DTypeConfig) -> str:
    """``quint8 with weight qint8 [-64, 63] gives quint8``."""
    text = _limits(config.constraints("input"))
    for place in ("weight", "bias"):
        wanted = config.constraints(place)
        text += "" if wanted == DTypeWithConstraints() else f" with {place} {_limits(wanted)}"
    text = f"{text} gives {_limits(config.constraints('output'))}"
    return f"{text}, dynamic" if config.is_dynamic else text


def _limits(wanted: DTypeWithConstraints) -> str:
    parts = ["any dtype" if wanted.dtype is None else _dtype(wanted.dtype)]
    codes = (wanted.quant_min_lower_bound, wanted.quant_max_upper_bound)
    if codes != (None, None):
        parts.append(f"[{', '.join('' if each is None else f'{each:g}' for each in codes)}]")
    if wanted.scale_exact_match is not None:
        parts.append(f"of scale {wanted.scale_exact_match:g}")
    if wanted.scale_min_lower_bound is not None:
        parts.append(f"of scale {wanted.scale_min_lower_bound:g} at least")
    if wanted.scale_max_upper_bound is not None:
        parts.append(f"of scale {wanted.scale_max_upper_bound:g} at most")
    if wanted.zero_point_exact_match is not None:
        parts.append(f"of zero point {wanted.zero_point_exact_match}")
    return " ".join(parts)


def observation_in_words(config: BackendPatternConfig) -> str:
    """How the output of a pattern is observed."""
    text = _OBSERVED[config.observation_type]
    cases = config.num_tensor_args_to_observation_type.items()
    return "; ".join([text, *(f"with {count} tensors {_OBSERVED[each]}" for count, each in cases)])


def qconfigs_in_words(mapping: QConfigMapping) -> Iterator[tuple[str, str]]:
    """Each rule of a mapping and its qconfig, the most general rule first."""
    yield "everything else", qconfig_in_words(mapping.global_qconfig)
    tables: tuple[tuple[str, dict[Any, QConfig | None]], ...] = (
        ("operation type", mapping.object_type_qconfigs),
        ("module name regex", mapping.module_name_regex_qconfigs),
        ("module name", mapping.module_name_qconfigs),
        ("module name, type and index", mapping.module_name_object_type_order_qconfigs),
    )
    for what, table in tables:
        for key, qconfig in table.items():
            parts = key if isinstance(key, tuple) else (key,)
            named = ", ".join(name_of(each) if callable(each) else str(each) for each in parts)
            yield f"{what} {named}", qconfig_in_words(qconfig)


def qconfig_in_words(qconfig: QConfig | None) -> str:
    """Which observer sees what, and which codes it gives; ``float`` for None."""
    if qconfig is None:
        return "float"
    places: dict[str, ObserverFactory | None] = {
        "activation": qconfig.activation,
        "input": qconfig.input,
        "output": qconfig.output,
        "weight": qconfig.weight,
    }
    said = (f"{place} {_observer(each)}" for place, each in places.items() if each is not None)
    return "; ".join(said)


def _observer(factory: ObserverFactory) -> str:
    promised = quantized_type(factory)
    parts = [_dtype(promised.dtype)]
    if promised.quant_min is not None and promised.quant_max is not None:
        parts.append(f"[{promised.quant_min}, {promised.quant_max}]")
    if promised.qscheme is not None:
        parts.append(str(promised.qscheme).removeprefix("torch.").replace("_", " "))
    observer: Any = getattr(factory, "observer", factory)
    return f"{' '.join(parts)} by {name_of(observer)}"


def name_of(function: Callable[..., Any]) -> str:
    """Name of a function or type; of what a partial calls."""
    while isinstance(function, partial):
        function = function.func
    name = str(getattr(function, "__qualname__", type(function).__qualname__))
    return name.removeprefix("_VariableFunctionsClass.")  # torch's class of builtin functions


def _dtype(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
