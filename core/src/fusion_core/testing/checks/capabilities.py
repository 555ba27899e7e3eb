"""What a backend claims works, and what it calls a gap does not."""

from __future__ import annotations

import pytest

from fusion_core.configs.capabilities import covered
from fusion_core.testing.require import require, require_none, skip_gap
from fusion_core.testing.special import SPECIAL
from fusion_core.testing.subject import Subject
from fusion_core.testing.verdicts import disagreement, problem_of
from fusion_core.testing.zoo import CASES


class CapabilityChecks:
    """Each capability is claimed and works, or is a gap and does not."""

    def test_capability(self, subject: Subject, capability: str) -> None:
        """It is accepted, in kernels where the backend has any, and keeps its numbers."""
        reason = subject.info.gap(capability)
        if reason is not None and capability not in subject.info.gaps:
            skip_gap(reason)
        needs_producer = any(case.is_behind for case in CASES.get(capability, ()))
        if needs_producer and subject.producer is None:
            pytest.skip("nothing that the backend claims can stand before it")
        problem = problem_of(subject, capability)
        if reason is None:
            require_none(
                problem, f"{capability} is claimed, for it is not among the gaps, and fails"
            )
            return
        require(
            problem is not None,
            f"{capability} is declared a gap ({reason}), and works: remove it from gaps",
        )
        skip_gap(reason)

    def test_the_kernel_agrees_with_the_reference(self, subject: Subject, capability: str) -> None:
        """On one operation both give the same, but for a step where the exact result lies between."""
        for lacking in (capability, "kernels"):
            reason = subject.info.gap(lacking)
            if reason is not None:
                skip_gap(reason)
        if capability in SPECIAL:
            pytest.skip("it is no operation, and is judged by its own check alone")
        if subject.producer is None and any(case.is_behind for case in CASES[capability]):
            pytest.skip("nothing that the backend claims can stand before it")
        for case in CASES[capability]:
            require_none(disagreement(subject.outcome(case)), case.text)

    def test_a_gap_by_glob_has_something_in_it(self, subject: Subject, glob: str) -> None:
        """Not everything that a glob among the gaps covers works."""
        names = covered(glob)
        works = [name for name in names if problem_of(subject, name) is None]
        require(
            len(works) < len(names),
            f"{glob!r} is declared a gap, and all that it covers works ({', '.join(works)}): "
            "remove it from gaps",
        )
