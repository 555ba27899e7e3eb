"""Everything that PyTorch's native kernels run, as one list of pattern configs."""

from __future__ import annotations

from collections.abc import Sequence

from fusion_core.catalog import families
from fusion_core.configs import BackendPatternConfig, DTypeConfig


def native(
    weighted: Sequence[DTypeConfig],
    activations: Sequence[DTypeConfig],
    *,
    linear: Sequence[DTypeConfig] | None = None,
    embedding: Sequence[DTypeConfig] = (),
    recurrent: Sequence[DTypeConfig] = (),
) -> list[BackendPatternConfig]:
    """The whole table of PyTorch's native backends, composed of the families of this package.

    A backend that has kernels for a part only composes the families it has.

    Args:
        weighted: Combinations of dtypes of convolutions, transposed or not.
        activations: Combinations of dtypes of what has no weight.
        linear: Combinations of dtypes of linear layers; default those of ``weighted``.
        embedding: Combinations of dtypes of embeddings; without any they stay in float.
        recurrent: Combinations of dtypes of recurrent layers; without any they stay in float.
    """
    without_weight = (
        *(families.batch_norm, families.binary, families.matmul, families.cat, families.pooling),
        *(families.shape, families.general, families.activation, families.fixed_range),
        *(families.own_range, families.normalization),
    )
    return [
        *families.conv(weighted, functional=True),
        *families.conv_transpose(weighted, functional=True),
        *families.linear(weighted if linear is None else linear, functional=True),
        *(config for family in without_weight for config in family(activations)),
        *families.sizes(),
        *families.embedding(embedding),
        *families.recurrent(recurrent),
    ]
