"""Lowering of sums, differences and products: of two tensors, or of a tensor and a number."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn
from torch.fx import Node

from fusion_core.configs import LoweringRule, Replacement, Skip
from fusion_core.kernels.codes import CodeTypes
from fusion_core.kernels.elementwise import Pointwise
from fusion_core.kernels.modules import Binary, SteadySum
from fusion_core.patterns import Operation, ops
from fusion_core.qops import quantize_per_tensor

Modules = Mapping[str, nn.Module]

OF_TWO_TENSORS = ("add", "mul")
"""Operations that have a kernel for two quantized tensors; the others take a number as well as one."""

_OF_A_NUMBER = ("sub", "rsub", "div")
_TENSORS = 2


def arithmetic_rules(engine: str, types: CodeTypes, *, steady: bool) -> Iterator[LoweringRule]:
    """The rules for what :class:`Arithmetic` lowers, with ReLU first and without.

    Args:
        engine: For the names of the rules.
        types: Codes that are taken.
        steady: Whether the result may not depend on the engine that the process has selected.
    """
    for name in (*OF_TWO_TENSORS, *_OF_A_NUMBER):
        lower, operation = Arithmetic(name, types, steady=steady), Operation(name)
        for inner, label in (((ops.relu, operation), f"{name}_relu"), (operation, name)):
            yield LoweringRule(
                complex_pattern=(quantize_per_tensor, inner, ...),
                lower=lower,
                name=f"{engine} {label}",
            )


@dataclass(frozen=True)
class Arithmetic:
    """Lowers one operation of two operands, of which one may be a number.

    Attributes:
        name: The operation, in the alias table.
        types: Codes that are taken.
        steady: Whether the result may not depend on the engine that the process has selected.
    """

    name: str
    types: CodeTypes
    steady: bool

    def __call__(self, node_pattern: Any, modules: Modules) -> Replacement | Skip:
        """The operation on codes, or why not."""
        quantize, inner = node_pattern
        is_rectified = isinstance(inner, tuple)
        calls = list(reversed(inner)) if is_rectified else [inner]
        call: Node = calls[0]
        operands = [each for each in (*call.args, *call.kwargs.values()) if isinstance(each, Node)]
        if len(operands) == 1:
            return Pointwise(self.types).lowered(quantize, calls, operands, modules)
        output = self.types.output(quantize)
        if isinstance(output, Skip):
            return output
        codes = tuple(map(self.types.source, operands))
        if self.name not in OF_TWO_TENSORS:
            return Skip("there is a kernel for a tensor and a number, not for two tensors")
        if len(codes) != _TENSORS or None in codes:
            return Skip("the kernel takes two quantized tensors, or one and a number")
        output = output.within(0.0, None) if is_rectified else output
        is_sum = self.steady and self.name == "add"
        kernel = SteadySum(output) if is_sum else Binary(self.name, output)
        return Replacement(kernel, codes)
