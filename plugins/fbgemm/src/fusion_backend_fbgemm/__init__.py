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
    Operation,
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
# Inputs that are quantized while running meet the same kernels, so one factor is short here too.
DYNAMIC = [
    each.model_copy(update={"output_dtype": torch.float32, "is_dynamic": True}) for each in WEIGHTED
]
HALF = DTypeConfig(
    input_dtype=torch.float32, output_dtype=torch.float32, weight_dtype=torch.float16
)
ROWS = [HALF.model_copy(update={"weight_dtype": dtype}) for dtype in (torch.quint8, torch.quint4x2)]
ACTIVATION = [DTypeConfig(input_dtype=torch.quint8, output_dtype=torch.quint8)]

# The kernels of both compute in float between codes, so in float nothing is lost but the rounding,
# which costs a transformer most of its accuracy: its residual sums have a few features that are many
# times as large as the others, and its scores have masks.
IN_FLOAT = (Operation("layer_norm"), Operation("softmax"))

GAPS = {"activations.signed": "FBGEMM's kernels read unsigned codes"}


@hookimpl
def fusion_pattern_configs() -> list[BackendPatternConfig]:
    """Everything of the catalog that FBGEMM and PyTorch's quantized CPU operations run."""
    families = (
        *(catalog.binary, catalog.scalar, catalog.matmul, catalog.batch_norm),
        *(catalog.normalization, catalog.fixed_range, catalog.own_range, catalog.activation),
        *(catalog.cat, catalog.pooling, catalog.shape, catalog.general),
    )
    return [
        *catalog.conv(WEIGHTED),
        *catalog.conv_transpose(WEIGHTED),
        *catalog.linear([*WEIGHTED, *TO_FLOAT, *DYNAMIC, HALF]),
        *catalog.recurrent([*DYNAMIC, HALF]),
        *catalog.embedding(ROWS),
        *(config for family in families for config in family(ACTIVATION)),
    ]


@hookimpl
def fusion_lowering_rules() -> list[LoweringRule]:
    """PyTorch's native kernels on the engine ``fbgemm``."""
    return [
        *kernels.native_rules("fbgemm", float_output=True),
        *kernels.dynamic_rules("fbgemm"),
        *kernels.half_rules("fbgemm"),
        *kernels.embedding_rules(),
    ]


@hookimpl
def fusion_default_qconfig_mapping() -> QConfigMapping:
    """Activations of 8 bits from a histogram, weights of 7 bits per channel; of transposed convolutions per tensor.

    Layer norm and softmax stay in float.
    """
    short = partial(catalog.static_qconfig, weight_min=LOWEST_WEIGHT, weight_max=HIGHEST_WEIGHT)
    whole = short(per_channel=False)
    return catalog.static_qconfig_mapping(short(), transposed=whole, in_float=IN_FLOAT)


@hookimpl
def fusion_qconfig_mappings() -> dict[str, QConfigMapping]:
    """Quantized while running with weights of 7 bits; by weight alone, in 8 or 4 bits or in float16."""
    rows = catalog.weight_only_qconfig()
    dynamic = catalog.dynamic_qconfig(weight_min=LOWEST_WEIGHT, weight_max=HIGHEST_WEIGHT)
    return {
        "dynamic": catalog.dynamic_qconfig_mapping(dynamic, embedding=rows),
        "weight_only": catalog.weight_only_qconfig_mapping(rows),
        "weight_only_4bit": catalog.weight_only_qconfig_mapping(
            catalog.weight_only_qconfig(bits=4)
        ),
        "float16": catalog.weight_only_qconfig_mapping(rows, other=catalog.float16_qconfig()),
    }


@hookimpl
def fusion_backend_info() -> BackendInfo:
    """Needs a PyTorch build with the engine."""
    return BackendInfo(
        summary="int8 on x86 servers through PyTorch's FBGEMM kernels",
        torch=">=2.9",
        unavailable=partial(kernels.engine_unavailable, "fbgemm"),
        gaps=GAPS,
    )
