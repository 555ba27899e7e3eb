"""Which qconfig mapping counts: the user's, a preset, or what a backend has for a mode."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

import torch
from torch import nn
from torch.nn import functional

from fusion_core.catalog import (
    dynamic_qconfig,
    float16_qconfig,
    qat_qconfig_mapping,
    static_qconfig,
    weight_only_qconfig,
)
from fusion_core.catalog.presets import PRESETS, preset
from fusion_core.configs import (
    INTEGER_DTYPES,
    DTypeConfig,
    DTypeWithConstraints,
    Mode,
    ObserverFactory,
    QConfig,
    QConfigMapping,
    as_qconfig,
    as_qconfig_mapping,
    mode_of,
    quantized_type,
)
from fusion_core.errors import QConfigError, UnknownPresetError, UnsupportedModeError
from fusion_core.passes.dtypes import choose_dtype_config, unsatisfied
from fusion_core.patterns import Op, Operation
from fusion_core.registry import Backend, PatternEntry

# A call of the function becomes the module where its weight is a parameter, and keeps its name.
_FUNCTIONS: Final[Mapping[Any, Any]] = MappingProxyType(
    {
        nn.Linear: functional.linear,
        nn.Conv1d: functional.conv1d,
        nn.Conv2d: functional.conv2d,
        nn.Conv3d: functional.conv3d,
        nn.ConvTranspose1d: functional.conv_transpose1d,
        nn.ConvTranspose2d: functional.conv_transpose2d,
        nn.ConvTranspose3d: functional.conv_transpose3d,
        nn.Embedding: functional.embedding,
    }
)

MODES: Final = ("static", "dynamic", "weight_only", "qat")


def mapping_for(
    backend: Backend,
    *,
    mode: str | Mode | None = None,
    preset: Any = None,
    given: Any = None,
) -> QConfigMapping:
    """The qconfig mapping that a user means.

    Args:
        backend: Whose defaults count.
        mode: ``"static"``, ``"dynamic"``, ``"weight_only"`` or ``"qat"``; None for static where
            nothing is given.
        preset: Name of a preset, or one qconfig for everything, ours or PyTorch's.
        given: A whole mapping, ours or PyTorch's.

    Returns:
        A mapping that may be changed.

    Raises:
        QConfigError: ``preset`` and ``given`` are both there, ``mode`` is none, or a mapping that
            was given has no qconfig of the mode.
        UnknownPresetError: Neither the backend nor core has a preset of that name.
        UnsupportedModeError: The backend has nothing for the mode.
        ValueError: What was given is neither a qconfig nor a mapping.
    """
    wanted = mode_name(mode)
    if preset is not None and given is not None:
        msg = (
            "both a qconfig and a qconfig mapping are given, and only one can count; leave one out"
        )
        raise QConfigError(msg)
    if isinstance(preset, str):
        return _preset(backend, preset, wanted)
    if preset is not None:
        return _settled(QConfigMapping(global_qconfig=as_qconfig(preset)), wanted)
    if given is not None:
        return _settled(as_qconfig_mapping(given), wanted)
    return mode_mapping(backend, wanted or "static")


def mode_mapping(backend: Backend, mode: str | Mode) -> QConfigMapping:
    """What ``backend`` has for a mode: its own mapping, else one made of its dtype configs.

    Args:
        backend: The backend.
        mode: ``"static"``, ``"dynamic"``, ``"weight_only"`` or ``"qat"``.

    Raises:
        QConfigError: ``mode`` is none.
        UnsupportedModeError: No kernel of the backend works that way.
    """
    wanted = mode_name(mode)
    own = backend.qconfig_mappings.get(wanted or "")
    if own is not None:
        return own
    static = backend.qconfig_mapping or QConfigMapping(global_qconfig=static_qconfig())
    if wanted == "qat":
        return qat_qconfig_mapping(static)
    if wanted == "static":
        return static
    derived = _derived(backend, Mode[str(wanted).upper()], static)
    if derived.object_type_qconfigs:
        return derived
    kind = "is dynamic" if wanted == "dynamic" else "takes float32 and an integer or float16 weight"
    problem = f"none of its dtype configs {kind}"
    raise UnsupportedModeError(backend.name, str(wanted), problem, modes_of(backend))


def modes_of(backend: Backend) -> tuple[str, ...]:
    """The modes that ``backend`` has something for."""
    own = backend.qconfig_mappings
    static = QConfigMapping(global_qconfig=static_qconfig())
    return tuple(
        mode
        for mode in MODES
        if mode in {"static", "qat", *own}
        or _derived(backend, Mode[mode.upper()], static).object_type_qconfigs
    )


def presets_of(backend: Backend) -> tuple[str, ...]:
    """Names that ``qconfig=`` can have with ``backend``: its own presets, then core's."""
    own = (name for name in backend.qconfig_mappings if name not in MODES)
    return tuple(dict.fromkeys((*own, *PRESETS)))


def mode_name(mode: str | Mode | None) -> str | None:
    """A mode by its name; None stays None.

    Raises:
        QConfigError: There is no such mode.
    """
    if mode is None:
        return None
    name = mode.name.lower() if isinstance(mode, Mode) else mode
    if name not in MODES:
        msg = f"there is no mode {mode!r}; there are {', '.join(MODES)}"
        raise QConfigError(msg)
    return name


def _preset(backend: Backend, name: str, mode: str | None) -> QConfigMapping:
    if name in MODES:
        msg = f"{name!r} is a mode, not a preset; pass it as mode={name!r}"
        raise QConfigError(msg)
    own = backend.qconfig_mappings.get(name)
    if own is not None:
        return _settled(own, mode)
    if name not in PRESETS:
        raise UnknownPresetError(name, presets_of(backend))
    return preset(mode_mapping(backend, mode or "static"), name)


def _settled(mapping: QConfigMapping, mode: str | None) -> QConfigMapping:
    """A given mapping as the mode needs it."""
    if mode is None:
        return mapping
    if mode == "qat":
        return qat_qconfig_mapping(mapping)
    has = {mode_of(each) for each in mapping.qconfigs}
    if Mode[mode.upper()] not in has:
        found = " and ".join(sorted(each.value for each in has)) or "nothing but float"
        msg = (
            f"mode={mode!r} is asked for, and what is given is {found}; leave mode out, or give a "
            "qconfig of that mode"
        )
        raise QConfigError(msg)
    return mapping


def _derived(backend: Backend, mode: Mode, static: QConfigMapping) -> QConfigMapping:
    """For each operation whose weight some kernel takes in ``mode``, a qconfig that it takes."""
    mapping = QConfigMapping()
    for entry in backend.entries:
        for key in _keys(entry):
            qconfig = _fitting(entry, mode, static)
            if qconfig is not None and key not in mapping.object_type_qconfigs:
                mapping.set_object_type(key, qconfig)
    return mapping


def _keys(entry: PatternEntry) -> Iterator[Any]:
    """What the weighted operation of a pattern is called; of a pattern of one operation only."""
    pattern, config = entry.pattern, entry.config
    if config.root_module is not None:
        yield config.root_module
        if config.root_module in _FUNCTIONS:
            yield _FUNCTIONS[config.root_module]
    elif isinstance(pattern, Op) and "weight" in config.input_type_to_index:
        operator = pattern.operator
        yield Operation(operator.target) if operator.kind == "operation" else operator.target


def _fitting(entry: PatternEntry, mode: Mode, static: QConfigMapping) -> QConfig | None:
    for config in entry.config.dtype_configs:
        made = _qconfig(config, mode, static)
        if made is None:
            continue
        chosen, _problem = choose_dtype_config((config,), made, weighted=True)
        if chosen is not None:
            return made
    return None


def _qconfig(config: DTypeConfig, mode: Mode, static: QConfigMapping) -> QConfig | None:
    """A qconfig of ``mode`` within the limits of ``config``, where it is meant for that mode."""
    if config.is_dynamic != (mode is Mode.DYNAMIC):
        return None
    wanted = config.constraints("input")
    weight = _weight(config.constraints("weight"), static)
    if mode is Mode.WEIGHT_ONLY:
        if wanted.dtype is not torch.float32 or weight is None:
            return None
        return QConfig(activation=float16_qconfig().activation, weight=weight)
    dtype = wanted.dtype or torch.quint8
    if dtype not in {torch.quint8, torch.qint8} or weight is None:
        return None
    highest = wanted.quant_max_upper_bound
    made = dynamic_qconfig(
        dtype=dtype,
        quant_max=None if highest is None else int(highest),
        symmetric=wanted.zero_point_exact_match is not None,
        eps=wanted.scale_min_lower_bound,
    )
    return made.model_copy(update={"weight": weight})


def _weight(wanted: DTypeWithConstraints, static: QConfigMapping) -> ObserverFactory | None:
    """The observer of a weight within limits: the backend's own where it fits; None for a float32 weight."""
    everywhere = static.global_qconfig
    if everywhere is not None and _fits(wanted, everywhere.weight):
        return everywhere.weight
    low, high = wanted.quant_min_lower_bound, wanted.quant_max_upper_bound
    candidates = (
        static_qconfig(
            weight_min=-128 if low is None else int(low),
            weight_max=127 if high is None else int(high),
            weight_eps=wanted.scale_min_lower_bound,
        ),
        weight_only_qconfig(),
        weight_only_qconfig(bits=4),
        float16_qconfig(),
    )
    return next((each.weight for each in candidates if _fits(wanted, each.weight)), None)


def _fits(wanted: DTypeWithConstraints, weight: ObserverFactory) -> bool:
    promised = quantized_type(weight)
    rounded = promised.dtype in INTEGER_DTYPES or promised.dtype is torch.float16
    return rounded and unsatisfied(wanted, promised) is None
