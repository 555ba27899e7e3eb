"""How the output of a pattern is observed, relative to its inputs, and where parameters come from."""

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


class Mode(Enum):
    """Where an operation's quantization parameters come from."""

    STATIC = "static"
    """Inputs and output are observed on data beforehand."""

    DYNAMIC = "dynamic"
    """The input's are chosen from each tensor while running; the output is float."""

    WEIGHT_ONLY = "weight only"
    """Only the weight is quantized; inputs and output are float."""
