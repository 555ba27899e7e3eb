"""What came out of a check, and what a capability's checks say together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Literal, TypeAlias

from fusion_core.testing.require import GAP

CheckOutcome: TypeAlias = Literal["passed", "failed", "skipped"]


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One check of one backend.

    Attributes:
        backend: Name of the backend.
        check: Name of the check, with its parameters: ``test_capability[conv2d]``.
        outcome: How it ended.
        capability: What it is about, where it is about one of the capabilities.
        reason: Why it failed or was skipped.
    """

    backend: str
    check: str
    outcome: CheckOutcome
    capability: str | None = None
    reason: str = ""


class Support(Enum):
    """What is known of a capability of a backend."""

    SUPPORTED = "supported"
    """All of its checks passed."""

    GAP = "gap"
    """The backend says that it lacks it."""

    FAILED = "failed"
    """A check failed."""

    NOT_CHECKED = "not checked"
    """No check ran to its end."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One capability of one backend.

    Attributes:
        support: What is known of it.
        reason: Why it is a gap, failed, or was not checked.
    """

    support: Support
    reason: str = ""


def cell_of(results: Iterable[CheckResult]) -> Cell:
    """What the checks of one capability of one backend say together."""
    results = tuple(results)
    for result in results:
        if result.outcome == "failed":
            return Cell(Support.FAILED, result.reason)
    skipped = [result.reason for result in results if result.outcome == "skipped"]
    gaps = [reason.removeprefix(GAP) for reason in skipped if reason.startswith(GAP)]
    if any(result.outcome == "passed" for result in results):
        return Cell(Support.SUPPORTED)
    if gaps:
        return Cell(Support.GAP, gaps[0])
    return Cell(Support.NOT_CHECKED, next(iter(skipped), ""))
