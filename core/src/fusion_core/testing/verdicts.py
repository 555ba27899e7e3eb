"""Whether a backend has a capability: its models quantized, and what the ledger and the numbers say."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from fusion_core.ledger import LedgerEntry, Status
from fusion_core.testing.measures import sqnr, steps_apart, tensors_in
from fusion_core.testing.outcome import Outcome
from fusion_core.testing.special import SPECIAL
from fusion_core.testing.subject import Subject
from fusion_core.testing.zoo import CASES, Case

LEAST_SQNR = 20.0
"""Signal over noise that one operation must keep, in decibel.

Eight bits over the range of a normally distributed value, clipped at four deviations, give 41 dB;
with weights of seven bits and a quantized output a layer keeps about 35 dB. 20 dB leave a backend two
bits less than that, while a wrong zero point, scale or bias leaves less than 10 dB.
"""

MOST_STEPS = 1.0
"""Steps by which a kernel may differ from the reference form of one operation.

Where the exact result lies in the middle of two codes, sums in another order fall to either side.
"""

_ROUNDING = 1e-3
_NO_COUNT = frozenset({Status.REMOVED, Status.NO_TENSOR})
_PICKING = "operator.getitem"


def problem_of(subject: Subject, capability: str) -> str | None:
    """Why the backend does not have ``capability``; None if it has."""
    if capability in SPECIAL:
        return SPECIAL[capability](subject)
    problems = ((case, case_problem(subject, case)) for case in CASES[capability])
    return next((f"{case.text}: {problem}" for case, problem in problems if problem), None)


def case_problem(subject: Subject, case: Case) -> str | None:
    """Why the model of ``case`` is not accepted, or is not right; None if it is."""
    try:
        outcome = subject.outcome(case)
        problem = _refusal(subject, case, outcome) or numbers_problem(outcome)
    except Exception as error:  # noqa: BLE001  a plugin's kernel may raise anything
        return f"{type(error).__name__}: {error}"
    return problem


def _refusal(subject: Subject, case: Case, outcome: Outcome) -> str | None:
    """What the ledger says against it."""
    entries = [entry for entry in outcome.ledger if is_of_interest(entry)]
    accepted = {Status.INT8, Status.FLOAT16}
    if subject.info.gap("kernels") is not None:
        accepted.add(Status.REFERENCE)
    refused = [entry for entry in entries if entry.status not in accepted]
    if refused:
        return "; ".join(map(in_words, refused))
    if not entries:
        return "nothing of it is left in the quantized model"
    if case.is_one and len({entry.pattern for entry in entries}) > 1:
        patterns = ", ".join(f"{entry.operation} by {entry.pattern}" for entry in entries)
        return f"its operations are not quantized as one, but {patterns}"
    return None


def is_of_interest(entry: LedgerEntry) -> bool:
    """Whether an operation belongs to the capability, and not to what stands before it."""
    is_before = entry.path.partition(".")[0] == "before"
    return not is_before and entry.status not in _NO_COUNT and entry.operation != _PICKING


def in_words(entry: LedgerEntry) -> str:
    """What the ledger says of one operation."""
    said = f"the ledger has {entry.operation} as {entry.status.value}"
    said += f" ({entry.reason})" if entry.reason else ""
    return said + (f", nearest pattern {entry.near_miss}" if entry.near_miss else "")


def numbers_problem(outcome: Outcome, least: float = LEAST_SQNR) -> str | None:
    """What is wrong with the numbers that an outcome gives."""
    have = outcome.from_kernels
    if not is_finite(tensors_in(have)):
        return "its output has values that are not finite"
    found = sqnr(outcome.want, have)
    if found < least:
        return f"its output keeps {found:.1f} dB of signal over noise, and {least:g} are expected"
    return None


def is_finite(values: Iterable[torch.Tensor]) -> bool:
    """Whether no value is NaN or infinite."""
    return all(bool(torch.isfinite(value).all()) for value in values)


def disagreement(outcome: Outcome, most: float = MOST_STEPS) -> str | None:
    """By how much kernels and reference differ, where that is more than ``most`` steps."""
    steps = steps_apart(outcome.reference, outcome.from_reference, outcome.from_kernels)
    if steps <= most + _ROUNDING:
        return None
    return (
        f"the kernels give results up to {steps:.1f} quantization steps from those of the reference "
        f"model, and {most:g} may be rounding"
    )
