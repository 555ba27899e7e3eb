"""Batch norms that nothing before them takes up, with ReLU and without."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fusion_core.configs import Replacement, Skip
from fusion_core.kernels.codes import CodeTypes, OutputCodes
from fusion_core.kernels.modules import KernelModule
from fusion_core.nn import fused

Modules = Mapping[str, nn.Module]

BATCH_NORMS = (nn.BatchNorm2d, nn.BatchNorm3d, fused.BatchNormReLU2d, fused.BatchNormReLU3d)
"""Modules that :class:`Normalized` lowers."""


class BatchNorm(KernelModule):
    """A batch norm in two or three dimensions, with ReLU where the output is rectified.

    Attributes:
        weight: Float32 of shape [channels].
        bias: The same.
        mean: The same.
        variance: The same.
        eps: What is added to the variance.
    """

    weight: Tensor
    bias: Tensor
    mean: Tensor
    variance: Tensor

    def __init__(self, norm: Any, output: OutputCodes) -> None:
        """Of ``norm``, a BatchNorm2d or BatchNorm3d with running statistics, and an output that is ``output``."""
        super().__init__(output)
        mean = norm.running_mean
        weight = torch.ones_like(mean) if norm.weight is None else norm.weight.detach()
        bias = torch.zeros_like(mean) if norm.bias is None else norm.bias.detach()
        held = {"weight": weight, "bias": bias, "mean": mean, "variance": norm.running_var}
        for name, tensor in held.items():
            self.register_buffer(name, tensor)
        self.eps = norm.eps
        dims = 2 if isinstance(norm, nn.BatchNorm2d) else 3
        self._kernel = f"batch_norm{dims}d{'_relu' if output.is_rectified else ''}"

    def forward(self, codes: Tensor) -> Tensor:
        """Of ``codes``, ``quint8`` of shape [batch, channels, *size]; ``quint8`` of the same shape."""
        kernel = getattr(torch.ops.quantized, self._kernel)
        learnt = self.weight, self.bias, self.mean, self.variance, self.eps
        return self.clamped(kernel(codes, *learnt, self.output.scale, self.output.zero_point))


@dataclass(frozen=True)
class Normalized:
    """Lowers batch norms.

    Attributes:
        types: Codes that are taken.
    """

    types: CodeTypes

    def __call__(self, node_pattern: Any, modules: Modules) -> Replacement | Skip:
        """The norm on codes, or why not."""
        quantize, call = node_pattern
        output = self.types.output(quantize)
        if isinstance(output, Skip):
            return output
        (operand,) = call.all_input_nodes
        source = self.types.source(operand)
        if source is None:
            return Skip("its input is not quantized")
        norm: Any = modules[str(call.target)]
        if isinstance(norm, fused.Activated):
            norm, output = norm.weighted, output.within(0.0, None)
        if norm.running_mean is None:
            return Skip("it has no running statistics, and the kernel takes no others")
        return Replacement(BatchNorm(norm, output), (source,))
