"""int8 on x86 servers through PyTorch's FBGEMM kernels."""

from __future__ import annotations

from functools import partial

import torch

from fusion_core import (
    BackendInfo,
    BackendPatternConfig,
    DTypeConfig,
    DTypeWithConstraints,
    LoweringRule,
    QConfigMapping,
    catalog,
    hookimpl,
    kernels,
)

# Without VNNI the kernels add two products of codes in 16 bits, and saturate in silence beyond
# 32767. One factor must therefore be a bit short. Weights suffer least, since their rounding
# adapts: 2 * 255 * 64 fits. A qconfig may as well shorten the activations, as PyTorch's own does: 2
# * 127 * 128 fits too.
LOWEST_WEIGHT, HIGHEST_WEIGHT = -64, 63
SHORT_WEIGHT = DTypeWithConstraints(
    dtype=torch.qint8, quant_min_lower_bound=LOWEST_WEIGHT, quant_max_upper_bound=HIGHEST_WEIGHT
)
SHORT_ACTIVATION = DTypeWithConstraints(
    dtype=torch.quint8, quant_min_lower_bound=0, quant_max_upper_bound=127
)
WEIGHTED = [
    DTypeConfig(input_dtype=torch.quint8, output_dtype=torch.quint8, weight_dtype=SHORT_WEIGHT),
    DTypeConfig(input_dtype=SHORT_ACTIVATION, output_dtype=torch.quint8, weight_dtype=torch.qint8),
]
# A linear layer whose result nobody reads quantized, such as the logits, gives float without
# rounding it.
TO_FLOAT = [each.model_copy(update={"output_dtype": torch.float32}) for each in WEIGHTED]
ACTIVATION = [DTypeConfig(input_dtype=torch.quint8, output_dtype=torch.quint8)]

NO_RULE = "PyTorch has an int8 kernel for it, and this plugin has no lowering rule onto that kernel"
NOT_STATIC = "PyTorch quantizes it dynamically or by weight alone, and this plugin is static only"
GAPS = {
    "conv_transpose*": NO_RULE,
    "add.scalar": NO_RULE,
    "mul.scalar": NO_RULE,
    "matmul": NO_RULE,
    "elu": NO_RULE,
    "leaky_relu": NO_RULE,
    "hardswish": NO_RULE,
    "prelu": NO_RULE,
    "sigmoid": NO_RULE,
    "tanh": NO_RULE,
    "hardsigmoid": NO_RULE,
    "softmax": NO_RULE,
    "batch_norm2d": NO_RULE,
    "layer_norm": NO_RULE,
    "group_norm": NO_RULE,
    "instance_norm": NO_RULE,
    "embedding*": NOT_STATIC,
    "lstm": NOT_STATIC,
    "gru": NOT_STATIC,
    "interpolate": NO_RULE,
    "pixel_shuffle": NO_RULE,
    "activations.signed": "FBGEMM's kernels read unsigned codes",
}


@hookimpl
def fusion_pattern_configs() -> list[BackendPatternConfig]:
    """Everything of the catalog that FBGEMM and PyTorch's quantized CPU operations run."""
    families = (catalog.binary, catalog.cat, catalog.pooling, catalog.activation, catalog.shape)
    return [
        *catalog.conv(WEIGHTED),
        *catalog.linear([*WEIGHTED, *TO_FLOAT]),
        *(config for family in families for config in family(ACTIVATION)),
    ]


@hookimpl
def fusion_lowering_rules() -> list[LoweringRule]:
    """PyTorch's native kernels on the engine ``fbgemm``."""
    return kernels.native_rules("fbgemm", float_output=True)


@hookimpl
def fusion_default_qconfig_mapping() -> QConfigMapping:
    """Activations of 8 bits from a histogram, weights of 7 bits per channel."""
    qconfig = catalog.static_qconfig(weight_min=LOWEST_WEIGHT, weight_max=HIGHEST_WEIGHT)
    return QConfigMapping(global_qconfig=qconfig)


@hookimpl
def fusion_backend_info() -> BackendInfo:
    """Needs a PyTorch build with the engine."""
    return BackendInfo(
        summary="int8 on x86 servers through PyTorch's FBGEMM kernels",
        torch=">=2.9",
        unavailable=partial(kernels.engine_unavailable, "fbgemm"),
        gaps=GAPS,
    )
