"""Reference modules: a float operation on a weight that is kept as integer codes. They run anywhere."""

from __future__ import annotations

from typing import Any

from torch import nn

from fusion_core.nn.reference_embedding import Embedding, EmbeddingBag
from fusion_core.nn.reference_module import MultiReferenceModule, ReferenceModule
from fusion_core.nn.reference_recurrent import GRU, LSTM, RNN, GRUCell, LSTMCell, RNNCell

__all__ = [
    "GRU",
    "LSTM",
    "REFERENCE_OF",
    "RNN",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "Embedding",
    "EmbeddingBag",
    "GRUCell",
    "LSTMCell",
    "Linear",
    "MultiReferenceModule",
    "RNNCell",
    "ReferenceModule",
]


class Linear(ReferenceModule):
    """Reference form of ``nn.Linear``."""


class Conv1d(ReferenceModule):
    """Reference form of ``nn.Conv1d``."""


class Conv2d(ReferenceModule):
    """Reference form of ``nn.Conv2d``."""


class Conv3d(ReferenceModule):
    """Reference form of ``nn.Conv3d``."""


class ConvTranspose1d(ReferenceModule):
    """Reference form of ``nn.ConvTranspose1d``."""


class ConvTranspose2d(ReferenceModule):
    """Reference form of ``nn.ConvTranspose2d``."""


class ConvTranspose3d(ReferenceModule):
    """Reference form of ``nn.ConvTranspose3d``."""


REFERENCE_OF: dict[type[nn.Module], Any] = {
    nn.Linear: Linear,
    nn.Conv1d: Conv1d,
    nn.Conv2d: Conv2d,
    nn.Conv3d: Conv3d,
    nn.ConvTranspose1d: ConvTranspose1d,
    nn.ConvTranspose2d: ConvTranspose2d,
    nn.ConvTranspose3d: ConvTranspose3d,
    nn.Embedding: Embedding,
    nn.EmbeddingBag: EmbeddingBag,
    nn.LSTM: LSTM,
    nn.GRU: GRU,
    nn.RNN: RNN,
    nn.LSTMCell: LSTMCell,
    nn.GRUCell: GRUCell,
    nn.RNNCell: RNNCell,
}
"""The reference module of each float module."""
