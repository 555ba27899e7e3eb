"""Small models made out of patterns: what a pattern matches, and what it must not."""

from fusion_core.errors import NoExampleError
from fusion_core.examples.near_misses import NearMiss, near_misses_of
from fusion_core.examples.of_backends import examples_for
from fusion_core.examples.of_patterns import PatternExample, examples_of

__all__ = [
    "NearMiss",
    "NoExampleError",
    "PatternExample",
    "examples_for",
    "examples_of",
    "near_misses_of",
]
