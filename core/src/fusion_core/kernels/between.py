"""Operations that run on float values between quantized tensors, and their rule.

PyTorch's own kernels for softmax and products of matrices do just that. Those for the norms over a
sample do not: they take the variance as a difference of sums in float32, which is worth nothing
where values hardly vary. A row of 77 with a single 78 in it, of 768 codes, was 42 steps off, and
no rule can know such rows beforehand. On float values a layer norm of 197x768 takes as long as in
PyTorch's kernel (0.3 ms); group norm takes twice as long, instance norm seven times.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from fusion_core.configs import Replacement, Skip
from fusion_core.kernels.codes import CodeTypes, OutputCodes
from fusion_core.kernels.modules import Quantize
from fusion_core.kernels.pieces import piece_of

Modules = Mapping[str, nn.Module]

PRODUCTS = ("matmul", "bmm", "mm")
"""Products of matrices that are lowered to a :class:`Between`; all operands are quantized."""

BETWEEN = ("softmax", *PRODUCTS, "layer_norm", "group_norm", "instance_norm")
"""Operations of the alias table that are lowered to a :class:`Between`."""


class Between(Quantize):
    """An operation on the float values of quantized tensors.

    Attributes:
        piece: The operation.
    """

    def __init__(self, piece: nn.Module, output: OutputCodes) -> None:
        """A kernel that gives ``output``; ``piece`` takes and gives float tensors."""
        super().__init__(output)
        self.piece = piece

    def forward(self, *operands: Tensor) -> Tensor:
        """Of ``quint8`` operands, and float ones, which stay as they are; ``quint8``."""
        given = (each.dequantize() if each.is_quantized else each for each in operands)
        return self.quantized(self.piece(*given))


@dataclass(frozen=True)
class FloatBetween:
    """Lowers an operation to a :class:`Between`.

    Attributes:
        types: Codes that are taken.
        all_quantized: Whether every operand must be quantized, and not the first alone.
    """

    types: CodeTypes
    all_quantized: bool

    def __call__(self, node_pattern: Any, modules: Modules) -> Replacement | Skip:
        """The operation with float values inside, or why not."""
        quantize, call = node_pattern
        output = self.types.output(quantize)
        if isinstance(output, Skip):
            return output
        operands = call.all_input_nodes
        sources = [self.types.source(each) for each in operands]
        if sources[0] is None or (self.all_quantized and None in sources):
            return Skip("its input is not quantized")
        piece = piece_of([call], operands, modules)
        if isinstance(piece, Skip):
            return piece
        given = (source or each for source, each in zip(sources, operands, strict=True))
        return Replacement(Between(piece, output), tuple(given))
