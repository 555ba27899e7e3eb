"""Which parts of a fused graph are quantized: matches become groups, and a group is taken whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Node

from fusion_core.configs import (
    GLOBAL,
    DTypeConfig,
    Mode,
    ObservationType,
    QConfig,
    QConfigMapping,
    Skip,
    mode_of,
    quantized_type,
)
from fusion_core.ledger import Ledger, Status
from fusion_core.matcher import CallGraph, Match, NoMatch, nearest_miss, scan
from fusion_core.nn.weighted import weighted_part
from fusion_core.passes.dtypes import choose_dtype_config
from fusion_core.passes.fixed_range import with_fixed_output
from fusion_core.passes.float_outputs import IDLE, settle_float_outputs
from fusion_core.passes.float_sums import float_sums
from fusion_core.passes.indices import quantization_index
from fusion_core.passes.infinite import infinite_values
from fusion_core.passes.record import WeightPlan, member_names, members
from fusion_core.passes.roots import call_plugin, root_node
from fusion_core.passes.shapes import dtype_of
from fusion_core.passes.wishes import CUSTOM, OwnModule, Wishes
from fusion_core.patterns import render
from fusion_core.registry import Backend, PatternEntry

SEPARATE = ObservationType.OUTPUT_USE_DIFFERENT_OBSERVER_AS_INPUT
SHARED = ObservationType.OUTPUT_SHARE_OBSERVER_WITH_INPUT
_NORMS = frozenset({"batch_norm", "layer_norm", "group_norm", "instance_norm", "rms_norm"})
"""Operations whose weight only scales the result; it stays in float in a function as in a module."""


@dataclass(slots=True)
class Group:
    """A match that is quantized.

    Attributes:
        match: The match.
        root: Node that carries the weight, or the first to run.
        qconfig: What it is quantized with.
        mode: Whether its inputs are quantized, and from what.
        observation: How its output is observed.
        inputs: Values from outside that are quantized for it.
        functional_weights: Of those, the ones that a function takes as its weight.
        weight: How the root module's weight is quantized, or None without one.
        gives_float: Whether its kernel gives float, because nobody reads the output quantized.
    """

    match: Match[PatternEntry]
    root: Node
    qconfig: QConfig
    mode: Mode
    observation: ObservationType
    inputs: tuple[Node, ...]
    functional_weights: tuple[Node, ...]
    weight: WeightPlan | None
    gives_float: bool = False


def find_groups(
    model: GraphModule,
    backend: Backend,
    mapping: QConfigMapping,
    ledger: Ledger,
    wishes: Wishes | None = None,
) -> list[Group]:
    """The groups of ``model`` in execution order; the ledger is told why everything else stays in float.

    Args:
        model: A fused graph.
        backend: Whose patterns count.
        mapping: Which qconfig goes where.
        ledger: Told of every decision.
        wishes: What the user asks for besides.
    """
    wishes = wishes or Wishes()
    calls = CallGraph.of(model)
    index = quantization_index(backend)
    matches = [
        match
        for match in scan(calls, index).matches
        if wishes.own_modules.keys().isdisjoint(match.nodes)
    ]
    by_anchor = {match.anchor: match for match in matches}
    inside = {node for match in matches for node in match.nodes}
    quantized: set[Node] = set()
    infinite = infinite_values(model, calls)
    groups: list[Group] = []
    in_float = float_sums(by_anchor, calls, lambda match: _resolve(match, mapping))
    for node in model.graph.nodes:
        if node in wishes.own_modules:
            own = _own_group(node, wishes.own_modules[node], ledger)
            groups.extend(own)
            quantized.update(group.match.anchor for group in own if not group.gives_float)
        elif node in by_anchor:
            decided = in_float.get(node) or _decide(by_anchor[node], mapping, calls, quantized)
            decided = _without_infinity(decided, infinite)
            if isinstance(decided, Skip):
                _refuse(ledger, by_anchor[node].nodes, decided.reason)
                continue
            _accept(ledger, decided)
            if decided.observation in {SEPARATE, SHARED}:
                groups.append(decided)
                quantized.update((node,) if decided.mode is Mode.STATIC else ())
        elif node not in inside and node.op.startswith("call_"):
            _refuse(ledger, (node,), _unmatched(node, calls, backend))
            _note_near_miss(ledger, node, nearest_miss(node, calls, index))
    dropped = settle_float_outputs(groups, wishes.outputs.values())
    for group in dropped:
        _refuse(ledger, group.match.nodes, IDLE)
    gone = {group.match.anchor for group in dropped}
    return [group for group in groups if group.match.anchor not in gone]


def _own_group(node: Node, wanted: OwnModule | Skip, ledger: Ledger) -> list[Group]:
    """The call of a module that the user has types for, as a group; none where it stays as it is."""
    if isinstance(wanted, Skip):
        _refuse(ledger, (node,), wanted.reason)
        return []
    for line in ledger.of(member_names(node)):
        line.plugin, line.pattern = CUSTOM, wanted.kind.__name__
        line.reason, line.mode = None, Mode.STATIC.value
    match: Match[Any] = Match(None, (node,), {}, ())
    group = Group(match, node, wanted.qconfig, Mode.STATIC, SEPARATE, wanted.inputs, (), None)
    group.gives_float = not wanted.gives_tensor
    return [group]


def _decide(
    match: Match[PatternEntry], mapping: QConfigMapping, calls: CallGraph, quantized: set[Node]
) -> Group | Skip:
    config = match.entry.config
    qconfig = _qconfig(match, mapping)
    if isinstance(qconfig, Skip):
        return qconfig
    root, mode = root_node(match), mode_of(qconfig)
    weights = _functional_weights(match, root, calls)
    inputs = _quantized_inputs(match, root, calls, mode)
    module = calls.module(root)
    part = None if module is None else weighted_part(module, config)
    weighted = part is not None or bool(weights)
    observation = config.num_tensor_args_to_observation_type.get(
        len(inputs), config.observation_type
    )
    if observation in {SEPARATE, SHARED}:
        operand = _operand_problem(match, (*inputs, *weights), mode)
        completed = operand or completed_qconfig(config.dtype_configs, qconfig, weighted=weighted)
        if isinstance(completed, str):
            return Skip(completed)
        qconfig = completed
    if observation is SHARED and not any(each in quantized for each in inputs):
        return Skip(
            "none of its inputs is quantized, and quantizing for it alone would gain nothing"
        )
    bias = None if qconfig.bias is None else quantized_type(qconfig.bias).dtype
    plan = None if part is None else WeightPlan(qconfig.weight, *part, bias=bias)
    return Group(match, root, qconfig, mode, observation, inputs, weights, plan)


def _without_infinity(decided: Group | Skip, infinite: frozenset[Node]) -> Group | Skip:
    """``decided``, unless it would round what holds infinity."""
    if isinstance(decided, Skip) or decided.mode is not Mode.STATIC:
        return decided
    held = [each for each in (*decided.inputs, decided.match.anchor) if each in infinite]
    if not held:
        return decided
    return Skip(f"{held[0].name} holds infinity, as a mask does, and no code stands for that")


def _qconfig(match: Match[PatternEntry], mapping: QConfigMapping) -> QConfig | Skip:
    """What ``match`` is to be quantized with, unless the plugin or the user keeps it in float."""
    constraint = match.entry.config.constraint
    if constraint is not None:
        verdict = call_plugin(match, "constraint", constraint, match.node_pattern)
        if isinstance(verdict, Skip):
            return verdict
    qconfig, rule = _resolve(match, mapping)
    return qconfig or Skip(f"the qconfig mapping leaves it in float ({rule})")


def completed_qconfig(
    configs: Sequence[DTypeConfig], qconfig: QConfig, *, weighted: bool
) -> QConfig | str:
    """``qconfig`` as the first combination of dtypes that it satisfies completes it.

    Args:
        configs: Combinations the backend's kernel takes, preferred ones first.
        qconfig: What an operation is to be quantized with.
        weighted: Whether the operation has a weight.

    Returns:
        The qconfig, with the output's fixed parameters where there are any; or why no combination
        is satisfied.
    """
    mode = mode_of(qconfig)
    if mode is not Mode.STATIC and not weighted:
        return f"the qconfig is {mode.value}, and it has no weight"
    reasons: list[tuple[bool, int, str]] = []
    for config in configs:
        completed = with_fixed_output(config, qconfig)
        chosen, problem = choose_dtype_config((config,), completed, weighted=weighted)
        if chosen is not None:
            return completed
        reasons.append((config.is_dynamic != (mode is Mode.DYNAMIC), len(reasons), problem))
    # What stopped a combination of the same mode says more than that another has another mode.
    return min(reasons)[-1] if reasons else "the backend lists no dtypes for it"


def _quantized_inputs(
    match: Match[PatternEntry], root: Node, calls: CallGraph, mode: Mode
) -> tuple[Node, ...]:
    """The values from outside that are quantized: all, the one that the weight meets, or none."""
    if mode is Mode.WEIGHT_ONLY:
        return ()
    inputs = tuple(_tensor_inputs(match, calls))
    if mode is Mode.STATIC:
        return inputs
    # A hidden state or another operand that is added behind the product stays in float.
    first = next((each for each in root.all_input_nodes if each in inputs), None)
    return () if first is None else (first,)


def _resolve(match: Match[PatternEntry], mapping: QConfigMapping) -> tuple[QConfig | None, str]:
    """The root's qconfig; None as soon as a rule of its own leaves any member of the match in float."""
    resolved = [
        mapping.resolve(each.path, each.object_types, scope=each.scope, order=each.order)
        for each in members(reversed(match.nodes))
    ]
    if not resolved:
        return mapping.global_qconfig, GLOBAL
    # That no rule speaks of a member excludes nothing: it goes with the weight.
    excluded = (each for each in resolved if each[0] is None and each[1] != GLOBAL)
    return next(excluded, resolved[0])


def _functional_weights(
    match: Match[PatternEntry], root: Node, calls: CallGraph
) -> tuple[Node, ...]:
    index = match.entry.config.input_type_to_index.get("weight")
    site = calls.site(root)
    if index is None or site is None or root.op != "call_function" or index >= len(site.arguments):
        return ()
    if not _NORMS.isdisjoint(operator.target for operator in site.operators):
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


def _operand_problem(
    match: Match[PatternEntry], operands: tuple[Node, ...], mode: Mode
) -> str | None:
    if mode is Mode.WEIGHT_ONLY:
        return None
    for operand in operands:
        if dtype_of(operand) != torch.float32:
            return f"its operand {operand.name} is {dtype_of(operand)}"
    if mode is Mode.STATIC and dtype_of(match.anchor) != torch.float32:
        given = dtype_of(match.anchor)
        return f"its result is {given}" if given else "its result is not one tensor"
    return None if operands else "it has no tensor operand"


def _accept(ledger: Ledger, group: Group) -> None:
    entry, weight = group.match.entry, None
    if group.weight is not None or group.functional_weights:
        weight = str(quantized_type(group.qconfig.weight).dtype).removeprefix("torch.")
    for line in ledger.of(member_names(group.match.nodes)):
        line.plugin = line.plugin or str(entry.origin)
        line.pattern = line.pattern or render(group.match.reading)
        line.priority = entry.priority if line.priority is None else line.priority
        line.reason, line.mode, line.weight = None, group.mode.value, weight


def _refuse(ledger: Ledger, nodes: tuple[Node, ...], reason: str) -> None:
    for line in ledger.of(member_names(nodes)):
        if line.status is Status.NO_TENSOR:
            continue
        line.plugin = line.pattern = line.priority = line.mode = line.weight = None
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
