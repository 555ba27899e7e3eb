"""Recurrent layers and cells: input and state are quantized at each step, or weights are in float16."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from fusion_core.kernels.matrices import MatrixKernel, PackedMatrix, shift_for, shifted
from fusion_core.nn import reference
from fusion_core.nn.reference_recurrent import places

_SEQUENCE = 3  # dimensions of time, batch and features
_ROWS = 2
_OF_LSTMS = (reference.LSTM, reference.LSTMCell)


class RecurrentKernel(MatrixKernel):
    """What LSTM and GRU, as layers and as cells, have in common.

    Attributes:
        short: Whether inputs and states have codes of 7 bits.
        states: How many tensors a state is: 2 in an LSTM, 1 in a GRU.
        hidden_size: Features of each.
        places: What the names of weights end with, for each level and direction.
        directions: 2 where the sequence is read from both ends, else 1.
    """

    def __init__(
        self, engine: str, layer: reference.MultiReferenceModule, *, short: bool = False
    ) -> None:
        """Pack the weights of ``layer``, and its biases with them."""
        super().__init__(matrices_of(engine, layer))
        held: Any = layer.float_module
        self.short = short
        self.states = 2 if isinstance(layer, _OF_LSTMS) else 1
        self.hidden_size: int = held.hidden_size
        self.places: tuple[str, ...] = ("",)
        self.directions = 1
        self._cells: dict[int, list[Any]] = {}

    def set_extra_state(self, state: dict[str, dict[str, Any]]) -> None:
        """Pack what :meth:`get_extra_state` gave."""
        super().set_extra_state(state)
        self._cells = {}

    def __getstate__(self) -> dict[str, Any]:
        """Everything but what is made of the matrices again when it is needed."""
        return {**self.__dict__, "_cells": {}}

    def run(
        self, x: Tensor, state: tuple[Tensor, ...], *sizes: Tensor, batch_first: bool = False
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """All steps of a sequence.

        Args:
            x: Shape [time, batch, in], or as ``batch_first`` says; of a packed sequence [rows, in].
            state: Each of shape [levels * directions, batch, hidden].
            sizes: Of a packed sequence, how many rows each step has.
            batch_first: Whether the batch is dimension 0 of ``x``.

        Returns:
            The states of the last level at each step, and the last state of each.
        """
        shift = 0 if self.is_half else shift_for(x, short=self.short)
        x = shifted(x, shift)
        is_lstm = self.states > 1
        operation = torch.ops.aten.quantized_lstm if is_lstm else torch.ops.aten.quantized_gru
        levels, both = len(self.places) // self.directions, self.directions > 1
        hidden = list(state) if is_lstm else state[0]
        settings: list[Any] = [hidden, self._cell_parameters(shift), True, levels, 0.0, False, both]
        options: dict[str, Any] = {}
        if is_lstm:
            dtype = torch.float16 if self.is_half else torch.qint8
            options = {"dtype": dtype, "use_dynamic": True}
        if sizes:
            output, *last = operation.data(x, *sizes, *settings, **options)
        else:
            output, *last = operation.input(x, *settings, batch_first, **options)
        return output, tuple(last)

    def _cell_parameters(self, shift: int) -> list[Any]:
        """What the kernels take: the first level's weights of the input divided by ``2**shift``."""
        if shift not in self._cells:
            self._cells[shift] = [
                self._cell(place, shift if index < self.directions else 0)
                for index, place in enumerate(self.places)
            ]
        return self._cells[shift]

    def _cell(self, place: str, shift: int) -> Any:
        of_input, of_state = self.matrices[f"weight_ih{place}"], self.matrices[f"weight_hh{place}"]
        packed = of_input.packed(shift), of_state.packed()
        if self.is_half:
            return torch.ops.quantized.make_quantized_cell_params_fp16(*packed)
        biases = of_input.plain()[1], of_state.plain()[1]
        return torch.ops.quantized.make_quantized_cell_params_dynamic(*packed, *biases, self.short)

    def _state(self, given: Any, like: Tensor, batch: int) -> tuple[Tensor, ...]:
        """The state that is given, or zeros; each of shape [levels * directions, batch, hidden]."""
        if given is None:
            zeros = like.new_zeros(len(self.places), batch, self.hidden_size)
            return (zeros,) * self.states
        return tuple(each.float() for each in (given if self.states > 1 else (given,)))

    def _given(self, state: tuple[Tensor, ...]) -> Any:
        """A state as the float layers give it."""
        return state if self.states > 1 else state[0]


def matrices_of(engine: str, layer: reference.MultiReferenceModule) -> dict[str, PackedMatrix]:
    """The weights of ``layer`` by name, each packed with the bias that belongs to it."""
    held: Any = layer.float_module
    packed = {}
    for name, weight in layer.quantized_weights.items():
        bias = getattr(held, name.replace("weight", "bias"), None)
        bias = torch.zeros(weight.codes.shape[0]) if bias is None else bias
        packed[name] = PackedMatrix(engine, weight, bias)
    return packed


class RecurrentLayer(RecurrentKernel):
    """An LSTM or GRU of any number of levels."""

    def __init__(
        self, engine: str, layer: reference.MultiReferenceModule, *, short: bool = False
    ) -> None:
        """Of ``layer``, a reference LSTM or GRU."""
        super().__init__(engine, layer, short=short)
        held: Any = layer.float_module
        self.places = tuple(f"_{place}" for place in places(held))
        self.directions = 2 if held.bidirectional else 1
        self.batch_first: bool = held.batch_first

    def forward(self, input: Any, hx: Any = None) -> Any:  # noqa: A002  the name torch gives it
        """As ``nn.LSTM`` and ``nn.GRU``: of a batch, one sequence, or a packed sequence."""
        if isinstance(input, PackedSequence):
            return self._of_packed(input, hx)
        x, is_one = input.float(), input.dim() < _SEQUENCE
        batch_dim = 0 if self.batch_first else 1
        if is_one:
            x = x.unsqueeze(batch_dim)
        state = self._state(hx, x, x.shape[batch_dim])
        if is_one and hx is not None:
            state = tuple(each.unsqueeze(1) for each in state)
        output, last = self.run(x, state, batch_first=self.batch_first)
        if is_one:
            output, last = output.squeeze(batch_dim), tuple(each.squeeze(1) for each in last)
        return output, self._given(last)

    def _of_packed(self, sequence: PackedSequence, hx: Any) -> Any:
        data, sizes, order, back = sequence
        state = self._state(hx, data, int(sizes[0]))
        if hx is not None and order is not None:
            state = tuple(each.index_select(1, order) for each in state)
        output, last = self.run(data.float(), state, sizes)
        if back is not None:
            last = tuple(each.index_select(1, back) for each in last)
        return PackedSequence(output, sizes, order, back), self._given(last)


class RecurrentCell(RecurrentKernel):
    """One step of an LSTM or GRU."""

    def forward(self, input: Tensor, hx: Any = None) -> Any:  # noqa: A002  the name torch gives it
        """As ``nn.LSTMCell`` and ``nn.GRUCell``, of rows or of one."""
        x, is_one = input.float(), input.dim() < _ROWS
        x = x.unsqueeze(0) if is_one else x
        state = self._state(hx, x, x.shape[0])
        if hx is not None:
            state = tuple(each.unsqueeze(0) for each in state)  # the one level
        if is_one and hx is not None:
            state = tuple(each.unsqueeze(0) for each in state)
        _, last = self.run(x.unsqueeze(0), state)
        last = tuple(each.squeeze(0) for each in last)
        return self._given(tuple(each.squeeze(0) for each in last) if is_one else last)


class ElmanCell(MatrixKernel):
    """One step of a plain recurrent layer.

    Attributes:
        rectified: Whether the activation is ReLU; else it is tanh.
        short: Whether input and state have codes of 7 bits.
    """

    def __init__(self, engine: str, layer: reference.RNNCell, *, short: bool = False) -> None:
        """Pack the weights of ``layer``, and its biases with them."""
        super().__init__(matrices_of(engine, layer))
        held: Any = layer.float_module
        self.rectified = held.nonlinearity == "relu"
        self.hidden_size: int = held.hidden_size
        self.short = short

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:  # noqa: A002  torch's name
        """As ``nn.RNNCell``, of rows or of one."""
        rows = input.float() if input.dim() > 1 else input.float().unsqueeze(0)
        state = rows.new_zeros(rows.shape[0], self.hidden_size) if hx is None else hx.float()
        state = state if state.dim() > 1 else state.unsqueeze(0)
        total = self.matrices["weight_ih"].product(rows, short=self.short)
        total = total + self.matrices["weight_hh"].product(state, short=self.short)
        result = torch.relu(total) if self.rectified else torch.tanh(total)
        return result if input.dim() > 1 else result.squeeze(0)
