"""``report``: what became of a model's operations, as a value that prints."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from rich.console import RenderableType
from torch import nn

from fusion_core.ledger import Ledger, Share
from fusion_core.passes import Stage, record_of
from fusion_core.passes.parts import whole_ledger
from fusion_core.registry import PluginOrigin
from fusion_core.report.printing import Printable
from fusion_core.report.rows import entry_rows, int8_groups, other_groups
from fusion_core.report.tables import entry_table, heading, int8_table, other_table


@dataclass(frozen=True)
class Report(Printable):
    """What became of each operation of a model, and why.

    ``print`` shows it as text, ``rich.print`` in colour, a notebook as HTML.

    Attributes:
        ledger: The decision on each operation.
        stage: The last pass that ran: ``"traced"``, ..., ``"lowered"``.
        plugins: The backend's plugin and its extensions; empty until the model is prepared.
        core_version: Version of fusion-core that prepared the model; empty until then.
        torch_version: Version of torch it was prepared under; until then, the one that is here.
        is_expanded: Whether it prints one row for each operation; else equal rows are put
            together, and what is not int8 comes first.
    """

    ledger: Ledger
    stage: str
    plugins: tuple[PluginOrigin, ...] = ()
    core_version: str = ""
    torch_version: str = str(torch.__version__)
    is_expanded: bool = False

    def expanded(self) -> Report:
        """The same report with one row for each operation, in the order of the graph."""
        return replace(self, is_expanded=True)

    def to_dict(self) -> dict[str, Any]:
        """Everything the report knows, in values that JSON has."""
        return {
            "backend": self.ledger.backend,
            "stage": self.stage,
            "plugins": [each.to_dict() for each in self.plugins],
            "fusion_core": self.core_version,
            "torch": self.torch_version,
            "notes": list(self.ledger.notes),
            "operations": _share(self.ledger.operations()),
            "macs": _share(self.ledger.macs()),
            "entries": [{**asdict(each), "status": each.status.value} for each in self.ledger],
        }

    def _drawn(self) -> Iterator[RenderableType]:
        yield from heading(self.ledger, self.stage, self._versions())
        if self.is_expanded:
            yield from entry_table(entry_rows(self.ledger))
        else:
            yield from other_table(other_groups(self.ledger))
            yield from int8_table(int8_groups(self.ledger))

    def _versions(self) -> str:
        parts = [*map(str, self.plugins), f"torch {self.torch_version}"]
        if self.core_version:
            parts.insert(len(self.plugins), f"fusion-core {self.core_version}")
        return ", ".join(parts)


def report(model: nn.Module) -> Report:
    """What became of each operation of a model, and why.

    Args:
        model: What :func:`fusion_core.quantize`, or any of the passes, returned.

    Raises:
        ModelStateError: ``model`` comes from none of them.
    """
    record = record_of(model, Stage.TRACED, "report")
    stage, identity = record.stage.name.lower(), record.backend_identity
    ledger = whole_ledger(model)
    if identity is None:
        return Report(ledger, stage)
    return Report(
        ledger,
        stage,
        plugins=identity.origins,
        core_version=identity.core_version,
        torch_version=identity.torch_version,
    )


def _share(share: Share) -> dict[str, float]:
    return {"int8": share.int8, "total": share.total, "fraction": share.fraction}
