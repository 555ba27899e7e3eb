"""Embeddings on weights in rows of codes, with the scale and the minimum of each row behind its codes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from fusion_core.qops import QuantizedTensor

HIGHEST_OF_FOUR_BITS = 15

_SIGNED_OFFSET = 128
_MOST_OF_A_STEP = 1 / 16
_MATRIX = 2


class RowsKernel(nn.Module):
    """A weight of shape [rows, columns] in rows of bytes.

    Attributes:
        rows: uint8 of shape [rows, bytes]: the codes, then scale and minimum, in float32 behind codes
            of 8 bits and in float16 behind codes of 4.
        columns: Codes of a row that count.
        bits: Of a code.
    """

    rows: Tensor

    def __init__(self, weight: QuantizedTensor) -> None:
        """Of codes of 8 bits; in 4 bits where they need no more and float16 is exact enough."""
        super().__init__()
        codes, scale, low = _by_row(weight)
        self.columns = codes.shape[1]
        self.bits = 4 if _fit_four_bits(codes, scale, low) else 8
        packed = _four_bits(codes) if self.bits < 8 else codes  # noqa: PLR2004
        dtype = torch.float16 if self.bits < 8 else torch.float32  # noqa: PLR2004
        ends = torch.stack([scale, low], dim=1).to(dtype).contiguous().view(torch.uint8)
        self.register_buffer("rows", torch.cat([packed, ends], dim=1))

    def extra_repr(self) -> str:
        """Rows, columns and bits."""
        return f"{self.rows.shape[0]}, {self.columns}, bits={self.bits}"

    def sums(
        self,
        indices: Tensor,
        offsets: Tensor,
        weights: Tensor | None = None,
        *,
        has_last: bool = False,
    ) -> Tensor:
        """For each bag, the sum of its rows.

        Args:
            indices: Of shape [count], int32 or int64.
            offsets: Where in them each bag begins.
            weights: What each row is multiplied by, float32 of shape [count].
            has_last: Whether the last of ``offsets`` is where the last bag ends.

        Returns:
            Float32 of shape [bags, columns].
        """
        width = "4bit" if self.bits < 8 else "byte"  # noqa: PLR2004
        kernel = getattr(torch.ops.quantized, f"embedding_bag_{width}_rowwise_offsets")
        found: Tensor = kernel(
            *(self.rows, indices, offsets, False, 0, False, weights, None, has_last)
        )
        return found[:, : self.columns]


def _by_row(weight: QuantizedTensor) -> tuple[Tensor, Tensor, Tensor]:
    """Unsigned codes, and scale and value of the code 0 of each row."""
    offset = _SIGNED_OFFSET if weight.codes.dtype is torch.int8 else 0
    codes = (weight.codes.to(torch.int16) + offset).to(torch.uint8)
    scale = weight.scale.float()
    low = -(weight.zero_point.float() + offset) * scale
    count = codes.shape[0]
    return codes, scale.expand(count), low.expand(count)


def _fit_four_bits(codes: Tensor, scale: Tensor, low: Tensor) -> bool:
    """Whether no code needs more, and scale and minimum in float16 move no value by more than a part of a step."""
    if codes.numel() == 0 or int(codes.max()) > HIGHEST_OF_FOUR_BITS:
        return False
    moved = HIGHEST_OF_FOUR_BITS * (scale.half().float() - scale).abs()
    moved = moved + (low.half().float() - low).abs()
    return bool((moved <= _MOST_OF_A_STEP * scale).all())


def _four_bits(codes: Tensor) -> Tensor:
    """Two codes in each byte, the first in the lower half."""
    if codes.shape[1] % 2:
        codes = torch.nn.functional.pad(codes, (0, 1))
    return codes[:, 0::2] | (codes[:, 1::2] << 4)


class EmbeddingRows(RowsKernel):
    """Looks up rows."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  the name torch gives it
        """Of indices of any shape; float32 of that shape and the columns.

        Raises:
            RuntimeError: An index is out of range.
        """
        flat = input.reshape(-1)
        each = torch.arange(flat.numel(), dtype=flat.dtype, device=flat.device)
        return self.sums(flat, each).reshape(*input.shape, self.columns)


class EmbeddingBagRows(RowsKernel):
    """Sums or means of looked-up rows.

    Attributes:
        averages: Whether it gives means.
        has_last: Whether offsets end with the end of the last bag.
    """

    def __init__(self, weight: QuantizedTensor, bag: Any) -> None:
        """Of the weight and the settings of ``bag``, an ``nn.EmbeddingBag`` in mode sum or mean."""
        super().__init__(weight)
        self.averages = bag.mode == "mean"
        self.has_last = bool(bag.include_last_offset)
        if bag.padding_idx is not None:  # a row of zeros adds nothing to a sum
            self.rows[bag.padding_idx] = 0

    def forward(
        self,
        input: Tensor,  # noqa: A002  the name torch gives it
        offsets: Tensor | None = None,
        per_sample_weights: Tensor | None = None,
    ) -> Tensor:
        """As ``nn.EmbeddingBag``: of bags of one size, shape [bags, size], or of any, by offsets.

        Raises:
            ValueError: The offsets do not begin at 0 or do not end where they should, or there are
                none where they are needed.
            RuntimeError: An index is out of range.
        """
        has_last = self.has_last and input.dim() < _MATRIX
        indices, starts = _flattened(input, offsets, has_last=has_last)
        weights = None if per_sample_weights is None else per_sample_weights.reshape(-1).float()
        found = self.sums(indices, starts, weights, has_last=has_last)
        if not self.averages:
            return found
        ends = (
            starts[1:] if has_last else torch.cat([starts[1:], starts.new_tensor([len(indices)])])
        )
        counts = ends - (starts[:-1] if has_last else starts)
        return found / counts.clamp(min=1).unsqueeze(1)


def _flattened(indices: Tensor, offsets: Tensor | None, *, has_last: bool) -> tuple[Tensor, Tensor]:
    """All indices in a row, and where each bag begins; behind that the end, where ``has_last`` says so."""
    if indices.dim() == _MATRIX:
        if offsets is not None:
            raise ValueError("bags of one size, in 2 dimensions, take no offsets")
        bags, size = indices.shape
        starts = torch.arange(bags, dtype=indices.dtype, device=indices.device) * size
        return indices.reshape(-1), starts
    if offsets is None:
        raise ValueError("indices of one dimension need offsets, which say where each bag begins")
    if offsets.numel() and int(offsets[0]) != 0:
        raise ValueError(f"offsets begin at {int(offsets[0])}; the first bag begins at 0")
    if has_last and (not offsets.numel() or int(offsets[-1]) != indices.numel()):
        msg = (
            f"offsets that include the last one end with the number of indices, {indices.numel()}; "
            f"these end with {offsets[-1:].tolist()}"
        )
        raise ValueError(msg)
    return indices, offsets
