"""``support_matrix``: what each backend supports, as text, Markdown and JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from fusion_core.configs import CAPABILITIES
from fusion_core.report.printing import Printable
from fusion_core.testing.results import Cell, CheckResult, Support, cell_of

_STYLES = {
    Support.SUPPORTED: "green",
    Support.GAP: "yellow",
    Support.FAILED: "bold red",
    Support.NOT_CHECKED: "dim",
}


@dataclass(frozen=True)
class SupportMatrix(Printable):
    """What each backend supports.

    ``print`` shows it as text, ``rich.print`` in colour, a notebook as HTML.

    Attributes:
        cells: By backend, then by capability.
        results: The checks it was made of.
    """

    cells: Mapping[str, Mapping[str, Cell]]
    results: tuple[CheckResult, ...]

    @property
    def backends(self) -> tuple[str, ...]:
        """Names of the backends, sorted."""
        return tuple(self.cells)

    def totals(self, backend: str) -> dict[Support, int]:
        """How many capabilities of ``backend`` are supported, gaps, failed, and not checked."""
        cells = list(self.cells[backend].values())
        return {kind: sum(cell.support is kind for cell in cells) for kind in Support}

    def checks(self, backend: str) -> dict[str, int]:
        """How many checks of ``backend`` passed, failed and were skipped."""
        outcomes = [each.outcome for each in self.results if each.backend == backend]
        return {kind: outcomes.count(kind) for kind in ("passed", "failed", "skipped")}

    def failures(self, backend: str) -> tuple[CheckResult, ...]:
        """The checks of ``backend`` that failed."""
        return tuple(
            each for each in self.results if each.backend == backend and each.outcome == "failed"
        )

    def summary(self, backend: str) -> str:
        """One line: capabilities and checks of ``backend``, in numbers."""
        of_capabilities = ", ".join(
            f"{count} {kind.value}" for kind, count in self.totals(backend).items() if count
        )
        of_checks = ", ".join(f"{count} {kind}" for kind, count in self.checks(backend).items())
        return f"{backend}: capabilities {of_capabilities}; checks {of_checks}"

    def to_dict(self) -> dict[str, Any]:
        """Everything the matrix knows, in values that JSON has."""
        return {
            "torch": str(torch.__version__),
            "backends": {backend: self._backend_dict(backend) for backend in self.backends},
        }

    def to_markdown(self) -> str:
        """A table with a column for each backend, and below it the reasons."""
        heads = ["capability", *self.backends]
        lines = [_row(heads), _row(["---"] * len(heads))]
        for name in CAPABILITIES:
            cells = (self.cells[backend][name].support.value for backend in self.backends)
            lines.append(_row([f"`{name}`", *cells]))
        for backend in self.backends:
            lines += ["", self.summary(backend), ""]
            for (kind, reason), names in self._reasons(backend).items():
                listed = ", ".join(f"`{name}`" for name in names)
                lines.append(f"* {kind.value}: {listed}: {_on_one_line(reason)}")
        return "\n".join(lines) + "\n"

    def _backend_dict(self, backend: str) -> dict[str, Any]:
        return {
            "capabilities": {
                name: {"status": cell.support.value, "reason": cell.reason or None}
                for name, cell in self.cells[backend].items()
            },
            "totals": {kind.value: count for kind, count in self.totals(backend).items()},
            "checks": self.checks(backend),
            "failures": [
                {"check": each.check, "reason": each.reason} for each in self.failures(backend)
            ],
        }

    def _reasons(self, backend: str) -> dict[tuple[Support, str], list[str]]:
        """Capabilities that are not supported, by what they are and why, where that is known."""
        found: dict[tuple[Support, str], list[str]] = {}
        for name, cell in self.cells[backend].items():
            if cell.reason:
                found.setdefault((cell.support, cell.reason), []).append(name)
        return found

    def _drawn(self) -> Iterator[RenderableType]:
        table = Table(box=None, pad_edge=False)
        table.add_column("capability", no_wrap=True)
        for backend in self.backends:
            table.add_column(backend)
        for name in CAPABILITIES:
            cells = [self.cells[backend][name].support for backend in self.backends]
            table.add_row(name, *(Text(each.value, _STYLES[each]) for each in cells))
        yield table
        for backend in self.backends:
            yield Text("")
            yield Text(self.summary(backend), style="bold")
            yield from self._drawn_reasons(backend)

    def _drawn_reasons(self, backend: str) -> Iterator[RenderableType]:
        table = Table(box=None, show_header=False, pad_edge=False)
        table.add_column(no_wrap=True)
        table.add_column(ratio=1, overflow="fold")
        table.add_column(ratio=1, overflow="fold")
        for (kind, reason), names in self._reasons(backend).items():
            table.add_row(Text(kind.value, _STYLES[kind]), Text(", ".join(names)), Text(reason))
        if table.row_count:
            yield table


def support_matrix(results: Iterable[CheckResult]) -> SupportMatrix:
    """What the results of the conformance checks say of each backend.

    Args:
        results: Of any number of backends, in any order.

    Returns:
        A matrix with all capabilities; what no result speaks of is not checked.
    """
    found = tuple(results)
    grouped: dict[str, dict[str, list[CheckResult]]] = {}
    for backend in sorted({each.backend for each in found}):
        grouped[backend] = {name: [] for name in CAPABILITIES}
    for each in found:
        if each.capability is not None and each.capability in CAPABILITIES:
            grouped[each.backend][each.capability].append(each)
    cells = {
        backend: {name: cell_of(of_one) for name, of_one in by_name.items()}
        for backend, by_name in grouped.items()
    }
    return SupportMatrix(cells, found)


def _row(values: Iterable[str]) -> str:
    return f"| {' | '.join(values)} |"


def _on_one_line(text: str) -> str:
    return " ".join(text.split())
