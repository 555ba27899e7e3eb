"""Ready-made lowering rules onto PyTorch's native int8 CPU kernels; a backend picks the engine."""

from fusion_core.kernels.engine import engine_unavailable, quantized_engine
from fusion_core.kernels.modules import KernelModule, OutputCodes, PackedConv, PackedLinear
from fusion_core.kernels.rules import native_rules

__all__ = [
    "KernelModule",
    "OutputCodes",
    "PackedConv",
    "PackedLinear",
    "engine_unavailable",
    "native_rules",
    "quantized_engine",
]
