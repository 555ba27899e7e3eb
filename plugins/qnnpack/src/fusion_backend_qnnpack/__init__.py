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
    Operation,
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
DYNAMIC = [
    DTypeConfig(
        input_dtype=torch.quint8,
        output_dtype=torch.float32,
        weight_dtype=torch.qint8,
        is_dynamic=True,
    )
]
ROWS = [
    DTypeConfig(input_dtype=torch.float32, output_dtype=torch.float32, weight_dtype=dtype)
    for dtype in (torch.quint8, torch.quint4x2)
]
ACTIVATION = [
    DTypeConfig(input_dtype=SIGNED, output_dtype=SIGNED),
    DTypeConfig(input_dtype=torch.quint8, output_dtype=torch.quint8),
]

WRONG = "QNNPACK's kernel runs, and gives wrong numbers"
# Their kernels compute in float between codes, and what rounding loses there costs a transformer most
# of its accuracy: a few features of its residual sums are many times as large as the others.
IN_FLOAT = (Operation("layer_norm"), Operation("softmax"))

GAPS = {
    "conv_transpose3d": WRONG,
    "weights.float16": "QNNPACK packs no weights in float16",
}


@hookimpl
def fusion_pattern_configs() -> list[BackendPatternConfig]:
    """Everything of the catalog that QNNPACK and PyTorch's quantized CPU operations run."""
    families = (
        *(catalog.binary, catalog.scalar, catalog.matmul, catalog.batch_norm),
        *(catalog.normalization, catalog.fixed_range, catalog.own_range, catalog.activation),
        *(catalog.cat, catalog.pooling, catalog.shape, catalog.general),
    )
    return [
        *catalog.conv(WEIGHTED),
        *catalog.conv_transpose(WEIGHTED, dims=(1, 2)),
        *catalog.linear([*WEIGHTED, *DYNAMIC]),
        *catalog.recurrent(DYNAMIC),
        *catalog.embedding(ROWS),
        *(config for family in families for config in family(ACTIVATION)),
    ]


@hookimpl
def fusion_lowering_rules() -> list[LoweringRule]:
    """PyTorch's native kernels on the engine ``qnnpack``."""
    return [
        *kernels.native_rules("qnnpack", signed=True, steady=True),
        *kernels.dynamic_rules("qnnpack"),
        *kernels.embedding_rules(),
    ]


@hookimpl
def fusion_default_qconfig_mapping() -> QConfigMapping:
    """Activations of 8 bits from a histogram, weights of 8 bits per channel; layer norm and softmax in float."""
    return catalog.static_qconfig_mapping(catalog.static_qconfig(), in_float=IN_FLOAT)


@hookimpl
def fusion_qconfig_mappings() -> dict[str, QConfigMapping]:
    """Quantized while running with weights of 8 bits; embeddings by weight alone, in 8 or 4 bits."""
    rows = catalog.weight_only_qconfig()
    return {
        "dynamic": catalog.dynamic_qconfig_mapping(catalog.dynamic_qconfig(), embedding=rows),
        "weight_only": catalog.weight_only_qconfig_mapping(rows),
        "weight_only_4bit": catalog.weight_only_qconfig_mapping(
            catalog.weight_only_qconfig(bits=4)
        ),
    }


@hookimpl
def fusion_backend_info() -> BackendInfo:
    """Needs a PyTorch build with the engine."""
    return BackendInfo(
        summary="int8 on ARM and mobile CPUs through PyTorch's QNNPACK kernels",
        torch=">=2.9",
        unavailable=partial(kernels.engine_unavailable, "qnnpack"),
        gaps=GAPS,
    )
