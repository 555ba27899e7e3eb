"""PyTorch's own qconfigs, told by their shape and by the names of their observers; its package is not imported.

What is translated pickles and compares by value. An observer that is not known here stays the
callable that it is.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
from torch import nn

from fusion_core.configs.dtypes import INTEGER_DTYPES
from fusion_core.configs.names import from_qualified_name
from fusion_core.configs.observers import ObserverSpec, quantized_type

_HOMES: Final = ("torch.ao.quantization.", "torch.quantization.")
_HERE: Final = "fusion_core.nn."
_OPTIONS: Final = {
    *("dtype", "qscheme", "quant_min", "quant_max", "eps", "is_dynamic"),
    *("bins", "averaging_constant", "ch_axis", "scale", "zero_point"),
}
_RANGES: Final = {torch.quint8: (0, 255), torch.qint8: (-128, 127)}
_WITHOUT_PARAMETERS: Final = {"RecordingObserver": "keeps every tensor it sees"}

_TABLES: Final = (
    "object_type_qconfigs",
    "module_name_regex_qconfigs",
    "module_name_qconfigs",
    "module_name_object_type_order_qconfigs",
)
_LISTS: Final = {
    "object_type": "object_type_qconfigs",
    "module_name_regex": "module_name_regex_qconfigs",
    "module_name": "module_name_qconfigs",
    "module_name_object_type_order": "module_name_object_type_order_qconfigs",
}


def observer_from_torch(value: Any) -> Any:
    """A recipe for the observer of this package that does what PyTorch's does.

    Args:
        value: An observer type of PyTorch, or a partial of one. None and ``nn.Identity`` stand for
            float32. Anything else is returned as it is.

    Raises:
        ValueError: It is an observer already built, or one that chooses no parameters.
    """
    if isinstance(value, nn.Module):
        msg = (
            f"{type(value).__name__} is an observer already built; give its type, or an ObserverSpec, of which "
            "each place builds its own"
        )
        raise ValueError(msg)  # noqa: TRY004  pydantic reports ValueError with the field's name
    if value is None or value is nn.Identity:
        return _placeholder()
    if isinstance(value, (ObserverSpec, str, Mapping)):
        return value
    kind, options = _unwrapped(value)
    if not isinstance(kind, type):
        return value
    if kind.__module__.startswith(_HOMES):
        return _translated(kind.__name__, options, value)
    is_wrapper = type(value).__name__ == "_PartialWrapper" and not value.callable_args
    return ObserverSpec(kind, options) if is_wrapper else value


def qconfig_from_torch(value: Any, around: Any = None) -> Any:
    """The fields of a qconfig, where ``value`` is one of PyTorch's; anything else as it is.

    An activation whose parameters are fixed is that of the output: what a sigmoid gives lies between
    0 and 1, what it is given does not. An activation that is that of the input leaves the choice to
    ``around``. Dynamic float16 means that only the weight is rounded.

    Args:
        value: What may be a qconfig.
        around: Observer of activations where ``value`` does not say; default a histogram, or a
            moving average where ``value`` is for training.
    """
    if not (isinstance(value, tuple) and getattr(value, "_fields", ()) == ("activation", "weight")):
        return value
    given, weight = value
    kind, options = _unwrapped(given)
    name = str(getattr(kind, "__name__", ""))
    fields = {"weight": observer_from_torch(weight)}
    if name == "ReuseInputObserver":
        return {"activation": around or _spec("HistogramObserver"), **fields}
    activation = observer_from_torch(given)
    if "FixedQParams" in name:
        return {"activation": around or _measured(activation), "output": activation, **fields}
    if options.get("is_dynamic") and options.get("dtype") is torch.float16:
        activation = _placeholder()
    return {"activation": activation, **fields}


def mapping_from_torch(value: Any) -> Any:
    """The fields of a qconfig mapping, where ``value`` is one of PyTorch's; anything else as it is.

    Args:
        value: A mapping object of PyTorch, or the dict of lists that its older releases take.
    """
    if isinstance(value, Mapping):
        return _from_lists(value) if value and set(value) <= {"", *_LISTS} else value
    if not hasattr(value, "global_qconfig") or not all(hasattr(value, name) for name in _TABLES):
        return value
    return _mapping_fields(value.global_qconfig, {name: getattr(value, name) for name in _TABLES})


def _from_lists(value: Mapping[str, Any]) -> dict[str, Any]:
    tables: dict[str, dict[Any, Any]] = {name: {} for name in _TABLES}
    for name, rows in value.items():
        for row in rows if name else ():
            *key, qconfig = row
            tables[_LISTS[name]][key[0] if len(key) == 1 else tuple(key)] = qconfig
    return _mapping_fields(value.get(""), tables)


def _mapping_fields(everywhere: Any, tables: Mapping[str, Mapping[Any, Any]]) -> dict[str, Any]:
    translated = qconfig_from_torch(everywhere)
    around = _measuring(translated)
    return {
        "global_qconfig": translated,
        **{
            name: {key: qconfig_from_torch(each, around) for key, each in table.items()}
            for name, table in tables.items()
        },
    }


def _measured(fixed: Any) -> ObserverSpec:
    """An observer for the input of what gives ``fixed``, for training where that is."""
    if isinstance(fixed, ObserverSpec) and fixed.observer.__name__ == "FakeQuantize":
        return _fake_quantize({"observer": _imported("MovingAverageMinMaxObserver")})
    return _spec("HistogramObserver")


def _measuring(fields: Any) -> Any:
    """The activation observer of translated ``fields``, where it measures integer codes on data."""
    if not isinstance(fields, dict):
        fields = getattr(fields, "__dict__", {})
    activation = fields.get("activation")
    if activation is None:
        return None
    promised = quantized_type(activation)
    measures = promised.dtype in INTEGER_DTYPES and not promised.is_dynamic
    return activation if measures and promised.fixed is None else None


def _translated(name: str, options: dict[str, Any], value: Any) -> Any:
    if name in _WITHOUT_PARAMETERS:
        msg = (
            f"{name} {_WITHOUT_PARAMETERS[name]} and chooses no scale, so nothing can be quantized "
            "with it; observe with HistogramObserver or MinMaxObserver"
        )
        raise ValueError(msg)
    if name in {"PlaceholderObserver", "NoopObserver"}:
        default = torch.float32 if name == "PlaceholderObserver" else torch.float16
        if options.get("compute_dtype") is not None:
            options = {**options, "is_dynamic": True}
        return _placeholder(**{"dtype": default, **options})
    if name in {"FakeQuantize", "FusedMovingAvgObsFakeQuantize", "FixedQParamsFakeQuantize"}:
        return _fake_quantize_from_torch(options, value)
    return value if _imported(name) is None else _spec(name, **options)


def _fake_quantize_from_torch(options: dict[str, Any], value: Any) -> Any:
    inner = observer_from_torch(options.pop("observer", _torch_default(value)))
    if not isinstance(inner, ObserverSpec) or not inner.observer.__module__.startswith(_HERE):
        return value
    return _fake_quantize({"observer": inner.observer, **_settled({**inner.options, **options})})


def _torch_default(value: Any) -> Any:
    kind, _options = _unwrapped(value)
    return inspect.signature(kind).parameters["observer"].default


def _unwrapped(value: Any) -> tuple[Any, dict[str, Any]]:
    """What nested partials build, and the keyword arguments they give it; the outermost wins."""
    layers: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
    while True:
        if type(value).__name__ == "_PartialWrapper" and hasattr(value, "p"):
            value = value.p
        elif isinstance(value, functools.partial):
            layers.append((value.args, value.keywords))
            value = value.func
        else:
            break
    options: dict[str, Any] = {}
    for arguments, keywords in reversed(layers):
        options.update(_by_name(value, arguments))
        options.update(keywords)
    return value, options


def _by_name(function: Callable[..., Any], arguments: tuple[Any, ...]) -> dict[str, Any]:
    if not arguments:
        return {}
    return dict(inspect.signature(function).bind_partial(*arguments).arguments)


def _imported(name: str) -> Any:
    """The observer of this package of that name, or None; by name, for this layer lies below it."""
    try:
        return from_qualified_name(f"fusion_core.nn.{name}")
    except ValueError:
        return None


def _spec(name: str, **options: Any) -> ObserverSpec:
    return ObserverSpec(_imported(name), _settled(options))


def _placeholder(dtype: torch.dtype = torch.float32, **options: Any) -> ObserverSpec:
    given = {name: each for name, each in _settled(options).items() if dtype in INTEGER_DTYPES}
    return ObserverSpec(_imported("PlaceholderObserver"), {"dtype": dtype, **given})


def _fake_quantize(options: dict[str, Any]) -> ObserverSpec:
    kind: Any = from_qualified_name("fusion_core.nn.fake_quantize.FakeQuantize")
    return ObserverSpec(kind, options)


def _settled(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that observers of this package have, a reduced range as the codes it leaves.

    A range reduced by one bit keeps products of 8-bit codes within 16 bits: 0..127, or -64..63.
    """
    kept = {
        name: each
        for name, each in options.items()
        if name in _OPTIONS and each is not None and (name, each) != ("is_dynamic", False)
    }
    if not options.get("reduce_range"):
        return kept
    low, high = _RANGES.get(kept.get("dtype", torch.quint8), (None, None))
    low, high = kept.get("quant_min", low), kept.get("quant_max", high)
    halved = {} if low is None or high is None else {"quant_min": low // 2, "quant_max": high // 2}
    return {**kept, **halved}
