"""Operations that give each value of one quantized tensor another: tables of codes, and their rules.

What the reference gives for each of the 256 codes is all there is to know of such an operation.
Looking codes up is exact but not fast: 1.3 ms for an activation of 1x64x56x56 on one core, where
running the operation on the float values between takes 0.5 ms (PyTorch's own kernels: from 0.2 ms
for hardswish to 2 ms for elu). So the values are used where they give the very codes of the table,
which is tried on all of them when the kernel is made. Where one falls to the other side of a
rounding, the table is used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import Node

from fusion_core.configs import Replacement, Skip
from fusion_core.kernels.between import Between
from fusion_core.kernels.codes import HIGHEST_CODE, CodeTypes, OutputCodes
from fusion_core.kernels.padding import shape_of
from fusion_core.kernels.pieces import piece_of
from fusion_core.qops import dequantize_per_tensor, quantize_per_tensor

Modules = Mapping[str, nn.Module]

ELEMENTWISE = ("sigmoid", "tanh", "hardsigmoid", "hardswish", "elu", "leaky_relu")
"""Operations of the alias table that are lowered to an :class:`Elementwise`, beside ``nn.PReLU``."""

_CODES = HIGHEST_CODE + 1
_TAIL = 31
"""So few elements that a loop over vector registers leaves all of them to its end, one by one."""


class Elementwise(Between):
    """An operation on each value of a quantized tensor.

    Attributes:
        source: What the input is.
        table: The code for each code, ``uint8`` of shape [channels, 256]; one row if all channels
            have the same.
    """

    table: Tensor

    def __init__(
        self, source: OutputCodes, piece: nn.Module, table: Tensor, output: OutputCodes
    ) -> None:
        """A kernel from ``source`` to ``output``; see the attributes of the class."""
        super().__init__(piece, output)
        self.source = source
        self.register_buffer("table", table, persistent=False)
        self._settle()

    def __getstate__(self) -> dict[str, Any]:
        """Everything but what is tried out anew on the machine it is restored on."""
        return {key: value for key, value in self.__dict__.items() if key != "_entries"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore, and try the values again."""
        super().__setstate__(state)
        self._settle()

    def _settle(self) -> None:
        """Find out whether the float values do; where not, keep the table as quantized values."""
        shape = (1, *self.table.shape)
        codes = torch.arange(_CODES).float() - self.source.zero_point
        every = torch.quantize_per_tensor(
            codes * self.source.scale, self.source.scale, self.source.zero_point, torch.quint8
        )
        in_bulk = self.piece(every.dequantize().expand(shape))
        values = _in_tails(Tensor.dequantize, every)
        # Slopes of channels are compared and multiplied with, which is the same in both ways.
        one_by_one = (
            _in_tails(self.piece, values) if shape[1] == 1 else self.piece(values.expand(shape))
        )
        found = self.quantized(in_bulk), _in_tails(self.quantized, one_by_one)
        self._entries = None
        if not all(torch.equal(each.int_repr().view_as(self.table), self.table) for each in found):
            entries = self.table.float() - self.output.zero_point
            self._entries = self.quantized(entries.flatten() * self.output.scale)

    def forward(self, *operands: Tensor) -> Tensor:
        """Of one ``quint8`` operand, of which dimension 1 is the channel if these differ; ``quint8``."""
        return super().forward(*operands) if self._entries is None else self._by_code(*operands)

    def _by_code(self, codes: Tensor) -> Tensor:
        channels = self.table.shape[0]
        places = codes.int_repr().int()
        if channels > 1:
            first = torch.arange(0, channels * _CODES, _CODES, dtype=torch.int32)
            places = places + first.view(channels, *[1] * (codes.dim() - 2))
        found: Tensor = self._entries.index_select(0, places.flatten())  # type: ignore[union-attr]
        return found.view(codes.shape)


def _in_tails(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """``function`` on the elements of ``x``, so few at a time that none gets into a vector register; flat."""
    return torch.cat([function(part) for part in x.flatten().split(_TAIL)])


@dataclass(frozen=True)
class Pointwise:
    """Lowers operations on each value of one tensor.

    Attributes:
        types: Codes that are taken.
    """

    types: CodeTypes

    def __call__(self, node_pattern: Any, modules: Modules) -> Replacement | Skip:
        """The operation as a table of codes, or why not."""
        quantize, call = node_pattern
        module: Any = modules[str(call.target)] if call.op == "call_module" else None
        channels = module.num_parameters if isinstance(module, nn.PReLU) else 1
        if channels > 1 and len(shape_of(call) or ()) <= 1:
            return Skip("it has a slope for each channel, and where the channels are is not known")
        operands = [each for each in call.all_input_nodes if self.types.source(each)]
        return self.lowered(quantize, [call], operands, modules, channels=channels)

    def lowered(
        self,
        quantize: Node,
        calls: Sequence[Node],
        operands: Sequence[Node],
        modules: Modules,
        *,
        channels: int = 1,
    ) -> Replacement | Skip:
        """``calls``, on one quantized operand, as a table of codes, or why not."""
        output = self.types.output(quantize)
        if isinstance(output, Skip):
            return output
        if len(operands) != 1:
            return Skip("its input is not quantized")
        source: Any = self.types.source(operands[0])
        piece = piece_of(calls, operands, modules)
        if isinstance(piece, Skip):
            return piece
        table = _table(source, piece, quantize, channels)
        return Replacement(Elementwise(OutputCodes.of(source), piece, table, output), (source,))


def _table(source: Node, piece: nn.Module, quantize: Node, channels: int) -> Tensor:
    """What the reference gives for each unsigned code, ``uint8`` of shape [channels, 256]."""
    first: Any = torch.iinfo(source.args[5]).min  # type: ignore[arg-type]  # a constant
    codes = torch.arange(first, first + _CODES).expand(1, channels, _CODES)
    scale, zero_point = source.args[1:3]
    with torch.no_grad():
        values = piece(dequantize_per_tensor(codes, scale, zero_point))  # type: ignore[arg-type]
        given = quantize_per_tensor(values, *quantize.args[1:])  # type: ignore[arg-type]
    dtype: Any = quantize.args[5]
    return (given[0].int() - torch.iinfo(dtype).min).to(torch.uint8)
