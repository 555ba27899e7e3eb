"""Reference modules of embeddings."""

from __future__ import annotations

from fusion_core.nn.reference_module import ReferenceModule


class Embedding(ReferenceModule):
    """Reference form of ``nn.Embedding``."""


class EmbeddingBag(ReferenceModule):
    """Reference form of ``nn.EmbeddingBag``."""
