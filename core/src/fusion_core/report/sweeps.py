"""The passes that are still to come, run on a copy, and the sweeps over the graphs that they meet."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch.fx import GraphModule, Node

from fusion_core.configs import BackendPatternConfig, ObservationType, QConfigMapping
from fusion_core.ledger import Ledger
from fusion_core.matcher import CallGraph, Match, PatternIndex, Scan, scan
from fusion_core.passes import Stage, fuse, lower, prepare, record_of
from fusion_core.passes.edit import copy_model
from fusion_core.passes.fuse import find_fusions
from fusion_core.passes.indices import fusion_index, lowering_index, quantization_index
from fusion_core.passes.lower import find_kernels
from fusion_core.passes.record import Member, member_names, members
from fusion_core.registry import Backend
from fusion_core.report.candidates import Sweep


@dataclass
class Swept:
    """A model as the passes see it.

    Attributes:
        ledger: Their decisions.
        sweeps: One for each pass that matches patterns and is still to come.
        rules: For each operation the rule of the qconfig mapping that decides, then those it overrides;
            empty where nobody remembers.
        nodes: For each sweep, the node that each operation of the traced graph has become.
        members: The operations by name.
        aliases: Names of nodes, with the operations that they were made from.
    """

    ledger: Ledger
    sweeps: list[Sweep] = field(default_factory=list)
    rules: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    nodes: list[Mapping[str, Node]] = field(default_factory=list)
    members: dict[str, Member] = field(default_factory=dict)
    aliases: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def add(self, sweep: Sweep) -> None:
        """Add a sweep, and what its nodes were made from."""
        self.sweeps.append(sweep)
        found: dict[str, Node] = {}
        for node in sweep.calls.graph.nodes:
            self.aliases[node.name] = self.aliases.get(node.name, ()) + member_names(node)
            for member in members(node):
                found[member.name] = node
                self.members[member.name] = member
        self.nodes.append(found)

    def matches(self, name: str) -> Iterator[Match[Any]]:
        """The matches that decide whether an operation is quantized; none where that is past."""
        for sweep, nodes in zip(self.sweeps, self.nodes, strict=True):
            if sweep.purpose == "quantizing" and nodes.get(name) in sweep.taken:
                yield sweep.taken[nodes[name]]

    def is_observed(self, name: str) -> bool:
        """Whether an operation is quantized by what took it, rather than left as it is on request."""
        return not any(map(_is_unobserved, self.matches(name)))


def swept(model: GraphModule, backend: Backend, mapping: QConfigMapping) -> Swept:
    """Run the passes that are still to come.

    Args:
        model: A model with a record. It is not changed.
        backend: The backend.
        mapping: Which operation is to be quantized with what.
    """
    mine = copy_model(model)
    record = record_of(mine, Stage.TRACED, "explain")
    if record.stage is Stage.CONVERTED:
        result = Swept(_ledger(lower(mine, backend)))
        result.add(
            _sweep("lowering", mine, lowering_index(backend), find_kernels(mine, backend)[0])
        )
        return result
    if record.stage > Stage.FUSED:
        return Swept(record.ledger, rules=record.rules)
    fused = fuse(mine, backend) if record.stage is Stage.TRACED else mine
    prepared = record_of(prepare(fused, backend, mapping), Stage.PREPARED, "explain")
    ledger = prepared.ledger
    result = Swept(ledger, rules=prepared.rules)
    if fused is not mine:
        result.add(_sweep("fusing", mine, fusion_index(backend), find_fusions(mine, backend)[0]))
    index = quantization_index(backend)
    result.add(
        _sweep(
            "quantizing", fused, index, scan(CallGraph.of(fused), index), lambda m: _why(m, ledger)
        )
    )
    return result


def _is_unobserved(match: Match[Any]) -> bool:
    """Whether the pattern that took a node asks for nothing to be quantized."""
    config: BackendPatternConfig = match.entry.config
    unobserved = ObservationType.INPUT_OUTPUT_NOT_OBSERVED
    return config.observation_type is unobserved and not config.num_tensor_args_to_observation_type


def _sweep(
    purpose: str,
    model: GraphModule,
    index: PatternIndex[Any],
    result: Scan[Any],
    verdict: Callable[[Match[Any]], str | None] = lambda _: None,
) -> Sweep:
    return Sweep(purpose, CallGraph.of(model), index, result, verdict)


def _ledger(model: GraphModule) -> Ledger:
    return record_of(model, Stage.TRACED, "explain").ledger


def _why(match: Match[Any], ledger: Ledger) -> str | None:
    """Why prepare left ``match`` in float; None if it is quantized."""
    lines = list(ledger.of(member_names(match.nodes)))
    if any(line.plugin is not None for line in lines):
        return None
    return next((line.reason for line in lines if line.reason), "it gives no tensor")
