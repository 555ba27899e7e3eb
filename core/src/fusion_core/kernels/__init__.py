"""Ready-made lowering rules onto PyTorch's native int8 CPU kernels; a backend picks the engine."""

from fusion_core.kernels.codes import OutputCodes
from fusion_core.kernels.engine import engine_unavailable, quantized_engine
from fusion_core.kernels.float_rules import dynamic_rules, embedding_rules, half_rules
from fusion_core.kernels.modules import KernelModule
from fusion_core.kernels.packed import PackedConv, PackedConvTranspose, PackedLinear
from fusion_core.kernels.rules import native_rules

__all__ = [
    "KernelModule",
    "OutputCodes",
    "PackedConv",
    "PackedConvTranspose",
    "PackedLinear",
    "dynamic_rules",
    "embedding_rules",
    "engine_unavailable",
    "half_rules",
    "native_rules",
    "quantized_engine",
]
