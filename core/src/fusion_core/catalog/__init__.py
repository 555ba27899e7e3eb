"""Ready-made configs that plugins compose: each family is a function of the dtype configs a backend has."""

from fusion_core.catalog.families import (
    activation,
    batch_norm,
    binary,
    cat,
    conv,
    conv_transpose,
    embedding,
    fixed_range,
    general,
    linear,
    matmul,
    normalization,
    own_range,
    pooling,
    recurrent,
    shape,
    sizes,
)
from fusion_core.catalog.fusers import fuse_activation, fuse_batch_norm, fuse_batch_norm_activation
from fusion_core.catalog.qconfigs import static_qconfig, static_qconfig_mapping
from fusion_core.catalog.table import native

__all__ = [
    "activation",
    "batch_norm",
    "binary",
    "cat",
    "conv",
    "conv_transpose",
    "embedding",
    "fixed_range",
    "fuse_activation",
    "fuse_batch_norm",
    "fuse_batch_norm_activation",
    "general",
    "linear",
    "matmul",
    "native",
    "normalization",
    "own_range",
    "pooling",
    "recurrent",
    "shape",
    "sizes",
    "static_qconfig",
    "static_qconfig_mapping",
]
