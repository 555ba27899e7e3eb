"""For every operation of the traced graph: who accepted it, or who refused it and why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum


class Status(Enum):
    """What became of an operation."""

    INT8 = "int8"
    """Runs in the backend's kernel, with a weight of 8 bits or fewer where it has one."""

    FLOAT16 = "float16"
    """Runs in the backend's kernel, in float with a weight of float16."""

    REFERENCE = "reference"
    """Quantized, but no kernel took it: dequantize, float operation, quantize."""

    FLOAT = "float"
    """Left in float; the entry says why."""

    REMOVED = "removed"
    """Has no effect on the result and is gone."""

    NO_TENSOR = "no tensor"
    """Computes a size or another Python value; there is nothing to quantize."""


_UNCOUNTED = (Status.REMOVED, Status.NO_TENSOR)


@dataclass(slots=True)
class LedgerEntry:
    """The decision on one operation of the traced graph.

    Attributes:
        node: Name of the node in the traced graph.
        operation: What it does, for example ``Conv2d`` or ``operator.add``.
        path: Module it is called in, or is; empty for the model itself.
        macs: Multiply-accumulates on the example input; 0 where that is no measure of the
            operation.
        status: What became of it.
        plugin: Plugin that accepted it: ``name (distribution version)``.
        pattern: Pattern it was accepted by.
        priority: That pattern's priority.
        mode: How it is quantized: ``"static"``, ``"dynamic"`` or ``"weight only"``.
        weight: Dtype of the quantized weight, for example ``"qint8"`` or ``"float16"``; None without one.
        kernel: Lowering rule that took it.
        reason: Why it is not int8.
        near_miss: The pattern that came nearest, and what stopped it.
    """

    node: str
    operation: str
    path: str = ""
    macs: int = 0
    status: Status = Status.FLOAT
    plugin: str | None = None
    pattern: str | None = None
    priority: int | None = None
    kernel: str | None = None
    reason: str | None = None
    near_miss: str | None = None
    mode: str | None = None
    weight: str | None = None


@dataclass(frozen=True, slots=True)
class Share:
    """How much of something is int8.

    Attributes:
        int8: Amount in the backend's kernels.
        total: Amount in all.
    """

    int8: int
    total: int

    @property
    def fraction(self) -> float:
        """Between 0 and 1; 1 where there is nothing."""
        return self.int8 / self.total if self.total else 1.0


@dataclass(slots=True)
class Ledger:
    """All decisions on one model, in the order of the traced graph.

    Attributes:
        backend: Name of the backend, once one is chosen.
        notes: What concerns the model as a whole: recipe steps, attributes that were not kept.
    """

    backend: str = ""
    notes: list[str] = field(default_factory=list)
    _entries: dict[str, LedgerEntry] = field(default_factory=dict)

    def __iter__(self) -> Iterator[LedgerEntry]:
        """Entries in the order of the traced graph."""
        return iter(self._entries.values())

    def __len__(self) -> int:
        """How many operations the traced graph has."""
        return len(self._entries)

    def __getitem__(self, node: str) -> LedgerEntry:
        """The entry of a node of the traced graph, by its name."""
        return self._entries[node]

    def open(self, entry: LedgerEntry) -> None:
        """Add an entry."""
        self._entries[entry.node] = entry

    def of(self, nodes: Iterable[str]) -> Iterator[LedgerEntry]:
        """The entries of some nodes of the traced graph."""
        return (self._entries[node] for node in nodes if node in self._entries)

    def operations(self) -> Share:
        """Operations in the backend's kernels, of all on tensors that are still there."""
        left = [entry for entry in self if entry.status not in _UNCOUNTED]
        return Share(sum(entry.status is Status.INT8 for entry in left), len(left))

    def macs(self) -> Share:
        """Multiply-accumulates in the backend's kernels, of all."""
        return Share(
            sum(each.macs for each in self if each.status is Status.INT8),
            sum(each.macs for each in self),
        )
