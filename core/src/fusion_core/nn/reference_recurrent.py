"""Reference modules of recurrent layers and cells, which have several weights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fusion_core.nn.reference_module import MultiReferenceModule

_OF_A_CELL = ("weight_ih", "weight_hh")


class RecurrentLayer(MultiReferenceModule):
    """A recurrent layer: at each level and direction a weight of the input and one of the state."""

    @staticmethod
    def weight_names(float_module: Any) -> tuple[str, ...]:
        """The names of the weights, level by level and each direction in turn."""
        kinds = (*_OF_A_CELL, "weight_hr") if float_module.proj_size else _OF_A_CELL
        return tuple(f"{kind}_{place}" for place in places(float_module) for kind in kinds)

    def forward(self, input: Any, hx: Any = None) -> Any:  # noqa: A002  the name torch gives it
        """As the float module: the output at each step, and the last state."""
        return super().forward(input, hx)


def places(float_module: Any) -> Iterator[str]:
    """What the names of a recurrent layer's parameters end with: each level and, in it, each direction."""
    for level in range(float_module.num_layers):
        yield f"l{level}"
        if float_module.bidirectional:
            yield f"l{level}_reverse"


class LSTM(RecurrentLayer):
    """Reference form of ``nn.LSTM``."""


class GRU(RecurrentLayer):
    """Reference form of ``nn.GRU``."""


class RNN(RecurrentLayer):
    """Reference form of ``nn.RNN``."""


class RecurrentCell(MultiReferenceModule):
    """A recurrent cell: a weight of the input and one of the state."""

    @staticmethod
    def weight_names(float_module: Any) -> tuple[str, ...]:  # noqa: ARG004  all have the same
        """``weight_ih`` and ``weight_hh``."""
        return _OF_A_CELL

    def forward(self, input: Any, hx: Any = None) -> Any:  # noqa: A002  the name torch gives it
        """As the float module: the next state."""
        return super().forward(input, hx)


class LSTMCell(RecurrentCell):
    """Reference form of ``nn.LSTMCell``."""


class GRUCell(RecurrentCell):
    """Reference form of ``nn.GRUCell``."""


class RNNCell(RecurrentCell):
    """Reference form of ``nn.RNNCell``."""
