"""The histogram observer: a range clipped so that the mean squared quantization error is small.

The method is that of PyTorch's ``HistogramObserver`` and, before it, of ``norm_minimization.cc`` in
Caffe2. Results are the same to the last bit; the search walks the same path of clipping ranges,
but finds each step by bisection and weighs many of them at once.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from functools import cache
from itertools import islice
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor

from fusion_core.nn.protocol import Observer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typing_extensions import Unpack

    from fusion_core.nn.protocol import ObserverOptions

__all__ = ["HistogramObserver"]

_QUANTILE_STEP: Final = 1e-5
_REFINEMENT: Final = 16  # an old bin is spread over a wider range in this many parts
_EXACT_COUNT: Final = 2**24  # the largest count that float32 can still increase by one
_WIDE: Final = 2.0**30  # ranges beyond this are searched in smaller units
_SHRUNK: Final = 2.0**-64  # unit for ranges too wide to be multiplied by the number of bins
_MOST_ROWS: Final = 12
_BLOCK: Final = 12_288  # elements per temporary; larger ones leave the cache and the fast allocator
_DOUBLE_LEVELS: Final = 2**16  # a float64 quotient of two float32 has an exact floor up to here
_LARGEST: Final = torch.finfo(torch.float32).max
_FLOAT32: Final = Struct("f")


class HistogramObserver(Observer):
    """Keeps a histogram of all values and clips its sparse ends where that lowers the error.

    ``merge`` re-bins both histograms over their common range, as recording does when the range
    grows: exact in range and number of values, and in place to a sixteenth of a bin of the
    narrower histogram, or to one bin where it held a single value.

    Args:
        bins: Number of bins, at least 2.
        options: The arguments of :class:`Observer`; always static.

    Raises:
        ValueError: See :class:`Observer`; or there are too few bins.
    """

    histogram: Tensor
    """Number of values per bin, equal bins from ``min_val`` to ``max_val``; float32, [bins]."""
    min_val: Tensor
    max_val: Tensor

    def __init__(self, *, bins: int = 2048, **options: Unpack[ObserverOptions]) -> None:
        super().__init__(**options)
        if bins <= 1:
            raise ValueError(f"bins is {bins}; a histogram needs at least 2")
        self.bins = bins
        self.register_buffer("histogram", torch.zeros(bins))

    @property
    def observed(self) -> bool:
        """Whether data has been recorded."""
        return bool(self.min_val <= self.max_val)

    def record(self, values: Tensor) -> None:
        """Count ``values``; the histogram is re-binned first if they exceed its range.

        Raises:
            NonFiniteActivationError: ``values`` holds NaN or infinity.
        """
        ends = torch.aminmax(values)
        low, high = ends.min.item(), ends.max.item()
        self._require_finite(low, high)
        if self.observed:
            low, high = min(low, self.min_val.item()), max(high, self.max_val.item())
        counts = _counts(values, self.bins, low, high).to(self.histogram.device)
        self._add(counts, low, high)

    def calculate_qparams(self) -> tuple[Tensor, Tensor]:
        """Scale (float32) and zero point (int32), [1]; without data 1 and 0, and a warning."""
        if not self.observed:
            return self._unobserved_qparams()
        return self._qparams(*self.clipped_range())

    def clipped_range(self) -> tuple[Tensor, Tensor]:
        """Least and greatest value to represent; float32, shape [].

        Both ends move inwards, each time the one that passes more bins per quantile of 1e-5 of the
        values, until the squared error of quantization to ``quant_max - quant_min + 1`` levels
        would grow.
        """
        low, high = self.min_val.float(), self.max_val.float()
        start, end = _search(
            self.histogram.detach().float().cpu(),
            low.item(),
            high.item(),
            self.quant_max - self.quant_min + 1,
        )
        unit = _unit(low.item(), high.item())
        low, high = low * unit, high * unit
        width = (high - low) / self.bins
        ends = torch.stack([low + width * start, low + width * (end + 1)]) / unit
        first, last = ends.clamp(-_LARGEST, _LARGEST).unbind()
        return first, last

    def _register_statistics(self) -> None:
        self.register_buffer("min_val", torch.tensor(math.inf))
        self.register_buffer("max_val", torch.tensor(-math.inf))

    def _configuration(self) -> dict[str, object]:
        return super()._configuration() | {"bins": self.bins}

    def _add(self, counts: Tensor, low: float, high: float) -> None:
        """Add ``counts``, whose range from ``low`` to ``high`` holds the present one."""
        if self.observed:
            counts = counts + self._rebinned(low, high)
        self.histogram.copy_(counts)
        self.min_val.fill_(low)
        self.max_val.fill_(high)

    def _rebinned(self, low: float, high: float) -> Tensor:
        """The histogram over the wider range from ``low`` to ``high``, with the same sum."""
        own_low, own_high = self.min_val.item(), self.max_val.item()
        if (own_low, own_high) == (low, high):
            return self.histogram
        if own_low == own_high:
            place = _counts(self.min_val.float().reshape(1), self.bins, low, high)
            return place * self.histogram.sum()
        return _spread(self.histogram, (own_low, own_high), (low, high))

    def _merge_observed(self, other: Any) -> None:  # Any: see the overridden method
        low, high = other.min_val.item(), other.max_val.item()
        if self.observed:
            low, high = min(low, self.min_val.item()), max(high, self.max_val.item())
        self._add(other._rebinned(low, high).to(self.histogram.device), low, high)  # noqa: SLF001


def _unit(low: float, high: float) -> float:
    """What to multiply a range by so that sums over its bins stay within float32."""
    return _SHRUNK if high - low > 2.0**100 else 1.0


def _counts(values: Tensor, bins: int, low: float, high: float) -> Tensor:
    """Histogram of ``values`` from ``low`` to ``high``, counted in portions that stay exact."""
    unit = _unit(low, high)
    total = torch.zeros(bins, device=values.device)
    for portion in values.reshape(-1).split(_EXACT_COUNT):
        scaled = portion if unit == 1 else portion * unit
        total += torch.histc(scaled, bins, min=low * unit, max=high * unit)
    return total


def _spread(histogram: Tensor, old: tuple[float, float], new: tuple[float, float]) -> Tensor:
    """``histogram`` over the range ``old``, counted again over the wider range ``new``."""
    bins, unit, device = len(histogram), _unit(*new), histogram.device
    old_low, old_high = (torch.tensor(end * unit, device=device) for end in old)
    new_low, new_high = (torch.tensor(end * unit, device=device) for end in new)
    parts = bins * _REFINEMENT
    part_width = (old_high - old_low) / parts
    lower_edges = torch.linspace(old_low, old_high, parts + 1, device=device)[:-1]
    edges = torch.linspace(new_low, new_high, bins + 1, device=device)
    owner = torch.bucketize(lower_edges + 0.5 * part_width, edges, right=True) - 1
    weights = histogram.repeat_interleave(_REFINEMENT) / _REFINEMENT
    return torch.bincount(owner.clamp_(0, bins - 1), weights=weights, minlength=bins)


def _search(histogram: Tensor, low: float, high: float, levels: int) -> tuple[int, int]:
    """First and last bin to keep; ``histogram`` is float32 on the CPU."""
    bins = len(histogram)
    span = high - low
    if span > _WIDE:  # by a power of two, so that nothing but overflow changes
        span = math.ldexp(math.frexp(span)[0], 30)
    width = span / bins
    cumulative = histogram.cumsum(0).tolist()
    path = _path(cumulative, histogram.sum().item())
    kept = (0, bins - 1)
    if width == 0:  # every choice has the same error, so the path is followed to its end
        return max(enumerate(path), default=(0, kept))[1]
    errors = _Errors(histogram, width, levels)
    least = math.inf
    while ranges := list(islice(path, errors.rows)):
        for candidate, error in zip(ranges, errors.of(ranges), strict=True):
            if error > least:
                return kept
            least, kept = error, candidate
    return kept


@cache
def _quantiles() -> tuple[list[float], list[float]]:
    """The lower quantiles 0, 1e-5, ... and the upper ones 1, 1 - 1e-5, ..., summed step by step."""
    lower, upper = [0.0], [1.0]
    while lower[-1] < 1:
        lower.append(lower[-1] + _QUANTILE_STEP)
    while upper[-1] > 0:
        upper.append(upper[-1] - _QUANTILE_STEP)
    return lower, upper


def _float32(value: float) -> float:
    """``value`` rounded as PyTorch rounds a number that it compares with float32."""
    rounded: float = _FLOAT32.unpack(_FLOAT32.pack(value))[0]
    return rounded


def _path(cumulative: list[float], total: float) -> Iterator[tuple[int, int]]:
    """The ranges of bins to try, each inside the one before, beginning with the first clipped."""
    lower, upper = _quantiles()
    below = above = 0  # quantile steps taken from either end
    start, end = 0, len(cumulative) - 1
    while lower[below] < upper[above]:
        left = bisect_left(cumulative, _float32(lower[below + 1] * total), start, end)
        limit = _float32(upper[above + 1] * total)
        right = bisect_right(cumulative, limit, start + 1, end + 1) - 1
        if left - start > end - right:
            start = left
            below += 1
        elif right < end:
            end = right
            above += 1
        elif start == end:
            return
        else:  # skip the upper quantiles that still lie in the last bin
            above = bisect_right(
                upper, -cumulative[end], above + 2, key=lambda q: -_float32(q * total)
            )
            if above == len(upper):
                return
            above -= 1
            continue
        yield start, end


class _Errors:
    """Squared quantization errors of a histogram for many clipping ranges at once.

    Values spread evenly over a bin that lies between ``a`` and ``b`` of the centre of its level
    add ``density * (b**3 - a**3) / 3``. The order of the float32 operations is PyTorch's.
    """

    def __init__(self, histogram: Tensor, width: float, levels: int) -> None:
        bins = len(histogram)
        self._width, self._levels = width, levels
        # An empty bin adds nothing, unless the width vanishes in float32 and its density is 0 / 0.
        vanishing = _float32(width / levels) < torch.finfo(torch.float32).tiny
        used = torch.arange(bins) if vanishing else histogram.nonzero().flatten()
        self._used = used
        self._density = histogram[used] / width
        self.rows = max(1, min(_MOST_ROWS, _BLOCK // max(len(used), 1)))
        self._terms = torch.zeros(self.rows, bins)

    def of(self, ranges: list[tuple[int, int]]) -> list[float]:
        """The error of keeping each of ``ranges``, at most ``rows`` of them."""
        steps = [self._width * (end - start + 1) / self._levels for start, end in ranges]
        step = torch.tensor(steps, dtype=torch.float64).unsqueeze(1)
        half = (step / 2).float()
        begin = (self._used - torch.tensor(ranges)[:, :1]) * self._width
        end = begin + self._width
        first, last = self._level(begin, step), self._level(end, step)
        step = step.float()
        half_cube = half * half * half
        terms = self._norm(_cube(begin - (first + 0.5) * step), half_cube)
        terms += (last - first - 1) * self._norm(-half_cube, half_cube)
        terms += self._norm(-half_cube, _cube(end - (last * step + half)))
        rows = self._terms[: len(ranges)]
        rows[:, self._used] = terms
        sums: list[float] = rows.sum(dim=1).tolist()
        return sums

    def _level(self, position: Tensor, step: Tensor) -> Tensor:
        """The level into which each position falls, as float32."""
        if self._levels <= _DOUBLE_LEVELS:  # several times faster, and the same number
            level = torch.floor(position.double() / step.float())
        else:
            level = torch.div(position, step.float(), rounding_mode="floor")
        return level.clamp_(0, self._levels - 1).float()

    def _norm(self, begin_cube: Tensor, end_cube: Tensor) -> Tensor:
        return self._density * ((end_cube - begin_cube) / 3)


def _cube(values: Tensor) -> Tensor:
    return values * values * values
