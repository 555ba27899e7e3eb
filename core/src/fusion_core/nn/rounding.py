"""Choosing integer codes for a weight by what the layer is given, not weight by weight.

Rounding each weight to the nearest code minimises the error of the weights. What matters is the
error of the layer's output, ``(W - Q) x`` over the inputs ``x`` that occur. Codes are chosen one
column at a time, and the error of each is carried over to the columns still open, weighted by how
the inputs move together (Frantar et al. 2022, "GPTQ", section 3; the update is that of Hassibi and
Stork 1993, "Optimal Brain Surgeon").
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  the name everyone knows it by
from torch import Tensor, nn

MAX_POSITIONS = 32768
"""How many positions of the inputs second moments are taken over at the most."""

_POSITIONS_PER_COLUMN = 8

_DAMPING = 0.01
_BLOCK = 128


def round_with_feedback(
    weight: Tensor, scale: Tensor, moments: Tensor, *, quant_min: int, quant_max: int
) -> Tensor:
    """Integer codes of a weight that minimise the squared error of the output.

    Args:
        weight: Float tensor of shape [groups, rows, columns]: per group, one row per output
            channel.
        scale: Float tensor of shape [groups, rows, 1].
        moments: Second moments of the inputs about their mean, shape [groups, columns, columns].
        quant_min: Smallest code.
        quant_max: Largest code.

    Returns:
        Codes in the shape of ``weight``, as float32.
    """
    order = torch.argsort(moments.diagonal(dim1=1, dim2=2), dim=1, descending=True)
    # Columns of the weight lie side by side in memory here: [groups, columns, rows].
    places = order.unsqueeze(2).expand(-1, -1, weight.shape[1])
    work = torch.gather(weight.float().transpose(1, 2), 1, places)
    step = scale.float().transpose(1, 2)
    upper = _inverse_factor(moments.double(), order).float()
    codes = torch.empty_like(work)
    for start in range(0, work.shape[1], _BLOCK):
        stop = min(start + _BLOCK, work.shape[1])
        block, factor = work[:, start:stop], upper[:, start:stop, start:stop]
        errors = torch.empty_like(block)
        for column in range(stop - start):
            value = block[:, column : column + 1]
            code = torch.round(value / step).clamp_(quant_min, quant_max)
            codes[:, start + column : start + column + 1] = code
            error = (value - code * step) / factor[:, column, column].view(-1, 1, 1)
            block[:, column + 1 :].baddbmm_(
                factor[:, column, column + 1 :].unsqueeze(2), error, alpha=-1.0
            )
            errors[:, column : column + 1] = error
        work[:, stop:].baddbmm_(upper[:, start:stop, stop:].transpose(1, 2), errors, alpha=-1.0)
    return torch.empty_like(codes).scatter_(1, places, codes).transpose(1, 2)


def _inverse_factor(moments: Tensor, order: Tensor) -> Tensor:
    """Upper factor ``U`` with ``U^T U`` the inverse of the damped moments, columns in ``order``.

    Read backwards, the moments are ``L L^T``; forwards that is ``R R^T`` with ``R`` upper, and
    ``U`` is ``R``'s inverse.
    """
    size = moments.shape[1]
    by_row = torch.gather(moments, 1, order.unsqueeze(2).expand(-1, -1, size))
    ordered = torch.gather(by_row, 2, order.unsqueeze(1).expand(-1, size, -1))
    mean = ordered.diagonal(dim1=1, dim2=2).mean(dim=1).clamp(min=1e-12)
    identity = torch.eye(size, dtype=ordered.dtype)
    damped = ordered + _DAMPING * mean.view(-1, 1, 1) * identity
    backwards = torch.linalg.cholesky(damped.flip(1, 2)).flip(1, 2)
    factor: Tensor = torch.linalg.solve_triangular(
        backwards, identity.expand_as(damped), upper=True
    )
    return factor


class InputMoments:
    """Second moments of what a convolution or linear layer multiplies its weight with.

    Attributes:
        groups: Groups of the layer.
    """

    def __init__(self, layer: Any) -> None:
        """Of ``layer``, a convolution in 1 to 3 dimensions or a linear layer."""
        self._layer = layer
        self.groups = int(getattr(layer, "groups", 1))
        taps = math.prod(getattr(layer, "kernel_size", (1,)))
        self._columns = (
            taps * getattr(layer, "in_channels", getattr(layer, "in_features", 0)) // self.groups
        )

    def of(self, inputs: Iterable[Tensor], *, about_mean: bool) -> Tensor:
        """Second moments, shape [groups, columns, columns], float64.

        Args:
            inputs: Tensors of shape [batch, in, *size] for a convolution, [..., in] for a linear
                layer.
            about_mean: Take them about the mean, because a bias makes up for that.
        """
        batches = list(inputs)
        wanted = min(MAX_POSITIONS, max(_POSITIONS_PER_COLUMN * self._columns, MAX_POSITIONS // 4))
        limit = max(wanted // max(len(batches), 1), 1)
        parts = [self._rows(batch, limit).float() for batch in batches]
        count = sum(part.shape[1] for part in parts)
        mean = (
            torch.stack([part.sum(dim=1, keepdim=True, dtype=torch.float64) for part in parts]).sum(
                0
            )
            / count
        )
        if not about_mean:
            mean = torch.zeros_like(mean)
        # Differences from the mean are taken before multiplying: float32 is exact enough for them.
        centred = [part - mean.float() for part in parts]
        return (
            torch.stack([(part.transpose(1, 2) @ part).double() for part in centred]).sum(0) / count
        )

    def _rows(self, x: Tensor, limit: int) -> Tensor:
        """What one row of the weight meets at each position: shape [groups, positions, columns]."""
        if isinstance(self._layer, nn.Linear):
            rows = x.reshape(-1, x.shape[-1])
            return rows[:: odd_step(len(rows), limit)].unsqueeze(0)
        return _patches(x, self._layer, limit)


def _patches(x: Tensor, conv: Any, limit: int) -> Tensor:
    kernel, stride, dilation = conv.kernel_size, conv.stride, conv.dilation
    windows = F.pad(x, _padding(conv), mode=_PAD_MODES[conv.padding_mode])
    for dim, (size, step, gap) in enumerate(zip(kernel, stride, dilation, strict=True), start=2):
        windows = windows.unfold(dim, gap * (size - 1) + 1, step)
    # Every window is now a trailing dimension of full span; dilation keeps each gap-th of its
    # elements.
    taps = [slice(None)] * (2 + len(kernel)) + [slice(None, None, gap) for gap in dilation]
    windows = windows[tuple(taps)]
    batch, channels, *rest = windows.shape
    places = rest[: len(kernel)]
    per_group = channels // conv.groups
    by_group = windows.reshape(batch, conv.groups, per_group, *rest)
    dims = len(kernel)
    place_dims = list(range(3, 3 + dims))
    tap_dims = list(range(3 + dims, 3 + 2 * dims))
    count = batch
    for place in places:
        count *= place
    step = odd_step(count, limit)
    rows = by_group.permute(1, 0, *place_dims, 2, *tap_dims)
    if step > 1:
        return _every(rows, step, 1 + dims)
    return rows.reshape(conv.groups, count, -1)


def _every(rows: Tensor, step: int, leading: int) -> Tensor:
    """Each ``step``-th position of a view with ``leading`` position dimensions, without copying the rest."""
    shape = rows.shape[1 : 1 + leading]
    flat = torch.arange(0, shape.numel(), step)
    index = torch.unravel_index(flat, shape)
    picked: Tensor = rows.movedim(0, leading)[index]
    return picked.movedim(1, 0).reshape(rows.shape[0], len(flat), -1)


def odd_step(count: int, limit: int) -> int:
    """An odd stride that leaves at most ``limit`` of ``count``; odd, so that it does not walk one column."""
    step = -(-count // limit)
    return step if step == 1 or step % 2 else step + 1


_PAD_MODES = {
    "zeros": "constant",
    "reflect": "reflect",
    "replicate": "replicate",
    "circular": "circular",
}


def _padding(conv: Any) -> list[int]:
    """Padding in the order of ``F.pad``, innermost dimension first."""
    if not isinstance(conv.padding, str):
        return [each for amount in reversed(conv.padding) for each in (amount, amount)]
    pads: list[int] = []
    for size, gap in zip(reversed(conv.kernel_size), reversed(conv.dilation), strict=True):
        total = gap * (size - 1) if conv.padding == "same" else 0
        pads += [total // 2, total - total // 2]
    return pads
