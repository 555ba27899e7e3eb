"""What every observer is: it watches a tensor pass and knows the scale and zero point that suit it.

An observer returns its input unchanged, keeps its statistics in float32 buffers and refuses data
that it cannot describe. The observers themselves are in ``observers`` and ``histogram``.
"""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypedDict

import torch
from torch import Tensor, nn

from fusion_core.errors import NonFiniteActivationError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

PER_TENSOR_SCHEMES: Final[tuple[torch.qscheme, ...]] = (
    torch.per_tensor_affine,
    torch.per_tensor_symmetric,
)
PER_CHANNEL_SCHEMES: Final[tuple[torch.qscheme, ...]] = (
    torch.per_channel_affine,
    torch.per_channel_symmetric,
    torch.per_channel_affine_float_qparams,
)
SYMMETRIC_SCHEMES: Final = (torch.per_tensor_symmetric, torch.per_channel_symmetric)
FLOAT_DTYPES: Final = (torch.float16, torch.float32)
INTEGER_RANGES: Final[Mapping[torch.dtype, tuple[int, int]]] = {
    torch.quint8: (0, 255),
    torch.uint8: (0, 255),
    torch.qint8: (-128, 127),
    torch.int8: (-128, 127),
    torch.qint32: (-(2**31), 2**31 - 1),
    torch.quint4x2: (0, 15),
}
DEFAULT_EPS: Final = torch.finfo(torch.float32).eps
_LARGEST: Final = torch.finfo(torch.float32).max


class ObserverOptions(TypedDict, total=False):
    """The keyword arguments that every observer hands on to :class:`Observer`."""

    dtype: torch.dtype
    qscheme: torch.qscheme | None
    quant_min: int | None
    quant_max: int | None
    eps: float
    is_dynamic: bool


class Observer(nn.Module, ABC):
    """Watches a tensor and derives the quantization parameters that suit it.

    Args:
        dtype: The integer type to quantize to: quint8, uint8, qint8, int8, qint32 or quint4x2.
        qscheme: Affine or symmetric, per tensor or per channel; the first of ``schemes`` if None.
        quant_min: Smallest integer level; the smallest of ``dtype`` if None.
        quant_max: Largest integer level; the largest of ``dtype`` if None.
        eps: Lower bound of every scale; positive.
        is_dynamic: Whether scale and zero point are computed anew for each run-time tensor.

    Raises:
        ValueError: The dtype, the scheme or ``is_dynamic`` is not supported by this class, ``eps``
            is not positive, or the range is empty, lacks 0 or exceeds the dtype.
    """

    schemes: ClassVar[tuple[torch.qscheme, ...]] = PER_TENSOR_SCHEMES
    """The quantization schemes the class supports; the first is its default."""
    dtypes: ClassVar[Collection[torch.dtype]] = INTEGER_RANGES
    """The types the class can quantize to."""
    may_be_dynamic: ClassVar[bool] = False
    """Whether ``is_dynamic=True`` makes sense for the class."""

    label: str
    """Names the observed value in messages; the class name stands in while it is empty."""
    eps: Tensor
    """Smallest scale ever returned; float32, shape [1]."""

    def __init__(
        self,
        *,
        dtype: torch.dtype = torch.quint8,
        qscheme: torch.qscheme | None = None,
        quant_min: int | None = None,
        quant_max: int | None = None,
        eps: float = DEFAULT_EPS,
        is_dynamic: bool = False,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        qscheme = self.schemes[0] if qscheme is None else qscheme
        if dtype not in self.dtypes:
            raise ValueError(f"{name} got dtype {dtype}; it supports {_listed(self.dtypes)}")
        if qscheme not in self.schemes:
            raise ValueError(f"{name} got qscheme {qscheme}; it supports {_listed(self.schemes)}")
        if not (math.isfinite(eps) and eps > 0):
            raise ValueError(f"{name} got eps {eps!r}; it must be positive and finite")
        if is_dynamic and not self.may_be_dynamic:
            raise ValueError(f"{name} got is_dynamic=True; it supports static quantization only")
        self.dtype = dtype
        self.qscheme = qscheme
        self.quant_min, self.quant_max = _checked_range(name, dtype, quant_min, quant_max)
        self.is_dynamic = is_dynamic
        self.label = ""
        self._chosen_range = quant_min is not None or quant_max is not None
        self.register_buffer("eps", torch.tensor([eps], dtype=torch.float32))
        self._register_statistics()

    @property
    @abstractmethod
    def observed(self) -> bool:
        """Whether parameters rest on something: recorded data, or values fixed beforehand."""

    @abstractmethod
    def record(self, values: Tensor) -> None:
        """Take ``values`` into the statistics: detached, float32, not empty, maybe not finite."""

    @abstractmethod
    def calculate_qparams(self) -> tuple[Tensor, Tensor]:
        """Scale (float32) and zero point, both of shape [1] or [channels].

        The zero point is int32; it is float32 under ``torch.per_channel_affine_float_qparams``.
        """

    def forward(self, x: Tensor) -> Tensor:
        """Record ``x`` and return it, the same object.

        Args:
            x: Real floating tensor of any shape. One without elements is passed on unrecorded;
                other precisions are recorded as float32.

        Raises:
            TypeError: ``x`` is not floating.
            NonFiniteActivationError: ``x`` holds NaN or infinity, or overflows float32.
        """
        if not x.is_floating_point():
            raise TypeError(
                f"{self._name()} observes floating tensors, but was given {x.dtype}; "
                "an integer or boolean value needs no observer"
            )
        if x.numel() > 0:
            with torch.no_grad():
                self.record(x.detach().to(torch.float32))
        return x

    def merge(self, other: Observer) -> None:
        """Take the statistics of ``other``, which is left as it is, into this observer.

        Raises:
            TypeError: ``other`` is of another class.
            ValueError: ``other`` is configured differently.
        """
        if type(other) is not type(self):
            raise TypeError(f"cannot merge {type(other).__name__} into {type(self).__name__}")
        mine, theirs = self._configuration(), other._configuration()
        unequal = [
            f"{key}: {mine[key]} != {theirs[key]}" for key in mine if mine[key] != theirs[key]
        ]
        if unequal:
            raise ValueError(
                f"cannot merge into {self._name()}, it differs in {', '.join(unequal)}"
            )
        if other.observed:
            with torch.no_grad():
                self._merge_observed(other)

    def extra_repr(self) -> str:
        """The configuration, as ``repr`` shows it."""
        shown = self._configuration() | ({"label": repr(self.label)} if self.label else {})
        return ", ".join(f"{key}={value}" for key, value in shown.items())

    def _register_statistics(self) -> None:
        """Register the buffers that hold the statistics, in the state before any data."""

    def _merge_observed(self, other: Any) -> None:  # Any: an observer of the class of self
        """Combine with ``other``, which has recorded data; nothing to do without statistics."""

    def _configuration(self) -> dict[str, object]:
        names = ("dtype", "qscheme", "quant_min", "quant_max", "is_dynamic")
        return {name: getattr(self, name) for name in names} | {"eps": float(self.eps)}

    def _name(self) -> str:
        return self.label or type(self).__name__

    def _require_finite(self, low: float, high: float) -> None:
        if math.isnan(low) or math.isnan(high):
            raise NonFiniteActivationError(self._name(), "NaN")
        if math.isinf(low) or math.isinf(high):
            raise NonFiniteActivationError(self._name(), "infinity")

    def _qparams(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """Scale and zero point for values from ``low`` to ``high``, widened to hold 0.

        Affine: ``scale = (high - low) / (qmax - qmin)``, ``zero = qmin - round(low / scale)``.
        Symmetric: ``scale = max(-low, high) / ((qmax - qmin) / 2)``, zero in the middle. These are
        the formulas of Jacob et al., arXiv:1712.05877, section 2.1, evaluated in float32. With
        float parameters the range is not widened, and the smallest code stands for ``low``.
        """
        if self.qscheme is torch.per_channel_affine_float_qparams:
            return self._float_qparams(low, high)
        low = low.to(torch.float32).reshape(-1).clamp(max=0)
        high = high.to(torch.float32).reshape(-1).clamp(min=0)
        levels = float(self.quant_max - self.quant_min)
        if self.qscheme in SYMMETRIC_SCHEMES:
            scale = self._bounded(torch.maximum(-low, high) / (levels / 2))
            return scale, torch.full_like(scale, self._middle(), dtype=torch.int32)
        span = high - low
        scale = torch.where(span.isinf(), high / levels - low / levels, span / levels)
        scale = self._bounded(scale)
        zero = self.quant_min - torch.round(low / scale).to(torch.int64)
        return scale, zero.clamp(self.quant_min, self.quant_max).to(torch.int32)

    def _float_qparams(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """Scale and zero point, both float32; a channel of one value has the scale 1."""
        low, high = (each.to(torch.float32).reshape(-1) for each in (low, high))
        levels = float(self.quant_max - self.quant_min)
        span = high - low
        scale = torch.where(span.isinf(), high / levels - low / levels, span / levels)
        scale = torch.where(scale > self.eps.to(scale), scale, torch.ones_like(scale))
        return scale, self.quant_min - low / scale

    def _bounded(self, scale: Tensor) -> Tensor:
        return torch.maximum(scale, self.eps.to(scale)).clamp(max=_LARGEST)

    def _middle(self) -> int:
        """Zero point of a symmetric scheme; a chosen unsigned range rounds its middle down."""
        if INTEGER_RANGES[self.dtype][0] < 0:
            return 0
        return (self.quant_min + self.quant_max + (not self._chosen_range)) // 2

    def _unobserved_qparams(self) -> tuple[Tensor, Tensor]:
        warnings.warn(
            f"{self._name()} has recorded no data; its scale is 1 and its zero point 0. "
            "Run the prepared model on calibration data first",
            stacklevel=3,
        )
        one = torch.ones(1, dtype=torch.float32, device=self.eps.device)
        return one, torch.zeros_like(one, dtype=torch.int32)


def _listed(names: Collection[object]) -> str:
    return ", ".join(str(name) for name in names)


def _checked_range(
    name: str, dtype: torch.dtype, quant_min: int | None, quant_max: int | None
) -> tuple[int, int]:
    """The levels asked for, completed from ``dtype``; a float dtype has none, written (0, 0)."""
    if dtype not in INTEGER_RANGES:
        if quant_min is not None or quant_max is not None:
            raise ValueError(f"{name} got a range of levels, but {dtype} has none")
        return 0, 0
    lowest, highest = INTEGER_RANGES[dtype]
    low = lowest if quant_min is None else quant_min
    high = highest if quant_max is None else quant_max
    if not (lowest <= low <= 0 <= high <= highest and low < high):
        raise ValueError(
            f"{name} got quant_min={low}, quant_max={high}; {dtype} allows "
            f"{lowest} <= quant_min <= 0 <= quant_max <= {highest} with quant_min < quant_max"
        )
    return low, high
