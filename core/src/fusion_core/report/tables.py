"""Rows as what rich draws. Cells are Text, never read as markup, and nothing is cut off."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from fusion_core.errors import first_few
from fusion_core.ledger import Ledger, Share, Status
from fusion_core.report.rows import EntryRow, Int8Group, OtherRow

_STYLES = {
    Status.INT8: "green",
    Status.FLOAT16: "green",
    Status.REFERENCE: "yellow",
    Status.FLOAT: "red",
    Status.REMOVED: "dim",
    Status.NO_TENSOR: "dim",
}
_UNITS = ((10**9, "G"), (10**6, "M"), (10**3, "k"))
THE_MODEL = "(the model)"
_PLACES = 3


def heading(ledger: Ledger, stage: str, versions: str) -> Iterator[RenderableType]:
    """The lines above the tables."""
    backend = f" for {ledger.backend}" if ledger.backend else ""
    operations, macs = ledger.operations(), ledger.macs()
    yield Text(f"Model {stage}{backend}", style="bold")
    yield Text(
        f"int8: {percent(operations)} of {operations.total} operations, "
        f"{percent(macs)} of {amount(macs.total) or 0} multiply-accumulates"
    )
    yield Text(versions)
    for note in ledger.notes:
        yield Text(note)


def other_table(rows: Sequence[OtherRow]) -> Iterator[RenderableType]:
    """What is not int8, and why."""
    if not rows:
        return
    drawn = table("Not int8", ("", "#", "operation", "in", "MACs", "why"))
    for row in rows:
        places = places_of(row)
        drawn.add_row(
            *(_status(row.status), str(row.count), Text(row.operation), Text(places)),
            *(amount(row.macs), Text(row.why)),
        )
    yield drawn


def int8_table(rows: Sequence[Int8Group]) -> Iterator[RenderableType]:
    """What is int8, and through whom."""
    if not rows:
        return
    drawn = table("int8", ("#", "MACs", "mode", "plugin", "kernel", "pattern"))
    for row in rows:
        drawn.add_row(
            *(str(row.count), amount(row.macs)),
            *(Text(each) for each in (row.mode, row.plugin, row.kernel, row.pattern)),
        )
    yield drawn


def entry_table(rows: Sequence[EntryRow]) -> Iterator[RenderableType]:
    """One row for each operation."""
    drawn = table("", ("", "operation", "in", "MACs", "pattern and plugin, or why not"))
    for row in rows:
        entry = row.entry
        drawn.add_row(
            *(_status(entry.status), Text(entry.operation), Text(entry.path or THE_MODEL)),
            *(amount(entry.macs), Text(row.outcome)),
        )
    yield drawn


def places_of(row: OtherRow) -> str:
    """The first few places of a row, in words."""
    return first_few((place or THE_MODEL for place in row.places), _PLACES)


def amount(macs: int) -> str:
    """``385.2 M``; nothing for 0, which means that there is no such measure."""
    for size, unit in _UNITS:
        if macs >= size:
            return f"{macs / size:.1f} {unit}"
    return str(macs or "")


def percent(share: Share) -> str:
    """Rounded down, so that only all is 100 %."""
    return f"{int(share.fraction * 1000) / 10:g} %"


def _status(status: Status) -> Text:
    return Text(status.value, style=_STYLES[status])


def table(title: str, columns: Sequence[str]) -> Table:
    """An empty table; numbers and what has no heading are not wrapped, and nothing is cut off."""
    drawn = Table(title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    drawn.title = f"\n{title}" if title else None
    for column in columns:
        is_number = column in {"#", "MACs"}
        drawn.add_column(
            column,
            justify="right" if is_number else "left",
            no_wrap=is_number or not column,
            overflow="fold",
        )
    return drawn
