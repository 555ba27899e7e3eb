"""fuse: run the fuser method of every match, and put what it returns at the root node."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import nn
from torch.fx import GraphModule, Node

from fusion_core.configs import Skip
from fusion_core.errors import FuseError
from fusion_core.ledger import Ledger
from fusion_core.matcher import CallGraph, Match, NoMatch, scan
from fusion_core.passes.activations import activation_module
from fusion_core.passes.edit import copy_model, erase, finish
from fusion_core.passes.indices import fusion_index
from fusion_core.passes.record import (
    MEMBERS,
    RECORD,
    PassRecord,
    Stage,
    advance,
    member_names,
    members,
    record_of,
)
from fusion_core.passes.roots import blame, call_plugin, extra_inputs, fuser_arguments, root_node
from fusion_core.patterns import MatchAllNode, render
from fusion_core.registry import Backend, PatternEntry, get_backend


def fuse(model: GraphModule, backend: str | Backend, *, qat: bool = False) -> GraphModule:
    """Fuse what ``backend`` can fuse.

    A fuser method that returns a :class:`Skip` leaves its match to the next pattern; the ledger
    keeps the reason.

    Args:
        model: What :func:`trace` returned. It is not changed.
        backend: Name of a backend, or the backend.
        qat: What fuser methods get as ``is_qat``.

    Returns:
        A new GraphModule with the fused modules.

    Raises:
        FuseError: A fuser method or getter failed, or returned what it must not.
        ModelStateError: ``model`` has not been traced.
    """
    chosen = get_backend(backend)
    record = record_of(model, Stage.TRACED, "fuse")
    fused = copy_model(model)
    mine = advance(fused, record, Stage.FUSED)
    mine.backend = mine.ledger.backend = chosen.name
    fusing = _Fusing(CallGraph(fused.graph, dict(fused.named_modules(remove_duplicate=False))), qat)
    result = scan(fusing.calls, fusion_index(chosen), fusing.accept)
    for match in result.matches:
        _replace(fused, match, fusing.modules[match.anchor])
    for node, refusals in result.refusals.items():
        _keep_reasons(mine.ledger, node, refusals)
    return finish(fused)


@dataclass
class _Fusing:
    """Runs fuser methods while the graph is swept.

    Attributes:
        calls: Call sites of the graph.
        qat: What fuser methods get as ``is_qat``.
        modules: The fused module by the anchor of its match.
    """

    calls: CallGraph
    qat: bool
    modules: dict[Node, nn.Module] = field(default_factory=dict)

    def accept(self, match: Match[PatternEntry]) -> NoMatch | None:
        """Fuse ``match``, or say why not."""
        config = match.entry.config
        if config.constraint is not None:
            verdict = call_plugin(match, "constraint", config.constraint, match.node_pattern)
            if isinstance(verdict, Skip):
                return NoMatch("{}", (verdict.reason,), len(match.nodes))
        root = root_node(match)
        if self.calls.module(root) is None:
            return NoMatch("its root node {} calls no module", (root,), len(match.nodes))
        arguments = fuser_arguments(match, lambda node: self._argument(match, node))
        fuser: Any = config.fuser_method
        if not isinstance(fuser, type):
            arguments = (self.qat, *arguments)
        fused = call_plugin(match, "fuser method", fuser, *arguments)
        if isinstance(fused, Skip):
            return NoMatch("{}", (fused.reason,), len(match.nodes))
        wanted = config.fused_module or nn.Module
        if not isinstance(fused, wanted):
            problem = f"its fuser method returned {type(fused).__name__}, not {wanted.__name__}"
            raise FuseError(blame(match, problem))
        self.modules[match.anchor] = fused.train(self.qat)
        return None

    def _argument(self, match: Match[PatternEntry], node: Node) -> Any:
        """A module for a module call or an activation, the function for another call, else the wildcard."""
        if node not in match.nodes:
            return MatchAllNode
        module = self.calls.module(node)
        if module is not None:
            return module
        site = self.calls.site(node)
        return (activation_module(site) if site else None) or node.target


def _replace(model: GraphModule, match: Match[PatternEntry], module: nn.Module) -> None:
    root = root_node(match)
    model.add_submodule(str(root.target), module)
    with model.graph.inserting_before(match.anchor):
        call = model.graph.call_module(
            str(root.target), (*root.args, *extra_inputs(match)), dict(root.kwargs)
        )
    call.meta = {**match.anchor.meta, MEMBERS: members(reversed(match.nodes))}
    match.anchor.replace_all_uses_with(call)
    erase(model.graph, match.nodes)
    record: PassRecord = getattr(model, RECORD)
    for line in record.ledger.of(member_names(call)):
        line.plugin, line.priority = str(match.entry.origin), match.entry.priority
        line.pattern = render(match.entry.pattern)


def _keep_reasons(ledger: Ledger, node: Node, refusals: list[tuple[PatternEntry, NoMatch]]) -> None:
    entry, nearest = max(refusals, key=lambda refusal: refusal[1].depth)
    for line in ledger.of(member_names(node)):
        line.near_miss = f"{render(entry.pattern)}: {nearest.reason}"
