"""A whole model quantized once for all checks, and what was to be seen meanwhile."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass

import torch

from fusion_core.qops import quantize_per_tensor
from fusion_core.testing.looks import changes_between, look
from fusion_core.testing.models import MODELS
from fusion_core.testing.outcome import Outcome, quantized
from fusion_core.testing.subject import BATCHES, Subject
from fusion_core.testing.verdicts import LEAST_SQNR

_FROM_TORCH = ("quantized tensor creation functions", "torch.ao.quantization is deprecated")
"""torch warns so whenever a tensor of a quantized dtype is made, which its own kernels take."""


@dataclass(frozen=True)
class WholeOutcome:
    """A whole model's outcome.

    Attributes:
        outcome: Models and outputs.
        changes: What quantizing changed in the user's model, in words.
        warned: What was warned of meanwhile, other than by torch of its own dtypes.
    """

    outcome: Outcome
    changes: tuple[str, ...]
    warned: tuple[str, ...]


def whole_outcome(subject: Subject, name: str) -> WholeOutcome:
    """The outcome of a whole model; each is quantized once for all checks."""
    return subject.kept(name, lambda: _quantize(subject, name))  # type: ignore[no-any-return]  # what _quantize made


def _quantize(subject: Subject, name: str) -> WholeOutcome:
    model, inputs = MODELS[name].model(), MODELS[name].inputs(BATCHES)
    before = look(model)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        outcome = quantized(model, inputs, subject.backend, silent=False)
        with torch.no_grad():
            outcome.lowered(*inputs[0])
    texts = dict.fromkeys(f"{each.category.__name__}: {each.message}" for each in caught)
    warned = tuple(each for each in texts if not any(known in each for known in _FROM_TORCH))
    return WholeOutcome(outcome, changes_between(before, look(model)), warned)


def rounded(outcome: Outcome) -> int:
    """How many values of the reference model are rounded to codes."""
    return sum(node.target is quantize_per_tensor for node in outcome.reference.graph.nodes)


def least_sqnr(outcome: Outcome) -> float:
    """Signal over noise to expect where the noise of each rounded value may be that of one operation."""
    return LEAST_SQNR - 10 * math.log10(max(1, rounded(outcome)))
