"""How the output of a pattern is observed, relative to its inputs."""

from __future__ import annotations

from enum import Enum


class ObservationType(Enum):
    """Which observer the output of a matched pattern gets."""

    OUTPUT_USE_DIFFERENT_OBSERVER_AS_INPUT = "separate"
    """The output has its own: convolution, linear, addition."""

    OUTPUT_SHARE_OBSERVER_WITH_INPUT = "shared"
    """All tensor inputs and the output have one: pooling, concatenation, reshape."""

    INPUT_OUTPUT_NOT_OBSERVED = "none"
    """Nothing is observed: operations that read sizes."""
