"""Dropout in a model that is trained: it follows train() and eval(), and observers do not see it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import torch
import torch.nn.functional as F  # noqa: N812  the name everyone knows it by
from torch import nn
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from fusion_core.nn.by_mode import OnlyInTraining
from fusion_core.passes.edit import after, nodes_in

DROPOUTS: Final = (
    *(nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d),
    *(nn.AlphaDropout, nn.FeatureAlphaDropout, OnlyInTraining),
)
"""Modules that do nothing but in training."""

MODULE_OF: Final[Mapping[Any, type[nn.Module]]] = {
    F.dropout: nn.Dropout,
    torch.dropout: nn.Dropout,
    F.dropout1d: nn.Dropout1d,
    F.dropout2d: nn.Dropout2d,
    F.dropout3d: nn.Dropout3d,
    F.alpha_dropout: nn.AlphaDropout,
    torch.alpha_dropout: nn.AlphaDropout,
    F.feature_alpha_dropout: nn.FeatureAlphaDropout,
    torch.feature_alpha_dropout: nn.FeatureAlphaDropout,
}
"""The module that does what a function does, and follows train() and eval()."""

_Chain: TypeAlias = tuple[Node, ...]


@dataclass
class SetAside:
    """Dropout that was taken out of a graph, and who read it.

    Values are observed before dropout, which in training makes them larger than they will be.

    Attributes:
        readers: For each node that read a dropped-out value, the dropouts behind each of its
            operands, outermost last.
    """

    readers: dict[Node, tuple[_Chain, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, model: GraphModule) -> SetAside:
        """Take the dropout modules out of ``model``."""
        aside = cls()
        chains: dict[Node, _Chain] = {}
        for node in model.graph.nodes:
            if node.op == "call_module" and isinstance(model.get_submodule(node.target), DROPOUTS):
                chains[node] = (*chains.get(node.args[0], ()), node)
        for node in model.graph.nodes:
            operands = nodes_in((node.args, node.kwargs))
            if node not in chains and any(each in chains for each in operands):
                aside.readers[node] = tuple(chains.get(each, ()) for each in operands)
        for node in chains:
            node.replace_all_uses_with(node.args[0])  # type: ignore[arg-type]  # a node, as it is a tensor
        for node in reversed(chains):
            model.graph.erase_node(node)
        return aside

    def restore(self, model: GraphModule) -> None:
        """Put every dropout back, behind the observers of what it reads."""
        made: dict[tuple[Node, _Chain], Node] = {}
        for reader, chains in self.readers.items():
            waiting = iter(chains)

            def dropped(value: Node, waiting: Any = waiting) -> Node:
                chain = next(waiting)
                if chain and (value, chain) not in made:
                    made[value, chain] = _call(model, value, chain)
                return made[value, chain] if chain else value

            reader.args, reader.kwargs = map_arg((reader.args, reader.kwargs), dropped)


def _call(model: GraphModule, value: Node, chain: _Chain) -> Node:
    """Calls of the modules of ``chain`` on ``value``."""
    for dropout in chain:
        with model.graph.inserting_before(after(value)):
            call = model.graph.call_module(str(dropout.target), (value,))
        call.meta = dict(dropout.meta)
        value = call
    return value
