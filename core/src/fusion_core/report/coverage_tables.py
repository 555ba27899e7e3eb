"""Coverage as tables that rich draws."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rich.console import RenderableType
from rich.text import Text

from fusion_core.ledger import Share
from fusion_core.report.rows import OtherRow
from fusion_core.report.tables import amount, percent, places_of, table


@dataclass(frozen=True, slots=True)
class ShareRow:
    """One backend.

    Attributes:
        backend: Its name.
        operations: Operations it would quantize, of all.
        macs: Multiply-accumulates in those, of all.
        remark: Notes, or why nothing is known.
    """

    backend: str
    operations: Share
    macs: Share
    remark: str


def share_table(model: str, rows: Sequence[ShareRow]) -> Iterator[RenderableType]:
    """How much each backend would quantize."""
    yield Text(f"Coverage of {model}", style="bold")
    if not rows:
        yield Text("No backend is installed; fusion-backend-fbgemm is one, for x86 CPUs.")
        return
    has_remarks = any(row.remark for row in rows)
    columns = ("backend", "operations", "", "MACs", "")
    drawn = table("", (*columns, "remark") if has_remarks else columns)
    for row in rows:
        cells: list[RenderableType] = [
            Text(row.backend),
            *_cells(row.operations, str),
            *_cells(row.macs, amount),
        ]
        drawn.add_row(*cells, *([Text(row.remark)] if has_remarks else []))
    yield drawn


def float_table(backend: str, rows: Sequence[OtherRow]) -> Iterator[RenderableType]:
    """What a backend would leave in float, and why."""
    if not rows:
        return
    drawn = table(f"Stays in float with {backend}", ("#", "operation", "in", "MACs", "why"))
    for row in rows:
        cells = (str(row.count), Text(row.operation), Text(places_of(row)), amount(row.macs))
        drawn.add_row(*cells, Text(row.why))
    yield drawn


def _cells(share: Share, shown: Callable[[int], str]) -> tuple[str, str]:
    if not share.total:
        return "", ""
    return percent(share), f"{shown(share.int8) or 0} of {shown(share.total)}"
