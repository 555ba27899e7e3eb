"""Where a convolution's windows lie."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ConvSettings:
    """Geometry of a convolution, one value per spatial dimension, outermost first.

    Attributes:
        stride: Step.
        padding: Zeros on both sides.
        dilation: Distance between taps.
        groups: Number of groups of channels.
        before: Zeros to add first, in the order of ``F.pad``, where the two sides differ; else empty.
    """

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    before: tuple[int, ...] = ()

    @property
    def zeros_before(self) -> tuple[int, ...]:
        """Zeros in front, of both kinds of padding together."""
        return self._zeros(self.before[0::2])

    @property
    def zeros_behind(self) -> tuple[int, ...]:
        """Zeros behind, of both kinds of padding together."""
        return self._zeros(self.before[1::2])

    def _zeros(self, side: tuple[int, ...]) -> tuple[int, ...]:
        outermost_first = side[::-1] or (0,) * len(self.padding)
        return tuple(own + more for own, more in zip(self.padding, outermost_first, strict=True))
