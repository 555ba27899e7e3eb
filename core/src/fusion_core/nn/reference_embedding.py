"""Reference modules of embeddings."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from fusion_core.nn.reference_module import ReferenceModule


class Embedding(ReferenceModule):
    """Reference form of ``nn.Embedding``."""


class EmbeddingBag(ReferenceModule):
    """Reference form of ``nn.EmbeddingBag``."""

    def forward(
        self,
        input: Tensor,  # noqa: A002  the name torch gives it
        offsets: Tensor | None = None,
        per_sample_weights: Tensor | None = None,
    ) -> Any:
        """As the float module: a sum, mean or largest value for each bag."""
        return super().forward(input, offsets, per_sample_weights)
