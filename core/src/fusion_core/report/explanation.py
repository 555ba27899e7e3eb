"""What ``explain`` returns: for each operation of a model what becomes of it, as a value that prints."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from rich.console import RenderableType

from fusion_core.errors import UnknownNodeError
from fusion_core.registry import PluginOrigin
from fusion_core.report.explained import NodeExplanation
from fusion_core.report.paragraphs import heading, node_in_full, node_in_short
from fusion_core.report.printing import Printable


@dataclass(frozen=True)
class Explanation(Printable):
    """What becomes of the operations of a model with a backend, and why.

    ``print`` shows it as text, ``rich.print`` in colour, a notebook as HTML.

    Attributes:
        backend: Name of the backend.
        plugins: The backend's plugin and its extensions.
        stage: The last pass that ran on the model that was given: ``"traced"``, ...
        notes: What holds for the model as a whole.
        nodes: The operations, in the order of the traced graph.
        is_expanded: Whether it prints all candidates of each, or but the nearest misses.
    """

    backend: str
    plugins: tuple[PluginOrigin, ...]
    stage: str
    notes: tuple[str, ...]
    nodes: tuple[NodeExplanation, ...]
    is_expanded: bool = False

    def __iter__(self) -> Iterator[NodeExplanation]:
        """The operations, in the order of the traced graph."""
        return iter(self.nodes)

    def __len__(self) -> int:
        """How many operations."""
        return len(self.nodes)

    def __getitem__(self, name: str) -> NodeExplanation:
        """The operation whose node is called ``name``, else the first in the module of that path.

        Raises:
            UnknownNodeError: There is none.
        """
        named = [each for each in self.nodes if each.node == name]
        found = named or [each for each in self.nodes if each.path == name]
        if not found:
            known = [name for each in self.nodes for name in (each.node, each.path)]
            raise UnknownNodeError(name, known)
        return found[0]

    def expanded(self) -> Explanation:
        """The same explanation with all candidates of each operation."""
        return replace(self, is_expanded=True)

    def to_dict(self) -> dict[str, Any]:
        """Everything the explanation knows, in values that JSON has."""
        return {
            "backend": self.backend,
            "plugins": [each.to_dict() for each in self.plugins],
            "stage": self.stage,
            "notes": list(self.notes),
            "nodes": [asdict(each) for each in self.nodes],
        }

    def _drawn(self) -> Iterator[RenderableType]:
        yield from heading(self.backend, self.plugins, self.notes)
        for each in self.nodes:
            yield from node_in_full(each) if self.is_expanded else node_in_short(each)
