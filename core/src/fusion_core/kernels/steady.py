"""Operations on quantized tensors whose result does not depend on the engine that the process has selected.

Of what has no packed weight, much looks at ``torch.backends.quantized.engine`` while it runs. With
QNNPACK selected, PyTorch rounds sums and means in another way, refuses some windows, and clamps
tensors with channels last to wrong values. The engine is one for the whole process, so to select
another for the time of a call would be seen by every other thread. The functions here take detours
over operations that do not look. Each is called as the function of PyTorch that it is named after.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F  # noqa: N812  the name everyone knows it by
from torch import Tensor, nn

Size: TypeAlias = int | Sequence[int]

_CHANNELS = 2
_IMAGES = 4


class Steady(nn.Module):
    """Calls a function of this module; tracing does not look into a module.

    Attributes:
        function: What is called.
    """

    def __init__(self, function: Callable[..., Tensor]) -> None:
        """A module that calls ``function``."""
        super().__init__()
        self.function = function

    def forward(self, codes: Tensor, **settings: Any) -> Tensor:
        """What the function gives."""
        return self.function(codes, **settings)

    def extra_repr(self) -> str:
        """Name of the function."""
        return self.function.__name__


def clamp(codes: Tensor, low: float, high: float) -> Tensor:
    """``codes`` within ``[low, high]``, in units of the values; of any shape."""
    if codes.is_contiguous():
        return torch.clamp(codes, low, high)
    # With QNNPACK selected, only what lies in memory in the order of its dimensions is read rightly.
    in_order = codes.movedim(1, -1).contiguous()
    return torch.clamp(in_order, low, high).movedim(-1, 1)


def add(left: Tensor, right: Tensor, like: Tensor, *, rectified: bool) -> Tensor:
    """The sum of two quantized tensors, which may be broadcast.

    Args:
        left: The first.
        right: The second.
        like: Any tensor with the output's scale and zero point.
        rectified: Whether to give 0 for what is below 0.
    """
    kernel = torch.ops.quantized.add_relu.out if rectified else torch.ops.quantized.add.out
    same = left.shape == right.shape
    shape = left.shape if same else torch.broadcast_shapes(left.shape, right.shape)
    if left.is_contiguous() or len(shape) <= _CHANNELS:
        out = torch.empty_quantized(shape, like)
    else:
        batch, channels, *size = shape
        out = torch.empty_quantized([batch, *size, channels], like).movedim(-1, 1)
    result: Tensor = kernel(left, right, out)
    return result


def mean(
    codes: Tensor,
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,  # noqa: FBT001, FBT002  as torch calls it
) -> Tensor:
    """Mean over one dimension, several, or all."""
    dims = (dim,) if isinstance(dim, int) else tuple(dim or range(codes.dim()))
    kept = codes.mean(dims, keepdim=True)
    return kept if keepdim else kept.squeeze(dims)


def max_pool1d(  # noqa: PLR0913, PLR0917  as torch calls it
    codes: Tensor,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    dilation: Size = 1,
    ceil_mode: bool = False,  # noqa: FBT001, FBT002
    return_indices: bool = False,  # noqa: ARG001, FBT001, FBT002  the rules refuse True
) -> Tensor:
    """Largest value of each window along the last dimension."""
    rows = codes.unsqueeze(-2)
    window, steps = _flat(kernel_size), _flat(stride or kernel_size)
    zeros, distance = _flat(padding, beside=0), _flat(dilation)
    return max_pool2d(rows, window, steps, zeros, distance, ceil_mode).squeeze(-2)


def max_pool2d(  # noqa: PLR0913, PLR0917  as torch calls it
    codes: Tensor,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    dilation: Size = 1,
    ceil_mode: bool = False,  # noqa: FBT001, FBT002
    return_indices: bool = False,  # noqa: ARG001, FBT001, FBT002  the rules refuse True
) -> Tensor:
    """Largest value of each window over the last two dimensions."""
    if codes.dim() < _IMAGES:
        batch = codes.unsqueeze(0)
        return max_pool2d(batch, kernel_size, stride, padding, dilation, ceil_mode).squeeze(0)
    window, steps = _each(kernel_size, 2), _each(stride or kernel_size, 2)
    if window == (1, 1):  # QNNPACK calls it meaningless
        return codes[..., :: steps[0], :: steps[1]]
    zeros, distance = _each(padding, 2), _each(dilation, 2)
    pooled: Tensor = torch.max_pool2d(codes, window, steps, zeros, distance, ceil_mode)
    return pooled


def avg_pool1d(
    codes: Tensor,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    ceil_mode: bool = False,  # noqa: FBT001, FBT002
    count_include_pad: bool = True,  # noqa: FBT001, FBT002
) -> Tensor:
    """Mean of each window along the last dimension."""
    rows = codes.unsqueeze(-2)
    window, steps = _flat(kernel_size), _flat(stride or kernel_size)
    zeros = _flat(padding, beside=0)
    return avg_pool2d(rows, window, steps, zeros, ceil_mode, count_include_pad).squeeze(-2)


def avg_pool2d(  # noqa: PLR0913, PLR0917  as torch calls it
    codes: Tensor,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    ceil_mode: bool = False,  # noqa: FBT001, FBT002
    count_include_pad: bool = True,  # noqa: FBT001, FBT002
    divisor_override: int | None = None,
) -> Tensor:
    """Mean of each window over the last two dimensions."""
    window, steps = (1, *_each(kernel_size, 2)), (1, *_each(stride or kernel_size, 2))
    pool = partial(
        F.avg_pool3d,
        kernel_size=window,
        stride=steps,
        padding=(0, *_each(padding, 2)),
        ceil_mode=ceil_mode,
        count_include_pad=count_include_pad,
        divisor_override=divisor_override,
    )
    return _through_volume(codes, pool)


def adaptive_avg_pool1d(codes: Tensor, output_size: Size) -> Tensor:
    """Means over ``output_size`` areas of equal share along the last dimension."""
    return _adaptive(codes, _each(output_size, 1))


def adaptive_avg_pool2d(codes: Tensor, output_size: Size) -> Tensor:
    """Means over ``output_size`` areas of equal share of the last two dimensions."""
    return _adaptive(codes, _each(output_size, 2))


def adaptive_avg_pool3d(codes: Tensor, output_size: Size) -> Tensor:
    """Means over ``output_size`` areas of equal share of the last three dimensions."""
    return _adaptive(codes, _each(output_size, 3))


def interpolate(  # noqa: PLR0913, PLR0917  as torch calls it
    codes: Tensor,
    size: Size | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,  # noqa: FBT001
    recompute_scale_factor: bool | None = None,  # noqa: FBT001
    antialias: bool = False,  # noqa: ARG001, FBT001, FBT002  the rules refuse True
) -> Tensor:
    """Resized by nearest values, linearly in one or two dimensions, or by means of areas."""
    dims = codes.dim() - _CHANNELS
    sizes = None if size is None else _each(size, dims)
    factors: Any = scale_factor if isinstance(scale_factor, Sequence) else (scale_factor,) * dims
    if mode == "area":
        return _adaptive(codes, sizes or _resized(codes, factors))
    resize = partial(
        F.interpolate,
        mode="bilinear" if mode == "linear" else mode,
        align_corners=align_corners,
        recompute_scale_factor=recompute_scale_factor,
    )
    if dims > 1:
        return resize(codes, sizes, None if sizes else factors)
    rows = codes.unsqueeze(-2)
    if sizes:
        return resize(rows, (1, *sizes)).squeeze(-2)
    return resize(rows, scale_factor=(1.0, *factors)).squeeze(-2)


def _resized(codes: Tensor, factors: Sequence[Any]) -> list[int]:
    """The sizes that torch gives what it scales by ``factors``."""
    sizes = codes.shape[_CHANNELS:]
    return [int(size * factor) for size, factor in zip(sizes, factors, strict=True)]


def _adaptive(codes: Tensor, wanted: Sequence[int | None]) -> Tensor:
    """Means over ``wanted`` areas of the last dimensions; None keeps a dimension."""
    dims = tuple(range(-len(wanted), 0))
    counts = [count or codes.shape[dim] for dim, count in zip(dims, wanted, strict=True)]
    if not any(codes.shape[dim] % count for dim, count in zip(dims, counts, strict=True)):
        return _even_shares(codes, counts)
    rows = [codes]
    for dim, count in zip(dims, counts, strict=True):
        rows = [area for row in rows for area in _areas(row, dim, count)]
    means = [row.mean(dims, keepdim=True) for row in rows]
    for dim, count in zip(reversed(dims), reversed(counts), strict=True):
        means = [
            torch.cat(means[first : first + count], dim) for first in range(0, len(means), count)
        ]
    return means[0]


def _even_shares(codes: Tensor, counts: Sequence[int]) -> Tensor:
    """Means over areas that do not overlap, which are the windows of a pooling."""
    dims, missing = len(counts), 3 - len(counts)
    if codes.dim() == dims + 1:
        return _even_shares(codes.unsqueeze(0), counts).squeeze(0)
    shares = [size // count for size, count in zip(codes.shape[2:], counts, strict=True)]
    everything = (slice(None), slice(None))
    volume = codes[everything + (None,) * missing]
    pooled = F.avg_pool3d(volume, (*[1] * missing, *shares))
    return pooled[everything + (0,) * missing]


def _areas(codes: Tensor, dim: int, count: int) -> list[Tensor]:
    """``count`` parts along a dimension of almost equal size, which may share a border."""
    size = codes.shape[dim]
    ends = [(size * part // count, -(-size * (part + 1) // count)) for part in range(count)]
    return [codes.narrow(dim, first, last - first) for first, last in ends]


def _through_volume(images: Tensor, pool: Callable[[Tensor], Tensor]) -> Tensor:
    """``pool``, which takes volumes with a batch, on images with a batch or without."""
    if images.dim() < _IMAGES:
        return _through_volume(images.unsqueeze(0), pool).squeeze(0)
    return pool(images.unsqueeze(2)).squeeze(2)


def _flat(size: Size, *, beside: int = 1) -> tuple[int, int]:
    """A setting for one dimension, for two of which the first has size 1."""
    return beside, _each(size, 1)[0]


def _each(size: Size, dims: int) -> tuple[int, ...]:
    if not isinstance(size, Sequence):
        return (size,) * dims
    return tuple(size) if len(size) == dims else tuple(size) * dims
