"""A module of a type, of settings that keep the shape of its input where it can."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from fusion_core.nn import fused

Settings = Mapping[str, Any]

_CONVOLUTIONS = {
    **dict.fromkeys((nn.Conv1d, nn.ConvTranspose1d), 3),
    **dict.fromkeys((nn.Conv2d, nn.ConvTranspose2d), 4),
    **dict.fromkeys((nn.Conv3d, nn.ConvTranspose3d), 5),
}
RANKS: Mapping[type[nn.Module], int] = {
    **_CONVOLUTIONS,
    nn.Linear: 2,
    nn.BatchNorm2d: 4,
    nn.BatchNorm3d: 5,
    nn.InstanceNorm1d: 3,
    nn.InstanceNorm2d: 4,
    nn.InstanceNorm3d: 5,
    nn.MaxPool1d: 3,
    nn.MaxPool2d: 4,
    nn.MaxPool3d: 5,
    nn.AvgPool1d: 3,
    nn.AvgPool2d: 4,
    nn.AvgPool3d: 5,
    nn.AdaptiveAvgPool1d: 3,
    nn.AdaptiveAvgPool2d: 4,
    nn.AdaptiveAvgPool3d: 5,
    nn.AdaptiveMaxPool1d: 3,
    nn.AdaptiveMaxPool2d: 4,
    nn.AdaptiveMaxPool3d: 5,
    nn.ConstantPad1d: 3,
    nn.ConstantPad2d: 4,
    nn.ConstantPad3d: 5,
    nn.MultiheadAttention: 3,
    nn.TransformerEncoderLayer: 3,
    nn.LSTM: 3,
    nn.GRU: 3,
    nn.RNN: 3,
    nn.LSTMCell: 2,
    nn.GRUCell: 2,
    nn.RNNCell: 2,
    nn.BatchNorm1d: 2,
    nn.PixelShuffle: 4,
    nn.PixelUnshuffle: 4,
    nn.ChannelShuffle: 4,
    nn.Unflatten: 4,
}
"""How many dimensions the input of a type has, where that is not free."""

LOOK_UPS = (nn.Embedding, nn.EmbeddingBag)
"""Types whose input are integers."""

ROWS = 10
"""How many rows an embedding has."""

_ARGUMENTS: dict[Any, Callable[[Tensor], tuple[Any, ...]]] = {
    **dict.fromkeys(_CONVOLUTIONS, lambda x: (x.shape[1], x.shape[1], 3, 1, 1)),
    **dict.fromkeys((nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d), lambda x: (x.shape[1],)),
    **dict.fromkeys(
        (nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d), lambda x: (x.shape[1],)
    ),
    **dict.fromkeys(
        (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d, nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d),
        lambda _: (3, 1, 1),
    ),
    **dict.fromkeys(
        (
            *(nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d),
            *(nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d, nn.AdaptiveMaxPool3d),
        ),
        lambda x: (x.shape[-1] if x.dim() == 3 else tuple(x.shape[2:]),),  # noqa: PLR2004  [batch, channels, length]
    ),
    **dict.fromkeys(
        (nn.Linear, nn.LSTM, nn.GRU, nn.RNN, nn.LSTMCell, nn.GRUCell, nn.RNNCell),
        lambda x: (x.shape[-1], x.shape[-1]),
    ),
    **dict.fromkeys((nn.LayerNorm, nn.RMSNorm), lambda x: (x.shape[-1],)),
    **dict.fromkeys(LOOK_UPS, lambda _: (ROWS, 8)),
    **dict.fromkeys(
        (nn.MultiheadAttention, nn.TransformerEncoderLayer), lambda x: (x.shape[-1], 2)
    ),
    nn.Bilinear: lambda x: (x.shape[-1],) * 3,
    nn.GroupNorm: lambda x: (2, x.shape[1]),
    nn.Softmax: lambda _: (-1,),
    nn.LogSoftmax: lambda _: (-1,),
    nn.ConstantPad1d: lambda _: (1, 0.0),
    nn.ConstantPad2d: lambda _: (1, 0.0),
    nn.ConstantPad3d: lambda _: (1, 0.0),
    **dict.fromkeys((nn.ZeroPad1d, nn.ZeroPad2d, nn.ZeroPad3d), lambda _: (1,)),
    nn.PixelShuffle: lambda _: (2,),
    nn.PixelUnshuffle: lambda _: (2,),
    nn.ChannelShuffle: lambda _: (2,),
    nn.Unflatten: lambda _: (1, (2, 2)),
    **dict.fromkeys(
        (nn.Upsample, nn.UpsamplingNearest2d, nn.UpsamplingBilinear2d), lambda _: (None, 2)
    ),
}


def rank_of(kind: type[nn.Module]) -> int | None:
    """How many dimensions the input of a module of type ``kind`` has; None if any number will do."""
    if issubclass(kind, fused.Activated):
        kind = kind.weighted_type
    return RANKS.get(kind)


def input_count(kind: type[nn.Module]) -> int:
    """How many values the forward of a type must be given."""
    parameters = tuple(inspect.signature(kind.forward).parameters.values())[1:]
    required = (each for each in parameters if each.default is each.empty)
    named = (each for each in required if each.kind is each.POSITIONAL_OR_KEYWORD)
    return max(1, len(tuple(named)))


def module_of(kind: type[nn.Module], value: Tensor, settings: Settings) -> nn.Module:
    """A module of exactly this type for the input ``value``.

    Args:
        kind: The type.
        value: Its first input; only its shape counts.
        settings: Keyword arguments of its constructor that are asked for.

    Raises:
        TypeError: It cannot be constructed without knowing more of it.
    """
    if issubclass(kind, fused.Activated):
        return kind(module_of(kind.weighted_type, value, settings), kind.activation_types[0]())
    arguments = _ARGUMENTS[kind](value) if kind in _ARGUMENTS else ()
    # The constructors of recurrent layers hand on whatever they are given.
    is_recurrent = issubclass(kind, nn.RNNBase)
    names = list(inspect.signature(nn.RNNBase if is_recurrent else kind).parameters)[is_recurrent:]
    asked = {name: value for name, value in settings.items() if name in names}
    return kind(**{**dict(zip(names, arguments, strict=False)), **asked})
