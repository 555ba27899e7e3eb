"""Ready-made configs that plugins compose: each family is a function of the dtype configs a backend has."""

from fusion_core.catalog.families import activation, binary, cat, conv, linear, pooling, shape
from fusion_core.catalog.fusers import fuse_activation, fuse_batch_norm, fuse_batch_norm_activation
from fusion_core.catalog.qconfigs import static_qconfig

__all__ = [
    "activation",
    "binary",
    "cat",
    "conv",
    "fuse_activation",
    "fuse_batch_norm",
    "fuse_batch_norm_activation",
    "linear",
    "pooling",
    "shape",
    "static_qconfig",
]
