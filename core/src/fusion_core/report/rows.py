"""The ledger's entries as rows: one for each, or equal ones put together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from fusion_core.ledger import LedgerEntry, Status

_LAST = (Status.REMOVED, Status.NO_TENSOR)


@dataclass(frozen=True, slots=True)
class Int8Group:
    """Operations that the same pattern and kernel took.

    Attributes:
        count: How many.
        macs: Their multiply-accumulates.
        pattern: The pattern they were accepted by.
        kernel: The lowering rule that took them.
        mode: Where their quantization parameters come from.
        plugin: Name of the plugin that contributed the pattern.
    """

    count: int
    macs: int
    pattern: str
    kernel: str
    mode: str
    plugin: str


@dataclass(frozen=True, slots=True)
class OtherRow:
    """Operations that are not int8, for the same reason.

    Attributes:
        status: What they are instead.
        count: How many.
        operation: What they do.
        places: Modules they are called in; empty text for the model itself.
        macs: Their multiply-accumulates.
        why: The reason, and the near miss.
    """

    status: Status
    count: int
    operation: str
    places: tuple[str, ...]
    macs: int
    why: str


@dataclass(frozen=True, slots=True)
class EntryRow:
    """One operation.

    Attributes:
        entry: The ledger's entry.
        outcome: Pattern and plugin that took it, or why it is not int8.
    """

    entry: LedgerEntry
    outcome: str


def entry_rows(ledger: Iterable[LedgerEntry]) -> list[EntryRow]:
    """A row for each entry, in the ledger's order."""
    return [
        EntryRow(each, _accepted(each) if each.status is Status.INT8 else _why(each))
        for each in ledger
    ]


def other_groups(ledger: Iterable[LedgerEntry]) -> list[OtherRow]:
    """What is not int8, equal decisions in one row: most costly first, what was removed last."""
    groups = defaultdict(list)
    for each in ledger:
        if each.status is not Status.INT8:
            groups[each.status, each.operation, _why(each)].append(each)
    rows = [
        OtherRow(status, len(group), operation, _places(group), _macs(group), why)
        for (status, operation, why), group in groups.items()
    ]
    return sorted(rows, key=lambda row: (row.status in _LAST, -row.macs))


def int8_groups(ledger: Iterable[LedgerEntry]) -> list[Int8Group]:
    """What is int8 by pattern, kernel and plugin: most costly first."""
    groups = defaultdict(list)
    for each in ledger:
        if each.status is Status.INT8:
            key = (each.pattern or "", each.kernel or "", each.mode or "", _plugin(each))
            groups[key].append(each)
    rows = [Int8Group(len(group), _macs(group), *key) for key, group in groups.items()]
    return sorted(rows, key=lambda row: -row.macs)


def _accepted(entry: LedgerEntry) -> str:
    return f"{entry.pattern} of {_plugin(entry)}, by {entry.kernel}"


def _plugin(entry: LedgerEntry) -> str:
    """The plugin's name alone; the heading has its distribution and version."""
    return (entry.plugin or "").partition(" ")[0]


def _why(entry: LedgerEntry) -> str:
    """The reason, what is known instead of one, and the pattern that came nearest."""
    reason = entry.reason
    if entry.status is Status.NO_TENSOR:
        return "it gives no tensor"
    if entry.status is Status.FLOAT16:
        return f"its weight is float16, by {entry.kernel}"
    if reason is None and entry.pattern is not None:
        reason = f"taken by {entry.pattern} of {_plugin(entry)}, and not yet lowered"
    parts = [reason or "not yet decided"]
    if entry.near_miss is not None:
        parts.append(f"nearest: {entry.near_miss}")
    return "; ".join(parts)


def _places(entries: Iterable[LedgerEntry]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(each.path for each in entries))


def _macs(entries: Iterable[LedgerEntry]) -> int:
    return sum(each.macs for each in entries)
