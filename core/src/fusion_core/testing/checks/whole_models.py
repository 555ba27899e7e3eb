"""Whole models, quantized with the backend's defaults, behave as models must."""

from __future__ import annotations

import io
import pickle
import threading
from typing import Any

import pytest
import torch

from fusion_core.ledger import Ledger, LedgerEntry, Status
from fusion_core.passes import trace
from fusion_core.passes.record import member_names
from fusion_core.testing.measures import equal, sqnr, tensors_in
from fusion_core.testing.models import MODELS
from fusion_core.testing.outcome import Outcome, quantized, run
from fusion_core.testing.require import require, require_none, skip_gap
from fusion_core.testing.subject import Subject
from fusion_core.testing.verdicts import disagreement, is_finite
from fusion_core.testing.whole import least_sqnr, rounded, whole_outcome

OTHER_BATCH = 5


class WholeModelChecks:
    """Each check is run on each of the kit's whole models."""

    def test_a_model_keeps_its_accuracy(self, subject: Subject, model: str) -> None:
        """Float and quantized outputs differ by no more than the noise of so many operations."""
        outcome = whole_outcome(subject, model).outcome
        require(is_finite(tensors_in(outcome.from_kernels)), "its output has NaN or infinity")
        found, least = sqnr(outcome.want, outcome.from_kernels), least_sqnr(outcome)
        require(
            found >= least,
            f"the quantized model keeps {found:.1f} dB of signal over noise, "
            f"and {least:.1f} are expected of {rounded(outcome)} rounded values",
        )

    def test_the_kernels_agree_with_the_reference_model(self, subject: Subject, model: str) -> None:
        """They differ by a step for each value that rounding may turn to the other side."""
        reason = subject.info.gap("kernels")
        if reason is not None:
            skip_gap(reason)
        outcome = whole_outcome(subject, model).outcome
        require_none(disagreement(outcome, max(1, rounded(outcome))))

    def test_the_users_model_is_untouched(self, subject: Subject, model: str) -> None:
        """Parameters, buffers, flags, hooks and modules are what they were."""
        changes = whole_outcome(subject, model).changes
        require(not changes, f"quantizing changed the model it was given: {'; '.join(changes)}")

    def test_a_model_survives_being_saved(self, subject: Subject, model: str) -> None:
        """Pickled or saved by torch and loaded again, it gives the same bits."""
        outcome = whole_outcome(subject, model).outcome
        copied = pickle.loads(pickle.dumps(outcome.lowered))  # noqa: S301  what the line itself made
        require(
            equal(run(copied, outcome.inputs[-1]), outcome.from_kernels),
            "a pickled and unpickled model gives something else",
        )
        file = io.BytesIO()
        torch.save(outcome.lowered, file)
        file.seek(0)
        loaded = torch.load(file, weights_only=False)
        require(
            equal(run(loaded, outcome.inputs[-1]), outcome.from_kernels),
            "a model saved and loaded by torch gives something else",
        )

    def test_quantizing_twice_gives_the_same(self, subject: Subject, model: str) -> None:
        """The second model gives the bits of the first."""
        outcome = whole_outcome(subject, model).outcome
        again = quantized(outcome.model, outcome.inputs, subject.backend)
        require(
            equal(again.from_kernels, outcome.from_kernels),
            "the model quantized once more from the same data gives something else",
        )

    def test_nothing_is_warned_of(self, subject: Subject, model: str) -> None:
        """Neither quantizing nor running the model warns."""
        warned = whole_outcome(subject, model).warned
        require(not warned, f"quantizing and running it warned: {'; '.join(warned)}")

    def test_the_report_accounts_for_every_operation(self, subject: Subject, model: str) -> None:
        """Every operation has an entry, and who accepted it, or why it is not int8."""
        outcome = whole_outcome(subject, model).outcome
        traced = trace(outcome.model, outcome.inputs[0], backend=subject.backend)
        calls = [node for node in traced.graph.nodes if node.op.startswith("call_")]
        known = {entry.node for entry in outcome.ledger}
        missing = [node.name for node in calls if not known.intersection(member_names(node))]
        require(not missing, f"the ledger has no entry for {', '.join(missing)}")
        require_none(_unaccounted(outcome.ledger))

    def test_a_batch_of_another_size_runs(self, subject: Subject, model: str) -> None:
        """The batch it was calibrated on is no part of the model."""
        outcome = whole_outcome(subject, model).outcome
        (inputs,) = MODELS[model].inputs(1, batch=OTHER_BATCH)
        want, have = run(outcome.model, inputs), run(outcome.lowered, inputs)
        found, least = sqnr(want, have), least_sqnr(outcome)
        require(
            found >= least,
            f"on a batch of {OTHER_BATCH} it keeps {found:.1f} dB of signal over noise, "
            f"and {least:.1f} are expected (no number: the shapes are wrong)",
        )

    def test_a_model_runs_in_another_thread(self, subject: Subject, model: str) -> None:
        """It gives the bits it gives in the thread in which it was made."""
        outcome = whole_outcome(subject, model).outcome
        results: list[Any] = []
        worker = threading.Thread(target=lambda: results.append(_tried(outcome)))
        worker.start()
        worker.join()
        (result,) = results
        if isinstance(result, Exception):
            pytest.fail(
                f"in another thread it raises {type(result).__name__}: {result}", pytrace=False
            )
        require(equal(result, outcome.from_kernels), "in another thread it gives something else")


def _tried(outcome: Outcome) -> Any:
    try:
        return run(outcome.lowered, outcome.inputs[-1])
    except Exception as error:  # noqa: BLE001  a thread would swallow it
        return error


def _unaccounted(ledger: Ledger) -> str | None:
    problems = (_what_is_missing(entry) for entry in ledger)
    return "; ".join(filter(None, problems)) or None


def _what_is_missing(entry: LedgerEntry) -> str | None:
    wanted = {
        Status.INT8: ("plugin", "pattern", "kernel"),
        Status.REFERENCE: ("plugin", "pattern", "reason"),
        Status.FLOAT: ("reason",),
        Status.REMOVED: (),
        Status.NO_TENSOR: (),
    }[entry.status]
    missing = [name for name in wanted if not getattr(entry, name)]
    if not missing:
        return None
    return f"{entry.node} is {entry.status.value}, and its {' and '.join(missing)} missing"
