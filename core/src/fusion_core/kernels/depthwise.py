"""Depthwise convolutions in the one form that FBGEMM has a fast kernel for.

Its kernel for 3x3 and 5x5 takes the same padding on all sides, half the kernel's size, and is some
fifty times faster than the general one. Any other padding up to that size is the same convolution
with stride 1 and full padding, of which only some positions are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from fusion_core.kernels.geometry import ConvSettings

_SIZES = ((3, 3), (5, 5))
_STRIDES = ((1, 1), (2, 2))
_CHANNELS_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class Positions:
    """Which positions of an output are kept, per spatial dimension.

    Attributes:
        start: The first.
        step: Distance to the next.
        cut: How much smaller than the input the kept output would be at step 1.
    """

    start: tuple[int, ...]
    step: tuple[int, ...]
    cut: tuple[int, ...]

    def of(self, output: Tensor) -> Tensor:
        """The kept positions of ``output``, which is as large as the input."""
        for dim, (start, step, cut) in enumerate(
            zip(self.start, self.step, self.cut, strict=True), start=2
        ):
            count = (output.shape[dim] - cut - 1) // step + 1
            output = output.narrow(dim, start, (count - 1) * step + 1)
            output = output[(slice(None),) * dim + (slice(None, None, step),)]
        return output


def fast_form(
    settings: ConvSettings, weight_shape: Sequence[int]
) -> tuple[ConvSettings, Positions | None]:
    """The geometry to pack, and which positions of its output to keep; None keeps all.

    Args:
        settings: The geometry that is asked for.
        weight_shape: ``[out, in / groups, *kernel]``.

    Returns:
        ``settings`` itself where no faster form is known.
    """
    channels, per_group, *kernel = weight_shape
    is_depthwise = per_group == 1 and channels == settings.groups
    if not is_depthwise or channels % _CHANNELS_AT_ONCE or tuple(kernel) not in _SIZES:
        return settings, None
    half = tuple(size // 2 for size in kernel)
    low, high = settings.zeros_before, settings.zeros_behind
    too_wide = any(
        amount > most for amount, most in zip((*low, *high), (*half, *half), strict=True)
    )
    if settings.dilation != (1, 1) or too_wide:
        return settings, None
    if low == high == half and settings.stride in _STRIDES:
        return replace(settings, padding=half, before=()), None
    kept = Positions(
        start=tuple(most - amount for most, amount in zip(half, low, strict=True)),
        step=settings.stride,
        cut=tuple(
            size - 1 - first - last for size, first, last in zip(kernel, low, high, strict=True)
        ),
    )
    return replace(settings, stride=(1, 1), padding=half, before=()), kept
