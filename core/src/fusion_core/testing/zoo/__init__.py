"""Small models: one or more for each capability, in the spellings that users write."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from fusion_core.testing.zoo.arithmetic import ARITHMETIC
from fusion_core.testing.zoo.case import Case, Producer, fresh_model
from fusion_core.testing.zoo.layers import LAYERS
from fusion_core.testing.zoo.movement import MOVEMENT
from fusion_core.testing.zoo.producers import PRODUCERS

__all__ = ["CASES", "PRODUCERS", "Case", "Producer", "fresh_model"]

CASES: Mapping[str, tuple[Case, ...]] = MappingProxyType({**LAYERS, **ARITHMETIC, **MOVEMENT})
"""By capability, the models that must all be accepted for it to be supported."""
