"""Whether an observer has what it needs to choose parameters."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn


def has_seen_data(observer: nn.Module) -> bool:
    """Whether an observer recorded anything; PyTorch's say so by a range that is not inside out."""
    observed = getattr(observer, "observed", None)
    low, high = getattr(observer, "min_val", None), getattr(observer, "max_val", None)
    if observed is not None or not isinstance(low, Tensor) or not isinstance(high, Tensor):
        return observed is not False
    return low.numel() > 0 and bool((low <= high).all())


def needs_data(observer: Any) -> bool:
    """Whether parameters of this observer rest on data: not where they are chosen while running."""
    return not getattr(observer, "is_dynamic", False) and not has_seen_data(observer)


def label_of(observer: nn.Module, path: str) -> str:
    """What an observer is called in messages."""
    return str(getattr(observer, "label", "") or path)
