"""lower: replace parts of a reference model by the backend's kernels; what has no rule stays as it is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias

from torch import nn
from torch.fx import GraphModule, Node

from fusion_core.configs import Replacement, Skip
from fusion_core.errors import LoweringError
from fusion_core.ledger import Ledger, Status
from fusion_core.matcher import CallGraph, Match, NoMatch, Scan, scan
from fusion_core.passes.edit import Names, copy_model, erase, finish
from fusion_core.passes.indices import lowering_index
from fusion_core.passes.parts import backend_of, each_part
from fusion_core.passes.record import MEMBERS, Stage, advance, member_names, members, record_of
from fusion_core.qops import quantize_per_tensor
from fusion_core.registry import Backend, LoweringEntry, get_backend


def lower(model: GraphModule, backend: str | Backend | None = None) -> GraphModule:
    """Replace what the backend's lowering rules match.

    Args:
        model: What :func:`convert` returned, a reference model. It is not changed.
        backend: Name of the backend, or the backend; default the one the model was prepared for.

    Returns:
        A new GraphModule. Operations that no rule took still run as in the reference model, and the
        ledger names them.

    Raises:
        LoweringError: A rule failed, or returned what it must not.
        ModelStateError: ``model`` has not been converted.
    """
    record = record_of(model, Stage.CONVERTED, "lower")
    chosen = get_backend(record.backend if backend is None else backend)
    lowered = copy_model(model)
    mine = advance(lowered, record, Stage.LOWERED)
    result, replacements = find_kernels(lowered, chosen)
    _settle(mine.ledger, lowered, result)
    names = Names(lowered)
    calls = [
        _replace(lowered, match, replacements[match.anchor], names) for match in result.matches
    ]
    for call in calls:  # last node first, so what only a dead call read is dead when its turn comes
        if not call.users:
            lowered.graph.erase_node(call)
    each_part(lowered, lambda graph, part: lower(graph, backend_of(part, chosen)))
    return finish(lowered)


def find_kernels(
    model: GraphModule, backend: Backend
) -> tuple[Scan[LoweringEntry], dict[Node, Replacement]]:
    """What :func:`lower` does to ``model``, without doing it: the sweep, and each anchor's replacement."""
    calls = CallGraph.of(model)
    lowering = _Lowering(calls, record_of(model, Stage.CONVERTED, "lower").ledger)
    return scan(calls, lowering_index(backend), lowering.accept), lowering.replacements


@dataclass
class _Lowering:
    """Runs lowering rules while the graph is swept.

    Attributes:
        calls: Call sites of the graph.
        ledger: Tells what is left in float; a kernel would compute that between codes, too.
        replacements: What a rule answered, by the anchor of its match.
    """

    calls: CallGraph
    ledger: Ledger
    replacements: dict[Node, Replacement] = field(default_factory=dict)

    def accept(self, match: Match[LoweringEntry]) -> NoMatch | None:
        """Lower ``match``, or say why not."""
        lines = self.ledger.of(member_names(match.nodes))
        if any(line.status is Status.FLOAT for line in lines):
            return NoMatch("it is left in float", (), len(match.nodes))
        rule: Any = match.entry.rule
        try:
            answer = rule.lower(match.node_pattern, self.calls.modules)
        except Exception as error:
            msg = f"{_blame(match)}: the rule raised {type(error).__name__}: {error}"
            raise LoweringError(msg) from error
        if isinstance(answer, Skip):
            return NoMatch("{}", (answer.reason,), len(match.nodes))
        if not isinstance(answer, Replacement):
            msg = f"{_blame(match)}: the rule returned {type(answer).__name__}, not a Replacement or a Skip"
            raise LoweringError(msg)
        self.replacements[match.anchor] = answer
        return None


def _blame(match: Match[LoweringEntry]) -> str:
    return f"{match.entry} at node {match.anchor.name}"


def _replace(
    model: GraphModule, match: Match[LoweringEntry], answer: Replacement, names: Names
) -> Node:
    target: Any = answer.target
    with model.graph.inserting_before(match.anchor):
        if isinstance(target, nn.Module):
            path = names.fresh(_stem(match))
            model.add_submodule(path, target.eval())
            call = model.graph.call_module(path, answer.inputs, dict(answer.options))
        elif isinstance(target, str):
            call = model.graph.call_method(target, answer.inputs, dict(answer.options))
        else:
            call = model.graph.call_function(target, answer.inputs, dict(answer.options))
    call.meta = {**match.anchor.meta, MEMBERS: members(reversed(match.nodes))}
    match.anchor.replace_all_uses_with(call)
    erase(model.graph, match.nodes)
    return call


def _stem(match: Match[LoweringEntry]) -> str:
    """The path of the module that is replaced, with a name of its own beneath; else the rule's name."""
    called = next((node for node in match.nodes if node.op == "call_module"), None)
    return f"{called.target}_kernel" if called is not None else "kernel"


def _settle(ledger: Ledger, model: GraphModule, result: Scan[LoweringEntry]) -> None:
    """Tell the ledger what runs in a kernel, and what is quantized but found none."""
    for match in result.matches:
        for line in ledger.of(member_names(match.nodes)):
            line.status = Status.FLOAT16 if line.weight == "float16" else Status.INT8
            line.kernel, line.reason = match.entry.rule.label, None
    lowered = {node for match in result.matches for node in match.nodes}
    refusals = _refusals_behind(model, result)
    for node in model.graph.nodes:
        if node in lowered:
            continue
        for line in ledger.of(member_names(node)):
            if line.status is Status.REFERENCE:
                line.reason = _why_not(refusals.get(node))


_Refusal: TypeAlias = tuple[LoweringEntry, NoMatch]


def _refusals_behind(model: GraphModule, result: Scan[LoweringEntry]) -> dict[Node, _Refusal]:
    """For each node the nearest refusal, at the latest at the quantize that ends its group.

    One further on that got deeper goes before one at the node itself: a rule for the layer alone,
    of another mode, says less than the rule for layer and output.
    """
    # Last node first, so each node asks its users only and no path is walked twice.
    found: dict[Node, tuple[int, _Refusal]] = {}
    for node in reversed(model.graph.nodes):
        candidates = []
        if node in result.refusals:
            own = max(result.refusals[node], key=lambda refusal: refusal[1].depth)
            candidates.append((0, own))
        if node.target is not quantize_per_tensor:
            behind = [found[user] for user in node.users if user in found]
            if behind:
                steps, refusal = min(behind, key=lambda each: (each[0], -each[1][1].depth))
                candidates.append((steps + 1, refusal))
        if candidates:
            found[node] = max(candidates, key=lambda each: each[1][1].depth)
    return {node: refusal for node, (_, refusal) in found.items()}


def _why_not(refusal: _Refusal | None) -> str:
    if refusal is None:
        return "the backend has no kernel for it"
    entry, nearest = refusal
    return f"no kernel: {entry.rule.label} does not fit, {nearest.reason}"
