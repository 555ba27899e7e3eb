"""int8 on ARM and mobile CPUs through PyTorch's QNNPACK kernels."""

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

# The kernels keep the bias in 32 bits, in steps of input scale times weight scale. Symmetric
# kernels promise to hold any of them if neither scale is below this.
SMALLEST_SCALE = 2.0**-12
SIGNED = DTypeWithConstraints(dtype=torch.qint8, scale_min_lower_bound=SMALLEST_SCALE)
SIGNED_WEIGHT = DTypeWithConstraints(
    dtype=torch.qint8,
    quant_min_lower_bound=-127,
    quant_max_upper_bound=127,
    scale_min_lower_bound=SMALLEST_SCALE,
)
# No qconfig fits both, so their order matters to messages alone: a refusal names the limits of the
# first, and the other has none.
WEIGHTED = [
    DTypeConfig(input_dtype=SIGNED, output_dtype=SIGNED, weight_dtype=SIGNED_WEIGHT),
    DTypeConfig(input_dtype=torch.quint8, output_dtype=torch.quint8, weight_dtype=torch.qint8),
]
ACTIVATION = [
    DTypeConfig(input_dtype=SIGNED, output_dtype=SIGNED),
    DTypeConfig(input_dtype=torch.quint8, output_dtype=torch.quint8),
]


WRONG = "QNNPACK's kernel runs, and gives wrong numbers"
NO_RULE = "PyTorch has an int8 kernel for it, and this plugin has no lowering rule onto that kernel"
SELECTED = (
    "what PyTorch's kernel gives or refuses depends on the engine that the process has selected"
)
NOT_STATIC = "PyTorch quantizes it dynamically or by weight alone, and this plugin is static only"
GAPS = {
    "conv_transpose3d": WRONG,
    **dict.fromkeys(("softmax", "hardswish", "sigmoid"), SELECTED),
    **dict.fromkeys(("add.scalar", "mul.scalar", "matmul", "elu", "leaky_relu", "prelu"), NO_RULE),
    **dict.fromkeys(("tanh", "hardsigmoid", "batch_norm2d", "interpolate"), NO_RULE),
    **dict.fromkeys(("layer_norm", "group_norm", "instance_norm", "pixel_shuffle"), NO_RULE),
    **dict.fromkeys(("embedding*", "lstm", "gru"), NOT_STATIC),
}


@hookimpl
def fusion_pattern_configs() -> list[BackendPatternConfig]:
    """Everything of the catalog that QNNPACK and PyTorch's quantized CPU operations run."""
    families = (catalog.binary, catalog.cat, catalog.pooling, catalog.activation, catalog.shape)
    return [
        *catalog.conv(WEIGHTED),
        *catalog.conv_transpose(WEIGHTED, dims=(1, 2)),
        *catalog.linear(WEIGHTED),
        *(config for family in families for config in family(ACTIVATION)),
    ]


@hookimpl
def fusion_lowering_rules() -> list[LoweringRule]:
    """PyTorch's native kernels on the engine ``qnnpack``."""
    return kernels.native_rules("qnnpack", signed=True, steady=True)


@hookimpl
def fusion_default_qconfig_mapping() -> QConfigMapping:
    """Activations of 8 bits from a histogram, weights of 8 bits per channel."""
    return catalog.static_qconfig_mapping(catalog.static_qconfig())


@hookimpl
def fusion_backend_info() -> BackendInfo:
    """Needs a PyTorch build with the engine."""
    return BackendInfo(
        summary="int8 on ARM and mobile CPUs through PyTorch's QNNPACK kernels",
        torch=">=2.9",
        unavailable=partial(kernels.engine_unavailable, "qnnpack"),
        gaps=GAPS,
    )
