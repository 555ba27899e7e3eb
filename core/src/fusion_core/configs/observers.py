"""What an observer is to the passes: a recipe for building one, and what it promises."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, TypeAlias

import torch
from pydantic import BaseModel, BeforeValidator, ConfigDict, PlainSerializer, WithJsonSchema
from torch import nn

from fusion_core.configs.dtypes import INTEGER_DTYPES
from fusion_core.configs.names import Function, from_qualified_name, qualified_name


def _option_from_text(value: Any) -> Any:
    """``"torch.quint8"`` as the dtype, likewise quantization schemes; anything else unchanged."""
    if not isinstance(value, str) or not value.startswith("torch."):
        return value
    named = getattr(torch, value.removeprefix("torch."), None)
    return named if isinstance(named, (torch.dtype, torch.qscheme)) else value


def _observer_from_name(options: Any) -> Any:
    """What a fake quantization observes with is an option of it, and goes by name like any observer."""
    if not isinstance(options, dict) or "observer" not in options:
        return options
    return {**options, "observer": from_qualified_name(options["observer"])}


def _option_as_text(value: Any) -> Any:
    if isinstance(value, (bool, int, float, str, type(None))):
        return value
    return qualified_name(value) if callable(value) else str(value)


Options = Annotated[
    dict[str, Annotated[Any, BeforeValidator(_option_from_text)]],
    BeforeValidator(_observer_from_name),
    PlainSerializer(
        lambda options: {key: _option_as_text(value) for key, value in options.items()},
        when_used="json",
    ),
    WithJsonSchema({"type": "object", "description": "keyword arguments of the observer"}),
]


class ObserverSpec(BaseModel):
    """An observer type and its keyword arguments; equal specs build equal observers, and specs pickle.

    Attributes:
        observer: Type of the observer, or any callable that builds one.
        options: Keyword arguments it is built with.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    observer: Function
    options: Options = {}

    def __init__(
        self, observer: Any = None, options: dict[str, Any] | None = None, /, **kwargs: Any
    ) -> None:
        """A spec of ``observer`` with ``kwargs``.

        Args:
            observer: Type of the observer, or any callable that builds one; left out, ``kwargs``
                are the fields of the spec, as when it is read from JSON.
            options: Keyword arguments as one dict; merged with ``kwargs``.
            **kwargs: Keyword arguments of the observer.
        """
        if observer is not None:
            kwargs = {"observer": observer, "options": {**(options or {}), **kwargs}}
        super().__init__(**kwargs)

    def __call__(self) -> nn.Module:
        """A new observer."""
        built: nn.Module = self.observer(**self.options)
        return built

    def __hash__(self) -> int:
        """Equal specs hash alike."""
        # Values that are equal need not look alike (1 and 1.0) nor be hashable, so names alone
        # count.
        return hash((self.observer, frozenset(self.options)))

    def with_options(self, **options: Any) -> ObserverSpec:
        """The same observer with some keyword arguments replaced."""
        return ObserverSpec(self.observer, {**self.options, **options})


ObserverFactory: TypeAlias = Callable[[], nn.Module]
"""Anything that builds an observer without arguments; an :class:`ObserverSpec` is one."""


@dataclass(frozen=True, slots=True)
class QuantizedType:
    """What an observer says of the values it observes, before it has seen any.

    Attributes:
        dtype: Of the quantized value.
        qscheme: Per tensor or per channel, affine or symmetric; None for dtypes without parameters.
        quant_min: Smallest integer code, or None where the dtype has none.
        quant_max: Largest integer code, or None where the dtype has none.
        eps: Smallest scale, or None where the observer has no floor.
        is_dynamic: Whether parameters are computed while running.
        fixed: Scale and zero point where both are known beforehand.
    """

    dtype: torch.dtype
    qscheme: torch.qscheme | None
    quant_min: int | None
    quant_max: int | None
    eps: float | None
    is_dynamic: bool
    fixed: tuple[float, int] | None


@lru_cache(maxsize=1024)
def quantized_type(factory: ObserverFactory) -> QuantizedType:
    """What the observers of ``factory`` promise; one is built to ask, once per factory.

    Raises:
        TypeError: What the factory builds does not follow the observer protocol.
    """
    observer = factory()
    dtype = getattr(observer, "dtype", None)
    if not isinstance(dtype, torch.dtype) or not callable(
        getattr(observer, "calculate_qparams", None)
    ):
        msg = (
            f"{factory!r} builds {type(observer).__name__}, which is not an observer: it needs a dtype "
            "and calculate_qparams()"
        )
        raise TypeError(msg)
    # Observers of float dtypes carry these attributes too, without a meaning.
    has_codes = dtype in INTEGER_DTYPES
    eps = getattr(_within(observer), "eps", None) if has_codes else None
    return QuantizedType(
        dtype=dtype,
        qscheme=getattr(observer, "qscheme", None) if has_codes else None,
        quant_min=getattr(observer, "quant_min", None) if has_codes else None,
        quant_max=getattr(observer, "quant_max", None) if has_codes else None,
        eps=None if eps is None else float(eps),
        is_dynamic=bool(getattr(observer, "is_dynamic", False)),
        fixed=_fixed_parameters(observer),
    )


def _within(observer: Any) -> Any:
    """The observer whose parameters a fake-quantize module rounds with; any other itself."""
    inner = getattr(observer, "observer", getattr(observer, "activation_post_process", None))
    return inner if isinstance(inner, nn.Module) else observer


def _fixed_parameters(observer: nn.Module) -> tuple[float, int] | None:
    observer = _within(observer)
    scale, zero_point = getattr(observer, "scale", None), getattr(observer, "zero_point", None)
    if "FixedQParams" not in type(observer).__name__ or scale is None or zero_point is None:
        return None
    return float(scale), int(zero_point)
