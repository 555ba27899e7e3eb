"""Items of operations that take a quantized tensor apart, and their rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor, nn

from fusion_core.configs import Replacement, Skip
from fusion_core.kernels.codes import CodeTypes
from fusion_core.patterns import operation_name

Modules = Mapping[str, nn.Module]


def chunk_part(index: int, codes: Tensor, *args: Any, **options: Any) -> Tensor:
    """Item ``index`` of ``torch.chunk``."""
    return torch.chunk(codes, *args, **options)[index]


def split_part(index: int, codes: Tensor, *args: Any, **options: Any) -> Tensor:
    """Item ``index`` of ``torch.split``, of one size or a list of sizes under either name."""
    dim = options.pop("dim", args[1] if len(args) > 1 else 0)
    sizes = args[0] if args else next(iter(options.values()))
    return torch.split(codes, sizes, dim)[index]


def unbind_part(index: int, codes: Tensor, *args: Any, **options: Any) -> Tensor:
    """Item ``index`` of ``torch.unbind``."""
    return torch.unbind(codes, *args, **options)[index]


PARTS: Final[Mapping[str, Callable[..., Tensor]]] = {
    "chunk": chunk_part,
    "split": split_part,
    "unbind": unbind_part,
}
"""What gives one item of each operation of the alias table that takes a tensor apart."""


@dataclass(frozen=True)
class Part:
    """Lowers one item of an operation of :data:`PARTS`.

    Attributes:
        types: Codes that are taken.
    """

    types: CodeTypes

    def __call__(self, node_pattern: Any, modules: Modules) -> Replacement | Skip:  # noqa: ARG002  what a rule is called with
        """The item of the codes, or why not."""
        quantize, (item, call, *_) = node_pattern[0], _flat(node_pattern[1])
        output = self.types.output(quantize)
        if isinstance(output, Skip):
            return output
        index, (operand,) = item.args[1], call.all_input_nodes
        source = self.types.source(operand)
        if source is None:
            return Skip("its input is not quantized")
        if source.args[1:] != quantize.args[1:]:
            return Skip("its output has other parameters than its input")
        options = {key: value for key, value in call.kwargs.items() if value is not operand}
        return Replacement(
            PARTS[operation_name(call.target)],
            (index, source, *_others(call.args, operand)),
            options,
        )


def _others(args: Any, operand: Any) -> tuple[Any, ...]:
    return tuple(each for each in args if each is not operand)


def _flat(node_pattern: Any) -> tuple[Any, ...]:
    """A nested pattern of one operand at each level, outermost first."""
    if not isinstance(node_pattern, tuple):
        return (node_pattern,)
    return (node_pattern[0], *_flat(node_pattern[1]))
