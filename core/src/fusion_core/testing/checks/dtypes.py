"""Every combination of dtypes that a pattern lists is honoured, and nothing outside of it is taken."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
from torch.fx import GraphModule

from fusion_core.configs import (
    INTEGER_DTYPES,
    DTypeConfig,
    QConfig,
    QConfigMapping,
    QuantizedType,
    quantized_type,
)
from fusion_core.ledger import Ledger
from fusion_core.passes import Stage, prepare, record_of
from fusion_core.passes.dtypes import choose_dtype_config
from fusion_core.registry import Backend, PatternEntry
from fusion_core.testing.qconfigs import fitting_qconfig, outside
from fusion_core.testing.require import require
from fusion_core.testing.specimens import Specimen, accepted_by_constraint, alone, specimens_of
from fusion_core.testing.subject import Subject


@dataclass(frozen=True)
class Combination:
    """One dtype config of a pattern.

    Attributes:
        entry: The pattern.
        dtypes: The combination.
    """

    entry: PatternEntry
    dtypes: DTypeConfig


class DTypeChecks:
    """Each check is run on each dtype config of each pattern that is observed."""

    def test_a_fitting_qconfig_is_taken(self, subject: Subject, combination: Combination) -> None:
        """Prepare inserts observers of its dtypes, within its limits."""
        specimen = _specimen(subject, combination)
        qconfig = _fitting(combination)
        prepared = _prepared(specimen, _only(subject.backend, combination), qconfig)
        refused = _refused(prepared)
        if _is_not_quantized(refused):
            pytest.skip(f"on its example it is no question of dtypes: {refused}")
        require(not refused, f"a qconfig within its limits is refused: {refused}")
        for found in _observed(prepared):
            require(
                any(_agree(found, wanted) for wanted in _promised(qconfig)),
                f"prepare put in an observer of {found}, and the qconfig has "
                f"{', '.join(map(str, _promised(qconfig)))}",
            )

    def test_a_qconfig_that_does_not_fit_is_refused(
        self, subject: Subject, combination: Combination
    ) -> None:
        """With a reason, and the operation stays in float: other codes, more codes, smaller scales."""
        specimen, fitting = _specimen(subject, combination), _fitting(combination)
        is_weighted = combination.entry.config.root_module is not None
        for what, bad in outside(combination.dtypes, fitting, is_weighted=is_weighted):
            chosen, _ = choose_dtype_config([combination.dtypes], bad, weighted=is_weighted)
            require(chosen is None, f"{combination.dtypes} is taken to allow {what}")
            refused = _refused(_prepared(specimen, _only(subject.backend, combination), bad))
            require(bool(refused), f"with {what} prepare quantizes it all the same")


def _fitting(combination: Combination) -> QConfig:
    """A qconfig within the limits; fails the running check where no observer can be."""
    qconfig = fitting_qconfig(combination.dtypes)
    try:
        _promised(qconfig)
    except (ValueError, TypeError) as error:
        pytest.fail(f"no observer can keep within {combination.dtypes}: {error}", pytrace=False)
    return qconfig


def combinations_of(entry: PatternEntry) -> list[Combination]:
    """The static combinations of an entry that read integer codes."""
    return [
        Combination(entry, each)
        for each in entry.config.dtype_configs
        if each.constraints("input").dtype in INTEGER_DTYPES and not each.is_dynamic
    ]


def _only(backend: Backend, combination: Combination) -> Backend:
    """A backend whose one pattern has one combination of dtypes."""
    entry = combination.entry
    config = entry.config.model_copy(update={"dtype_configs": (combination.dtypes,)})
    return alone(backend, replace(entry, config=config))


def _specimen(subject: Subject, combination: Combination) -> Specimen:
    """The first example that the pattern's constraint accepts; skips where there is none."""
    entry, reason = combination.entry, "there is none"
    for specimen in specimens_of(subject, entry):
        refused = accepted_by_constraint(specimen, entry)
        if refused is None and specimen.match(entry) is not None:
            return specimen
        reason = refused or reason
    pytest.skip(f"it has no example that its constraint accepts: {reason}")


def _prepared(specimen: Specimen, single: Backend, qconfig: QConfig) -> GraphModule:
    fused = specimen.as_fused()
    return prepare(fused, single, QConfigMapping(global_qconfig=qconfig))


def _ledger(prepared: GraphModule) -> Ledger:
    return record_of(prepared, Stage.PREPARED, "the conformance kit").ledger


def _refused(prepared: GraphModule) -> str:
    """Why an operation of the example is not quantized; empty if all that match are."""
    if record_of(prepared, Stage.PREPARED, "the conformance kit").observers:
        return ""
    return "; ".join(filter(None, (entry.reason for entry in _ledger(prepared)))) or "no observer"


def _is_not_quantized(reason: str) -> bool:
    return any(words in reason for words in ("its operand", "its result is", "no tensor operand"))


def _observed(prepared: GraphModule) -> list[QuantizedType]:
    record = record_of(prepared, Stage.PREPARED, "the conformance kit")
    observers: list[Any] = [prepared.get_submodule(path) for path in record.observers]
    weights = [quantized_type(each.observer) for each in record.weights.values()]
    return [*(quantized_type(_Built(each)) for each in observers), *weights]


@dataclass(frozen=True, eq=False)
class _Built:
    """Builds an observer that is there already."""

    observer: Any

    def __call__(self) -> Any:
        return self.observer


def _promised(qconfig: QConfig) -> list[QuantizedType]:
    factories = (qconfig.input_observer, qconfig.output_observer, qconfig.weight)
    return [quantized_type(each) for each in factories]


def _agree(found: QuantizedType, wanted: QuantizedType) -> bool:
    return (found.dtype, found.quant_min, found.quant_max, found.eps) == (
        wanted.dtype,
        wanted.quant_min,
        wanted.quant_max,
        wanted.eps,
    )
