"""Qconfig mappings for capabilities that are no static quantization: the backend's own, or ones made to fit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

import torch

from fusion_core.catalog import weight_only_qconfig
from fusion_core.configs import DTypeConfig, QConfig, QConfigMapping
from fusion_core.registry import Backend
from fusion_core.testing.qconfigs import fitting_qconfig

Way = Literal["", "dynamic", "weight_only", "4bit", "float16"]
"""How a model of the zoo is quantized; empty for the backend's default."""

_OWN: Mapping[Way, str] = {"dynamic": "dynamic", "weight_only": "weight_only"}
_ROWS = {torch.quint8: 8, torch.quint4x2: 4}


def mapping_for(backend: Backend, way: Way) -> QConfigMapping | None:
    """The mapping that quantizes in a way; None for the default of a backend that has none.

    Args:
        backend: Its mapping of that name is taken. Where it has none, one is made that gives each
            type of module the first combination of dtypes of its patterns that goes this way. Of
            the default, types of operations that it leaves in float are quantized like all others:
            what is better in float most of the time can still be asked for.
        way: How to quantize.
    """
    if not way:
        return _with_all_types(backend.qconfig_mapping)
    own = backend.qconfig_mappings.get(_OWN.get(way, ""))
    return _made(backend, _GOES[way]) if own is None else own


def _with_all_types(mapping: QConfigMapping | None) -> QConfigMapping | None:
    if mapping is None:
        return None
    types = mapping.object_type_qconfigs.items()
    kept = {kind: qconfig for kind, qconfig in types if qconfig is not None}
    return mapping.model_copy(update={"object_type_qconfigs": kept})


def _made(backend: Backend, goes: Callable[[DTypeConfig], bool]) -> QConfigMapping:
    mapping = QConfigMapping()
    for entry in reversed(backend.entries):  # the first in the list has the last word
        kind = entry.config.root_module
        fitting = next(filter(goes, entry.config.dtype_configs), None)
        if kind is not None and fitting is not None:
            mapping.set_object_type(kind, _qconfig(fitting))
    return mapping


def _qconfig(config: DTypeConfig) -> QConfig:
    bits = _ROWS.get(config.constraints("weight").dtype or torch.float32)
    if bits is not None and not config.is_dynamic:
        return weight_only_qconfig(bits=bits)
    return fitting_qconfig(config, per_channel=True)


def _reads_float(config: DTypeConfig) -> bool:
    return config.constraints("input").dtype in {None, torch.float32} and not config.is_dynamic


def _weighs(*dtypes: torch.dtype) -> Callable[[DTypeConfig], bool]:
    return lambda config: _reads_float(config) and config.constraints("weight").dtype in dtypes


_GOES: Mapping[Way, Callable[[DTypeConfig], bool]] = {
    "dynamic": lambda config: config.is_dynamic,
    "weight_only": _weighs(torch.quint8, torch.qint8, torch.quint4x2, torch.float16),
    "4bit": _weighs(torch.quint4x2),
    "float16": _weighs(torch.float16),
}
