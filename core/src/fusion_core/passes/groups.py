"""Which parts of a fused graph are quantized: matches become groups, and a group is taken whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch.fx import GraphModule, Node

from fusion_core.configs import ObservationType, QConfig, QConfigMapping, Skip
from fusion_core.ledger import Ledger, Status
from fusion_core.matcher import CallGraph, Match, NoMatch, nearest_miss, scan
from fusion_core.nn.weighted import weighted_part
from fusion_core.passes.dtypes import allows_float_output, choose_dtype_config
from fusion_core.passes.indices import quantization_index
from fusion_core.passes.record import WeightPlan, member_names, members
from fusion_core.passes.roots import call_plugin, root_node
from fusion_core.passes.shapes import dtype_of
from fusion_core.patterns import render
from fusion_core.registry import Backend, PatternEntry

SEPARATE = ObservationType.OUTPUT_USE_DIFFERENT_OBSERVER_AS_INPUT
SHARED = ObservationType.OUTPUT_SHARE_OBSERVER_WITH_INPUT


@dataclass(slots=True)
class Group:
    """A match that is quantized.

    Attributes:
        match: The match.
        root: Node that carries the weight, or the first to run.
        qconfig: What it is quantized with.
        observation: How its output is observed.
        inputs: Values from outside that are quantized for it.
        functional_weights: Of those, the ones that a function takes as its weight.
        weight: How the root module's weight is quantized, or None without one.
        gives_float: Whether its kernel gives float, because nobody reads the output quantized.
    """

    match: Match[PatternEntry]
    root: Node
    qconfig: QConfig
    observation: ObservationType
    inputs: tuple[Node, ...]
    functional_weights: tuple[Node, ...]
    weight: WeightPlan | None
    gives_float: bool = False


def find_groups(
    model: GraphModule, backend: Backend, mapping: QConfigMapping, ledger: Ledger
) -> list[Group]:
    """The groups of ``model`` in execution order; the ledger is told why everything else stays in float.

    Args:
        model: A fused graph.
        backend: Whose patterns count.
        mapping: Which qconfig goes where.
        ledger: Told of every decision.
    """
    calls = CallGraph.of(model)
    index = quantization_index(backend)
    result = scan(calls, index)
    by_anchor = {match.anchor: match for match in result.matches}
    inside = {node for match in result.matches for node in match.nodes}
    quantized: set[Node] = set()
    groups: list[Group] = []
    for node in model.graph.nodes:
        if node in by_anchor:
            decided = _decide(by_anchor[node], mapping, calls, quantized)
            if isinstance(decided, Skip):
                _refuse(ledger, by_anchor[node].nodes, decided.reason)
                continue
            _accept(ledger, decided)
            if decided.observation in {SEPARATE, SHARED}:
                groups.append(decided)
                quantized.add(node)
        elif node not in inside and node.op.startswith("call_"):
            _refuse(ledger, (node,), _unmatched(node, calls, backend))
            _note_near_miss(ledger, node, nearest_miss(node, calls, index))
    read_quantized = {value for group in groups for value in group.inputs}
    for group in groups:
        group.gives_float = (
            group.weight is not None
            and group.match.anchor not in read_quantized
            and allows_float_output(group.match.entry.config.dtype_configs, group.qconfig)
        )
    return groups


def _decide(
    match: Match[PatternEntry], mapping: QConfigMapping, calls: CallGraph, quantized: set[Node]
) -> Group | Skip:
    config = match.entry.config
    if config.constraint is not None:
        verdict = call_plugin(match, "constraint", config.constraint, match.node_pattern)
        if isinstance(verdict, Skip):
            return verdict
    qconfig, rule = _resolve(match, mapping)
    if qconfig is None:
        return Skip(f"the qconfig mapping leaves it in float ({rule})")
    root = root_node(match)
    weights = _functional_weights(match, root, calls)
    inputs = tuple(_tensor_inputs(match, calls))
    operand = _operand_problem(match, (*inputs, *weights))
    if operand is not None:
        return Skip(operand)
    module = calls.module(root)
    part = None if module is None else weighted_part(module, config)
    weighted = part is not None or bool(weights)
    chosen, problem = choose_dtype_config(config.dtype_configs, qconfig, weighted=weighted)
    observation = config.num_tensor_args_to_observation_type.get(
        len(inputs), config.observation_type
    )
    if chosen is None and observation in {SEPARATE, SHARED}:
        return Skip(problem)
    if observation is SHARED and not any(each in quantized for each in inputs):
        return Skip(
            "none of its inputs is quantized, and quantizing for it alone would gain nothing"
        )
    plan = None if part is None else WeightPlan(qconfig.weight, *part)
    return Group(match, root, qconfig, observation, inputs, weights, plan)


def _resolve(match: Match[PatternEntry], mapping: QConfigMapping) -> tuple[QConfig | None, str]:
    """The root's qconfig; None as soon as any member of the match is to stay in float."""
    resolved = [
        mapping.resolve(each.path, each.object_types, scope=each.scope, order=each.order)
        for each in members(reversed(match.nodes))
    ]
    if not resolved:
        return mapping.global_qconfig, "global"
    excluded = next((each for each in resolved if each[0] is None), None)
    return excluded or resolved[0]


def _functional_weights(
    match: Match[PatternEntry], root: Node, calls: CallGraph
) -> tuple[Node, ...]:
    index = match.entry.config.input_type_to_index.get("weight")
    site = calls.site(root)
    if index is None or site is None or root.op != "call_function" or index >= len(site.arguments):
        return ()
    weight = site.arguments[index]
    return (weight,) if isinstance(weight, Node) else ()


def _tensor_inputs(match: Match[PatternEntry], calls: CallGraph) -> Iterator[Node]:
    """Float tensors that come into the match from outside, each once; weights and biases of functions excepted."""
    excluded: set[Node] = set()
    for node in match.nodes:
        site = calls.site(node)
        for index in match.entry.config.input_type_to_index.values():
            if (
                site is not None
                and index < len(site.arguments)
                and isinstance(site.arguments[index], Node)
            ):
                excluded.add(site.arguments[index])
    seen: dict[Node, None] = {}
    for node in reversed(match.nodes):
        seen.update(dict.fromkeys(node.all_input_nodes))
    for node in seen:
        if node not in match.nodes and node not in excluded and dtype_of(node) is not None:
            yield node


def _operand_problem(match: Match[PatternEntry], operands: tuple[Node, ...]) -> str | None:
    if match.entry.config.observation_type not in {SEPARATE, SHARED}:
        return None
    for operand in operands:
        if dtype_of(operand) != torch.float32:
            return f"its operand {operand.name} is {dtype_of(operand)}"
    if dtype_of(match.anchor) != torch.float32:
        given = dtype_of(match.anchor)
        return f"its result is {given}" if given else "its result is not one tensor"
    return None if operands else "it has no tensor operand"


def _accept(ledger: Ledger, group: Group) -> None:
    entry = group.match.entry
    for line in ledger.of(member_names(group.match.nodes)):
        line.plugin = line.plugin or str(entry.origin)
        line.pattern = line.pattern or render(group.match.reading)
        line.priority = entry.priority if line.priority is None else line.priority
        line.reason = None


def _refuse(ledger: Ledger, nodes: tuple[Node, ...], reason: str) -> None:
    for line in ledger.of(member_names(nodes)):
        if line.status is Status.NO_TENSOR:
            continue
        line.plugin = line.pattern = line.priority = None
        line.reason = line.reason or reason


def _note_near_miss(
    ledger: Ledger, node: Node, missed: tuple[PatternEntry, NoMatch] | None
) -> None:
    if missed is None:
        return
    entry, refusal = missed
    for line in ledger.of(member_names(node)):
        line.near_miss = line.near_miss or f"{render(entry.pattern)}: {refusal.reason}"


def _unmatched(node: Node, calls: CallGraph, backend: Backend) -> str:
    site = calls.site(node)
    what = site.operators[0] if site else node.target
    return f"no pattern of {backend.name} matches {what} here"
