"""``coverage``: how much of a model each backend would quantize, without quantizing it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from rich.console import RenderableType
from torch import nn

from fusion_core.errors import (
    DuplicateBackendError,
    FuseError,
    PatternConflictError,
    PluginError,
    PredicateError,
    UnknownBackendError,
)
from fusion_core.ledger import LedgerEntry, Share, Status
from fusion_core.passes import ExampleInputs
from fusion_core.registry import Backend, PluginOrigin, get_backend
from fusion_core.registry import backends as list_backends
from fusion_core.report.coverage_tables import ShareRow, float_table, share_table
from fusion_core.report.dry_run import dry_run
from fusion_core.report.printing import Printable
from fusion_core.report.rows import OtherRow, other_groups
from fusion_core.report.sweeps import Swept

_USABLE = ("installed", "registered")

# A plugin's, not the model's.
_FAULTS = (
    DuplicateBackendError,
    FuseError,
    PatternConflictError,
    PluginError,
    PredicateError,
    UnknownBackendError,
)


@dataclass(frozen=True)
class BackendCoverage:
    """What one backend would make of a model.

    Attributes:
        backend: Name of the backend.
        plugins: The backend's plugin and its extensions.
        operations: Operations of the traced model that are on tensors and have an effect.
        quantized_operations: Of those, the ones that would be quantized.
        macs: Multiply-accumulates on the example input.
        quantized_macs: Of those, the ones in quantized operations.
        left_in_float: Operations that would not be quantized, equal ones for equal reasons
            together, the most costly first.
        notes: How it was found out, where that is not by shapes alone.
        problem: Why nothing is known: the backend cannot be loaded, or a pass failed; else None.
    """

    backend: str
    plugins: tuple[PluginOrigin, ...] = ()
    operations: int = 0
    quantized_operations: int = 0
    macs: int = 0
    quantized_macs: int = 0
    left_in_float: tuple[OtherRow, ...] = field(default=(), repr=False)
    notes: tuple[str, ...] = ()
    problem: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Everything it knows, in values that JSON has."""
        rows = [{**asdict(row), "status": row.status.value} for row in self.left_in_float]
        plugins = [each.to_dict() for each in self.plugins]
        facts = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {**facts, "plugins": plugins, "left_in_float": rows, "notes": list(self.notes)}


@dataclass(frozen=True)
class Coverage(Printable):
    """How much of a model each backend would quantize, and what not, and why.

    ``print`` shows it as text, ``rich.print`` in colour, a notebook as HTML.

    Attributes:
        model: Name of the model's type.
        backends: One for each backend, in the order they were asked for.
    """

    model: str
    backends: tuple[BackendCoverage, ...]

    def __getitem__(self, backend: str) -> BackendCoverage:
        """What the backend of this name would make of the model.

        Raises:
            KeyError: It is not among those that were asked.
        """
        return {each.backend: each for each in self.backends}[backend]

    def to_dict(self) -> dict[str, Any]:
        """Everything it knows, in values that JSON has."""
        return {"model": self.model, "backends": [each.to_dict() for each in self.backends]}

    def _drawn(self) -> Iterator[RenderableType]:
        yield from share_table(self.model, [_share_row(each) for each in self.backends])
        for each in self.backends:
            yield from float_table(each.backend, each.left_in_float)


def coverage(
    model: nn.Module,
    backends: str | Backend | Iterable[str | Backend] | None = None,
    *,
    example_inputs: ExampleInputs,
) -> Coverage:
    """How much of a model each backend would quantize.

    Runs trace, fuse and prepare on a copy of the model on PyTorch's meta device: nothing is
    calibrated, no weight is computed with, and a model that is itself on the meta device will do.
    Whether a kernel takes what is quantized shows only in the report of the quantized model.

    Args:
        model: A module in eval mode. It is not changed.
        backends: The backends, by name or as such; default all that are installed or registered.
            One of those that cannot be loaded, or fails on the model, is a row with the reason.
        example_inputs: One input: a tensor, a sequence of positional arguments, or a dict of keyword
            arguments. Tensors on the meta device will do.

    Raises:
        UnknownBackendError: No backend has a name that was given.
        PluginError: A backend that was given is broken.
        FusionError: Whatever tracing the model raises.
    """
    if backends is None:
        found = list(_of_all(model, example_inputs))
    else:
        names = [backends] if isinstance(backends, str | Backend) else backends
        chosen = [get_backend(each) for each in names]  # all, before work on the first begins
        found = [_covered(model, each, example_inputs) for each in chosen]
    return Coverage(type(model).__name__, tuple(found))


def _of_all(model: nn.Module, example_inputs: ExampleInputs) -> Iterator[BackendCoverage]:
    """One for each usable backend; what is wrong with one that nobody named does not harm the others."""
    for record in list_backends():
        if record.state in _USABLE:
            try:
                yield _covered(model, get_backend(record.name), example_inputs)
            except _FAULTS as error:
                yield BackendCoverage(record.name, problem=str(error))


def _covered(model: nn.Module, backend: Backend, example_inputs: ExampleInputs) -> BackendCoverage:
    found, notes = dry_run(model, backend, example_inputs)
    counted = [each for each in found.ledger if each.status is Status.FLOAT]
    quantized = [each for each in counted if _is_quantized(each, found)]
    names = {each.node for each in quantized}
    left = [_with_reason(each) for each in counted if each.node not in names]
    return BackendCoverage(
        backend.name,
        backend.origins,
        operations=len(counted),
        quantized_operations=len(quantized),
        macs=_macs(counted),
        quantized_macs=_macs(quantized),
        left_in_float=tuple(sorted(other_groups(left), key=lambda row: (-row.macs, -row.count))),
        notes=notes,
    )


def _is_quantized(entry: LedgerEntry, found: Swept) -> bool:
    is_taken = entry.plugin is not None and entry.reason is None
    return is_taken and found.is_observed(entry.node)


def _with_reason(entry: LedgerEntry) -> LedgerEntry:
    """Without the near miss, which would set equal reasons apart; ``explain`` has it."""
    asked = f"the pattern {entry.pattern} asks for nothing to be quantized"
    return replace(entry, reason=entry.reason or asked, near_miss=None)


def _macs(entries: Iterable[LedgerEntry]) -> int:
    return sum(each.macs for each in entries)


def _share_row(each: BackendCoverage) -> ShareRow:
    return ShareRow(
        each.backend,
        Share(each.quantized_operations, each.operations),
        Share(each.quantized_macs, each.macs),
        "; ".join(filter(None, (each.problem, *each.notes))),
    )
