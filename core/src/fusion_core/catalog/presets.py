"""Qconfig mappings made of another one by replacing what a name says, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import torch
from torch import nn
from torch.nn import functional

from fusion_core.configs import (
    INTEGER_DTYPES,
    ObserverFactory,
    ObserverSpec,
    QConfig,
    QConfigMapping,
    QuantizedType,
    quantized_type,
)
from fusion_core.errors import UnknownPresetError
from fusion_core.nn import (
    HistogramObserver,
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
    PerChannelMinMaxObserver,
)
from fusion_core.nn.fake_quantize import FakeQuantize

Change: TypeAlias = Callable[[QConfig, Any], QConfig]
"""A new qconfig from an old one and the key of the rule that gives it, None for any other rule."""

_KEPT: Final = ("dtype", "qscheme", "quant_min", "quant_max", "eps")
_PER_CHANNEL: Final[dict[torch.qscheme | None, torch.qscheme]] = {
    torch.per_tensor_affine: torch.per_channel_affine,
    torch.per_tensor_symmetric: torch.per_channel_symmetric,
}
_PER_TENSOR: Final[dict[torch.qscheme | None, torch.qscheme]] = {
    torch.per_channel_affine: torch.per_tensor_affine,
    torch.per_channel_symmetric: torch.per_tensor_symmetric,
}
_AVERAGES: Final = (MovingAverageMinMaxObserver, MovingAveragePerChannelMinMaxObserver)
_TRANSPOSED: Final[frozenset[Any]] = frozenset(
    {
        *(nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d),
        *(functional.conv_transpose1d, functional.conv_transpose2d, functional.conv_transpose3d),
    }
)
"""What has a weight of shape [in, out / groups, ...]; that of all else is [out, ...]."""


def preset(mapping: QConfigMapping, name: str) -> QConfigMapping:
    """A copy of ``mapping`` in which what ``name`` says is replaced.

    Dtypes, ranges of codes and smallest scales stay as they are, since they are what a backend's
    kernels need. Observers that measure nothing (dynamic, fixed, or of a float dtype) stay, too.

    Args:
        mapping: For example a backend's own.
        name: One of :data:`PRESETS`.

    Raises:
        UnknownPresetError: It is none of them.
    """
    if name not in _CHANGES:
        raise UnknownPresetError(name, PRESETS)
    changed = with_qconfigs(mapping, _CHANGES[name])
    everywhere = mapping.global_qconfig
    if name == "per_channel" and everywhere is not None:
        for kind in (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d):
            if kind not in changed.object_type_qconfigs:
                changed.set_object_type(kind, _with_channels(everywhere, 1))
    return changed


def with_qconfigs(mapping: QConfigMapping, change: Change) -> QConfigMapping:
    """A copy of ``mapping`` with every qconfig replaced; what stays in float stays in float.

    Args:
        mapping: Is not changed.
        change: Called with each qconfig, and with its rule's key where that is an operation type.
    """

    def changed(qconfig: QConfig | None, key: Any = None) -> QConfig | None:
        return None if qconfig is None else change(qconfig, key)

    return QConfigMapping(
        global_qconfig=changed(mapping.global_qconfig),
        object_type_qconfigs={
            key: changed(each, key) for key, each in mapping.object_type_qconfigs.items()
        },
        module_name_regex_qconfigs={
            key: changed(each) for key, each in mapping.module_name_regex_qconfigs.items()
        },
        module_name_qconfigs={
            key: changed(each) for key, each in mapping.module_name_qconfigs.items()
        },
        module_name_object_type_order_qconfigs={
            key: changed(each, key[1])
            for key, each in mapping.module_name_object_type_order_qconfigs.items()
        },
    )


def _per_channel(qconfig: QConfig, key: Any) -> QConfig:
    # A mapping that speaks of transposed convolutions has its reasons: few kernels take channels.
    return qconfig if key in _TRANSPOSED else _with_channels(qconfig, 0)


def _with_channels(qconfig: QConfig, axis: int) -> QConfig:
    scheme = _PER_CHANNEL.get(quantized_type(qconfig.weight).qscheme)
    if scheme is None:
        return qconfig
    averages = issubclass(_kind(qconfig.weight), MovingAverageMinMaxObserver)
    kind = MovingAveragePerChannelMinMaxObserver if averages else PerChannelMinMaxObserver
    weight = _rebuilt(qconfig.weight, kind, qscheme=scheme, ch_axis=axis)
    return qconfig.model_copy(update={"weight": weight})


def _per_tensor(qconfig: QConfig, _key: Any) -> QConfig:
    scheme = _PER_TENSOR.get(quantized_type(qconfig.weight).qscheme)
    if scheme is None:
        return qconfig
    averages = issubclass(_kind(qconfig.weight), MovingAveragePerChannelMinMaxObserver)
    kind = MovingAverageMinMaxObserver if averages else MinMaxObserver
    return qconfig.model_copy(update={"weight": _rebuilt(qconfig.weight, kind, qscheme=scheme)})


def _measuring(observer: type[nn.Module]) -> Change:
    """Activations are measured by ``observer``."""

    def changed(old: ObserverFactory) -> ObserverFactory:
        return old if _kind(old) is observer else _rebuilt(old, observer)

    return lambda qconfig, _key: _with_activations(qconfig, changed)


def _scheme(scheme: torch.qscheme) -> Change:
    """Activations have ``scheme``."""

    def changed(old: ObserverFactory) -> ObserverFactory:
        return _rebuilt(old, _kind(old), qscheme=scheme)

    return lambda qconfig, _key: _with_activations(qconfig, changed)


def _with_activations(
    qconfig: QConfig, change: Callable[[ObserverFactory], ObserverFactory]
) -> QConfig:
    given = {place: getattr(qconfig, place) for place in ("activation", "input", "output")}
    return qconfig.model_copy(
        update={place: change(each) for place, each in given.items() if each is not None}
    )


def _rebuilt(factory: ObserverFactory, kind: type[nn.Module], **changes: Any) -> ObserverFactory:
    """A recipe for ``kind`` with the options of ``factory``; where that measures nothing, it stays."""
    promised = quantized_type(factory)
    if promised.dtype not in INTEGER_DTYPES or promised.is_dynamic or promised.fixed is not None:
        return factory
    given: Mapping[str, Any] = (
        factory.options if isinstance(factory, ObserverSpec) else _promises(promised)
    )
    kept = (*_KEPT, "averaging_constant") if issubclass(kind, _AVERAGES) else _KEPT
    options = {**{name: each for name, each in given.items() if name in kept}, **changes}
    if isinstance(factory, ObserverSpec) and factory.observer is FakeQuantize:
        return ObserverSpec(FakeQuantize, {"observer": kind, **options})
    return ObserverSpec(kind, options)


def _promises(promised: QuantizedType) -> dict[str, Any]:
    given = {name: getattr(promised, name) for name in _KEPT}
    return {name: each for name, each in given.items() if each is not None}


def _kind(factory: ObserverFactory) -> type[nn.Module]:
    """The type that observes; within a fake quantization, the one it observes with."""
    if isinstance(factory, ObserverSpec) and factory.observer is FakeQuantize:
        kind: type[nn.Module] = factory.options.get("observer", MovingAverageMinMaxObserver)
        return kind
    return type(factory())


_CHANGES: Final[Mapping[str, Change]] = MappingProxyType(
    {
        "per_channel": _per_channel,
        "per_tensor": _per_tensor,
        "histogram": _measuring(HistogramObserver),
        "min_max": _measuring(MinMaxObserver),
        "moving_average": _measuring(MovingAverageMinMaxObserver),
        "affine": _scheme(torch.per_tensor_affine),
        "symmetric": _scheme(torch.per_tensor_symmetric),
    }
)

PRESETS: Final = tuple(_CHANGES)
"""Names of presets: of weights' scales, of what measures activations, and of their scheme."""
