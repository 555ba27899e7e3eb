"""The observers that keep a range or none: min-max, moving average, fixed and placeholder."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from fusion_core.nn.protocol import (
    FLOAT_DTYPES,
    INTEGER_RANGES,
    PER_CHANNEL_SCHEMES,
    PER_TENSOR_SCHEMES,
    Observer,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from fusion_core.nn.protocol import ObserverOptions

__all__ = [
    "FixedQParamsObserver",
    "MinMaxObserver",
    "MovingAverageMinMaxObserver",
    "MovingAveragePerChannelMinMaxObserver",
    "Observer",
    "PerChannelMinMaxObserver",
    "PlaceholderObserver",
]


class _RangeObserver(Observer):
    """Keeps the least and greatest value, and says how new ones change them."""

    min_val: Tensor
    max_val: Tensor

    def _register_statistics(self) -> None:
        self.register_buffer("min_val", torch.tensor(math.inf))
        self.register_buffer("max_val", torch.tensor(-math.inf))

    @property
    def observed(self) -> bool:
        """Whether data has been recorded."""
        return self.min_val.numel() > 0 and bool((self.min_val <= self.max_val).all())

    def record(self, values: Tensor) -> None:
        """Take the extremes of ``values`` into the range.

        Raises:
            NonFiniteActivationError: ``values`` holds NaN or infinity.
            ValueError: ``values`` lacks the channels recorded before (per channel only).
        """
        low, high = self._extremes(values)
        if low.numel() > 1:
            self._require_finite(low.amin().item(), high.amax().item())
        else:
            self._require_finite(low.item(), high.item())
        if self.observed:
            self._check_channels(low)
            low, high = self._updated(low.to(self.min_val.device), high.to(self.max_val.device))
        self._keep(low, high)

    def calculate_qparams(self) -> tuple[Tensor, Tensor]:
        """Scale (float32) and zero point (int32); without data 1 and 0, and a warning."""
        if not self.observed:
            return self._unobserved_qparams()
        return self._qparams(self.min_val, self.max_val)

    def _extremes(self, values: Tensor) -> tuple[Tensor, Tensor]:
        low, high = torch.aminmax(values)
        return low, high

    def _updated(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        return torch.minimum(low, self.min_val), torch.maximum(high, self.max_val)

    def _merge_observed(self, other: Any) -> None:  # Any: see the overridden method
        low, high = other.min_val.to(self.min_val.device), other.max_val.to(self.max_val.device)
        if self.observed:
            self._check_channels(low)
            low, high = self._merged(low, high, other)
        self._keep(low, high)

    def _merged(self, low: Tensor, high: Tensor, _other: Any) -> tuple[Tensor, Tensor]:
        return torch.minimum(low, self.min_val), torch.maximum(high, self.max_val)

    def _check_channels(self, low: Tensor) -> None:
        if low.shape != self.min_val.shape:
            raise ValueError(
                f"{self._name()} has recorded {self.min_val.numel()} channels, "
                f"but was now given {low.numel()}"
            )

    def _keep(self, low: Tensor, high: Tensor) -> None:
        self.min_val = low.to(self.min_val.device, copy=True)
        self.max_val = high.to(self.max_val.device, copy=True)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:  # torch's
        for name in ("min_val", "max_val"):
            stored, mine = state_dict.get(prefix + name), getattr(self, name)
            if isinstance(stored, Tensor) and stored.ndim == mine.ndim == 1:
                setattr(self, name, mine.new_empty(stored.shape))
        super()._load_from_state_dict(state_dict, prefix, *args)


class MinMaxObserver(_RangeObserver):
    """Range from the least to the greatest value ever seen; ``merge`` is exact."""

    may_be_dynamic = True


class PerChannelMinMaxObserver(_RangeObserver):
    """One range per channel, from its least to its greatest value; ``merge`` is exact.

    Args:
        ch_axis: The channel dimension of the observed tensors; negative counts from the last.
        options: The arguments of :class:`Observer`; always static.

    Raises:
        ValueError: See :class:`Observer`; when recording, ``ch_axis`` does not exist in the tensor
            or the number of channels has changed.
    """

    schemes = PER_CHANNEL_SCHEMES

    def __init__(self, *, ch_axis: int = 0, **options: Unpack[ObserverOptions]) -> None:
        super().__init__(**options)
        self.ch_axis = ch_axis

    def _register_statistics(self) -> None:
        self.register_buffer("min_val", torch.empty(0))
        self.register_buffer("max_val", torch.empty(0))

    def _configuration(self) -> dict[str, object]:
        return super()._configuration() | {"ch_axis": self.ch_axis}

    def _extremes(self, values: Tensor) -> tuple[Tensor, Tensor]:
        if not -values.ndim <= self.ch_axis < values.ndim:
            raise ValueError(
                f"{self._name()} keeps channels along dimension {self.ch_axis}, "
                f"but was given a tensor of shape {list(values.shape)}"
            )
        low, high = torch.aminmax(values.movedim(self.ch_axis, 0).unsqueeze(-1).flatten(1), dim=1)
        return low, high


class _MovingAverage(_RangeObserver):
    """Moves the ends of the range a fixed share of the way to those of each batch."""

    batches: Tensor
    """Number of batches recorded; int64, shape []."""
    _ends: Tensor
    averaging_constant: float
    places: int = 1
    """How many values share the range whenever the model runs; it moves once for all of them."""

    def record(self, values: Tensor) -> None:
        """Move the range towards the extremes of ``values``; raises as the min-max observers do.

        Where several values share the range, it moves towards the extremes of all of them, once the
        last is there: the average of a small and a large one would hold neither.
        """
        if self.places == 1:
            super().record(values)
            self.batches += 1
            return
        low, high = (end.to(self._ends.device) for end in torch.aminmax(values))
        self._require_finite(low.item(), high.item())
        self._ends = torch.stack((*self._ends, low, high))
        is_last = len(self._ends) >= 2 * self.places
        if not self.batches:  # of the first run, all that has been seen so far
            self._keep(self._ends.amin(), self._ends.amax())
        elif is_last:
            super().record(self._ends)
        if is_last:
            self.batches += 1
            self._ends = self._ends[:0]

    def _set_averaging_constant(self, constant: float) -> None:
        if not 0 < constant <= 1:
            raise ValueError(f"averaging_constant is {constant}; it must be in (0, 1]")
        if self.is_dynamic and constant != 1:
            raise ValueError(
                f"averaging_constant is {constant}; a dynamic range keeps the last batch, so 1"
            )
        self.averaging_constant = constant

    def _register_statistics(self) -> None:
        super()._register_statistics()
        self.register_buffer("batches", torch.tensor(0))
        self.register_buffer("_ends", torch.empty(0), persistent=False)

    def _configuration(self) -> dict[str, object]:
        return super()._configuration() | {"averaging_constant": self.averaging_constant}

    def _updated(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        share = self.averaging_constant
        return _moved(self.min_val, low, share), _moved(self.max_val, high, share)

    def _merged(self, low: Tensor, high: Tensor, other: Any) -> tuple[Tensor, Tensor]:
        share = int(other.batches) / (int(other.batches) + int(self.batches))
        return _moved(self.min_val, low, share), _moved(self.max_val, high, share)

    def _merge_observed(self, other: Any) -> None:  # Any: see the overridden method
        super()._merge_observed(other)
        self.batches += int(other.batches)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:  # torch's
        # PyTorch's own observers store the same range without a count: it weighs as one batch.
        if prefix + "min_val" in state_dict:
            state_dict.setdefault(prefix + "batches", torch.tensor(1))
        super()._load_from_state_dict(state_dict, prefix, *args)


def _moved(end: Tensor, target: Tensor, share: float) -> Tensor:
    """``end`` moved towards ``target``; the second form is for differences beyond float32."""
    if share == 1:  # exactly there, which a sum of differences need not be
        return target
    moved = end + share * (target - end)
    return torch.where(moved.isfinite(), moved, (1 - share) * end + share * target)


class MovingAverageMinMaxObserver(_MovingAverage):
    """Range whose ends follow those of each batch: ``end += c * (end of batch - end)``.

    The first batch sets the range. ``merge`` averages the ends, weighted by the number of batches
    each observer has recorded; it is not what one observer would have seen of all batches in turn.

    Args:
        averaging_constant: ``c`` above, in (0, 1]; 1 keeps the last batch only.
        options: The arguments of :class:`Observer`; ``is_dynamic`` needs ``averaging_constant=1``.

    Raises:
        ValueError: See :class:`Observer`; or ``averaging_constant`` is out of its range.
    """

    may_be_dynamic = True

    def __init__(
        self, *, averaging_constant: float = 0.01, **options: Unpack[ObserverOptions]
    ) -> None:
        super().__init__(**options)
        self._set_averaging_constant(averaging_constant)


class MovingAveragePerChannelMinMaxObserver(_MovingAverage, PerChannelMinMaxObserver):
    """One moving range per channel.

    It moves and merges as :class:`MovingAverageMinMaxObserver` does, over the channels of
    :class:`PerChannelMinMaxObserver`.

    Args:
        averaging_constant: Share of the way the range moves to each batch, in (0, 1].
        ch_axis: The channel dimension of the observed tensors; negative counts from the last.
        options: The arguments of :class:`Observer`; always static.

    Raises:
        ValueError: As the two classes above.
    """

    def __init__(
        self,
        *,
        averaging_constant: float = 0.01,
        ch_axis: int = 0,
        **options: Unpack[ObserverOptions],
    ) -> None:
        super().__init__(ch_axis=ch_axis, **options)
        self._set_averaging_constant(averaging_constant)


class PlaceholderObserver(Observer):
    """Stands where a dtype is wanted but nothing is recorded: float16, or dynamic quantization.

    Args:
        dtype: The type wanted, float ones included; those have no levels: ``quant_min`` and
            ``quant_max`` are 0.
        options: The other arguments of :class:`Observer`.

    Raises:
        ValueError: See :class:`Observer`; also levels given for a float dtype.
    """

    schemes = PER_TENSOR_SCHEMES + PER_CHANNEL_SCHEMES
    dtypes = (*FLOAT_DTYPES, *INTEGER_RANGES)
    may_be_dynamic = True

    @property
    def observed(self) -> bool:
        """False, always."""
        return False

    def forward(self, x: Tensor) -> Tensor:
        """``x``, of whatever dtype, unrecorded."""
        return x

    def record(self, values: Tensor) -> None:
        """Nothing is recorded."""

    def calculate_qparams(self) -> tuple[Tensor, Tensor]:
        """There is nothing to return.

        Raises:
            RuntimeError: Always.
        """
        raise RuntimeError(
            f"{self._name()} records nothing, so it has no scale and zero point. "
            "Use MinMaxObserver or HistogramObserver for static quantization; "
            f"{self.dtype}{' computed at run time' if self.is_dynamic else ''} needs none"
        )


class FixedQParamsObserver(Observer):
    """Scale and zero point known beforehand, as for sigmoid, whose output lies in [0, 1].

    Args:
        scale: Size of one level; positive and finite.
        zero_point: The level that stands for 0.0.
        options: The arguments of :class:`Observer`; always static.

    Raises:
        ValueError: See :class:`Observer`; or ``scale`` or ``zero_point`` is out of its range.
    """

    scale: Tensor
    """float32, shape [1]."""
    zero_point: Tensor
    """int32, shape [1]."""

    def __init__(
        self, *, scale: float, zero_point: int, **options: Unpack[ObserverOptions]
    ) -> None:
        super().__init__(**options)
        fixed = torch.tensor([scale], dtype=torch.float32)
        if not (fixed.item() > 0 and math.isfinite(fixed.item())):
            raise ValueError(f"scale is {scale}; it must be positive and finite in float32")
        if not self.quant_min <= zero_point <= self.quant_max:
            raise ValueError(
                f"zero_point is {zero_point}; it must lie in {self.quant_min}..{self.quant_max}"
            )
        self.register_buffer("scale", fixed)
        self.register_buffer("zero_point", torch.tensor([zero_point], dtype=torch.int32))

    @property
    def observed(self) -> bool:
        """True, always: no data is needed."""
        return True

    def forward(self, x: Tensor) -> Tensor:
        """``x``, of whatever dtype, unrecorded."""
        return x

    def record(self, values: Tensor) -> None:
        """Nothing is recorded."""

    def calculate_qparams(self) -> tuple[Tensor, Tensor]:
        """The fixed scale (float32) and zero point (int32), both of shape [1]."""
        return self.scale, self.zero_point

    def _configuration(self) -> dict[str, object]:
        fixed = {"scale": self.scale.item(), "zero_point": int(self.zero_point)}
        return super()._configuration() | fixed
