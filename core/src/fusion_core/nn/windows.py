"""Attention within shifted windows, as Swin has it, around two linear layers.

torchvision computes it in one function, which FX keeps whole because it decides by the size of the image. Here
what depends on the size is in functions that are nodes of their own, and the projections stand between them.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812  the name everyone knows it by
from torch import Tensor, nn
from torch.overrides import handle_torch_function, has_torch_function

_OTHER_REGION = -100.0
"""What is added to the scores of tokens that the shift has put side by side."""


class WindowAttention(nn.Module):
    """What torchvision's ``ShiftedWindowAttention``, of either version, computes in eval mode.

    Attributes:
        qkv: Projection to queries, keys and values.
        proj: Projection of what the heads give.
        bias: What is added to the scores for the places of two tokens, shape [1, heads, tokens,
            tokens]; None in a model that is to be trained, which has ``table``.
        table: The values of the bias, shape [distances, heads], a parameter; else None.
        index: For each pair of tokens its row of ``table``.
        logit_scale: Logarithm of the factor of cosine attention, shape [heads, 1, 1], or None.
        stands_for: Type of the module it was made from.
    """

    bias: Tensor | None
    table: nn.Parameter | None
    index: Tensor
    logit_scale: Tensor | None

    def __init__(self, attention: Any) -> None:
        """With the layers of ``attention``; outside of training its position bias is computed here, once for all."""
        super().__init__()
        self.window, self.shift = tuple(attention.window_size), tuple(attention.shift_size)
        self.qkv, self.proj = attention.qkv, attention.proj
        self.attention_dropout, self.dropout = attention.attention_dropout, attention.dropout
        self.stands_for = type(attention)
        trained = attention.training
        table = attention.relative_position_bias_table if trained else None
        self.register_parameter("table", table)
        self.register_buffer("index", attention.relative_position_index if trained else None)
        with torch.no_grad():
            bias = None if trained else attention.get_relative_position_bias().detach()
            self.register_buffer("bias", bias)
            scale: Tensor | None = getattr(attention, "logit_scale", None)
            self.register_buffer("logit_scale", None if scale is None else scale.detach())
            if self.logit_scale is not None and self.qkv.bias is not None:
                self.qkv.bias.chunk(3)[1].zero_()  # the second version has no bias on its keys
        self.train(attention.training)

    def forward(self, image: Tensor) -> Tensor:
        """Of and to a tensor of shape [batch, height, width, features]."""
        projected = self.qkv(to_windows(image, self.window, self.shift))
        bias: Any = self.bias if self.table is None else position_bias(self.table, self.index)
        placed = (self.window, self.shift)
        dropout = self.attention_dropout if self.training else 0.0
        attended = attend_in_windows(projected, bias, self.logit_scale, image, placed, dropout)
        rows = F.dropout(self.proj(attended), self.dropout, self.training)
        return from_windows(rows, image, self.window, self.shift)


def position_bias(table: Tensor, index: Tensor) -> Tensor:
    """What is added to the scores of each pair of tokens.

    Args:
        table: Of shape [distances, heads].
        index: Row of ``table`` for each pair of tokens, shape [tokens * tokens].

    Returns:
        A tensor of shape [1, heads, tokens, tokens].
    """
    if has_torch_function((table,)):
        traced: Tensor = handle_torch_function(position_bias, (table,), table, index)
        return traced
    tokens = math.isqrt(index.numel())
    return table[index].view(tokens, tokens, -1).permute(2, 0, 1).contiguous().unsqueeze(0)


def to_windows(image: Tensor, window: tuple[int, int], shift: tuple[int, int]) -> Tensor:
    """The windows of an image, which is padded with zeros and rolled before.

    Args:
        image: Of shape [batch, height, width, features].
        window: Height and width of a window.
        shift: How far it is rolled in each direction; not at all where one window is enough.

    Returns:
        A tensor of shape [batch * windows, tokens, features].
    """
    if has_torch_function((image,)):
        traced: Tensor = handle_torch_function(to_windows, (image,), image, window, shift)
        return traced
    layout = _Layout.of(image, window, shift)
    right, below = layout.width - image.shape[2], layout.height - image.shape[1]
    return layout.cut(layout.rolled(F.pad(image, (0, 0, 0, right, 0, below))))


def attend_in_windows(
    qkv: Tensor,
    bias: Tensor,
    logit_scale: Tensor | None,
    image: Tensor,
    placed: tuple[tuple[int, int], tuple[int, int]],
    dropout: float = 0.0,
) -> Tensor:
    """Attention within each window.

    Args:
        qkv: Queries, keys and values side by side, shape [batch * windows, tokens, 3 * features].
        bias: Added to the scores, shape [1, heads, tokens, tokens].
        logit_scale: Of cosine attention, or None.
        image: What the windows are of.
        placed: Window and shift, as for :func:`to_windows`.
        dropout: Share of the weights that are dropped.

    Returns:
        A tensor of shape [batch * windows, tokens, features].
    """
    given = (qkv, bias, logit_scale, image)
    if has_torch_function(given):
        traced: Tensor = handle_torch_function(attend_in_windows, given, *given, placed, dropout)
        return traced
    heads = qkv.unflatten(-1, (3, bias.shape[1], -1)).permute(2, 0, 3, 1, 4)
    q, k, v = heads.unflatten(1, (image.shape[0], -1))
    layout, scale = _Layout.of(image, *placed), None
    if logit_scale is not None:
        # Keys of the padding are zero, and have to stay that when the layer in front gets another bias:
        # normalized, they would be as long as any other.
        q, k, scale = F.normalize(q, dim=-1), F.normalize(k, dim=-1), 1.0
        q = q * logit_scale.clamp(max=math.log(100)).exp()
        k = k * layout.inside(image).unsqueeze(1)
    added = bias + layout.mask(qkv).unsqueeze(1)
    attended = F.scaled_dot_product_attention(q, k, v, added, dropout, scale=scale)
    return attended.flatten(0, 1).transpose(1, 2).flatten(-2)


def from_windows(
    rows: Tensor, image: Tensor, window: tuple[int, int], shift: tuple[int, int]
) -> Tensor:
    """What :func:`to_windows` took apart, put together.

    Args:
        rows: Of shape [batch * windows, tokens, features].
        image: What the windows are of.
        window: As for :func:`to_windows`.
        shift: As for :func:`to_windows`.

    Returns:
        A tensor of the shape of ``image``.
    """
    given = (rows, image)
    if has_torch_function(given):
        traced: Tensor = handle_torch_function(from_windows, given, rows, image, window, shift)
        return traced
    layout = _Layout.of(image, window, shift)
    rolled = layout.joined(rows, image.shape[0])
    whole = rolled.roll(layout.shift, (1, 2))
    return whole[:, : image.shape[1], : image.shape[2]].contiguous()


class _Layout(NamedTuple):
    """How an image is cut into windows.

    Attributes:
        height: Of the padded image.
        width: Of the padded image.
        window: Height and width of a window.
        shift: How far the image is rolled.
    """

    height: int
    width: int
    window: tuple[int, int]
    shift: tuple[int, int]

    @classmethod
    def of(cls, image: Tensor, window: tuple[int, int], shift: tuple[int, int]) -> _Layout:
        """Of an image of shape [batch, height, width, features]."""
        height, width = (
            -(-size // step) * step for size, step in zip(image.shape[1:3], window, strict=True)
        )
        down = shift[0] if window[0] < height else 0
        across = shift[1] if window[1] < width else 0
        return cls(height, width, window, (down, across))

    def rolled(self, padded: Tensor) -> Tensor:
        """A tensor of shape [batch, height, width, features], rolled."""
        return padded.roll((-self.shift[0], -self.shift[1]), (1, 2))

    def inside(self, image: Tensor) -> Tensor:
        """1 for tokens of the image and 0 for padding, shape [windows, tokens, 1]."""
        marks = image.new_zeros((1, self.height, self.width, 1))
        marks[:, : image.shape[1], : image.shape[2]] = 1
        return self.cut(self.rolled(marks))

    def cut(self, padded: Tensor) -> Tensor:
        """The windows of a tensor of shape [batch, height, width, features]."""
        down, across = self.window
        split: Any = padded.unflatten(2, (-1, across)).unflatten(1, (-1, down))
        windows: Tensor = split.transpose(2, 3).flatten(3, 4).flatten(0, 2)
        return windows

    def joined(self, rows: Tensor, batch: int) -> Tensor:
        """The reverse of :meth:`cut`."""
        down, across = self.window
        grid = (batch, self.height // down, self.width // across)
        split: Any = rows.unflatten(1, self.window).unflatten(0, grid)
        padded: Tensor = split.transpose(2, 3).flatten(3, 4).flatten(1, 2)
        return padded

    def mask(self, like: Tensor) -> Tensor:
        """Keeps tokens apart that are neighbours only by the roll, shape [windows, tokens, tokens]."""
        rows, columns = (
            _regions(size, step, moved)
            for size, step, moved in zip(self[:2], self.window, self.shift, strict=True)
        )
        region = (3 * rows[:, None] + columns).to(like.device)
        tokens = self.cut(region[None, :, :, None]).squeeze(-1)
        apart = tokens.unsqueeze(1) != tokens.unsqueeze(2)
        return torch.zeros_like(apart, dtype=like.dtype).masked_fill(apart, _OTHER_REGION)


def _regions(size: int, window: int, moved: int) -> Tensor:
    """For each row or column, which part of the image before the roll it is from."""
    place = torch.arange(size)
    if moved == 0:
        return torch.zeros_like(place)
    return (place >= size - window).long() + (place >= size - moved).long()
