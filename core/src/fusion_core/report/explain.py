"""``explain``: for each operation of a model, which patterns were tried on it and what stopped them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from torch import nn
from torch.fx import GraphModule, Node

from fusion_core.errors import UnknownNodeError
from fusion_core.ledger import LedgerEntry, Status
from fusion_core.passes import ExampleInputs, PassRecord, Stage, trace
from fusion_core.passes.mappings import mapping_for
from fusion_core.passes.record import RECORD, member_names
from fusion_core.passes.trace import trace_unseen
from fusion_core.passes.unseen import UnknownTensor, guarded_backend
from fusion_core.patterns import Op, anchors_of, render
from fusion_core.qops import quantize_per_tensor
from fusion_core.registry import Backend, get_backend
from fusion_core.report.candidates import Sweep
from fusion_core.report.explained import NodeExplanation, StageExplanation
from fusion_core.report.explanation import Explanation
from fusion_core.report.sweeps import Swept, swept

_QUANTIZED = (Status.INT8, Status.FLOAT16, Status.REFERENCE)
_LATER = "it is not lowered yet"
_UNSEEN = (
    "Traced without example_inputs: shapes are not known, and every value passes for a float "
    "tensor. Conditions that ask for a shape count as refusals; pass example_inputs to learn more."
)


def explain(
    model: nn.Module,
    backend: str | Backend,
    node: str | Node | None = None,
    *,
    example_inputs: ExampleInputs | None = None,
    qconfig: Any = None,
    mode: str | None = None,
) -> Explanation:
    """Why each operation of a model is quantized with a backend, or why it is not.

    The passes that are still to come are run on a copy, and each pattern that ends in the operator
    of a node is tried there.

    Args:
        model: A module, which is traced; or what one of the passes returned. It is not changed.
        backend: Name of a backend, or the backend.
        node: What to explain alone, with all candidates: the name of a node, the path of a module,
            or a node of the graph.
        example_inputs: One input to trace ``model`` with, if it is not traced yet. Without it the
            model is not run, and what depends on shapes and types remains unknown.
        qconfig: What everything, or what each operation is to be quantized with: a qconfig or a
            mapping, ours or PyTorch's, or the name of a preset; default the backend's own mapping.
        mode: As :func:`fusion_core.quantize` has it.

    Returns:
        For each operation the candidates with the reason each failed, the operand that stopped it,
        and what would make it match.

    Raises:
        QConfigError: What is said of qconfigs contradicts itself, or the backend has nothing for it.
        UnknownNodeError: ``node`` is neither a node of the model nor a module called in it.
        FusionError: Whatever tracing, fusing and preparing the model raises.
    """
    chosen = get_backend(backend)
    record = getattr(model, RECORD, None)
    unknown: UnknownTensor | None = None
    if isinstance(record, PassRecord) and isinstance(model, GraphModule):
        subject, stage = model, record.stage
    elif example_inputs is not None:
        subject, stage = trace(model, example_inputs, backend=chosen), Stage.TRACED
    else:
        unknown = UnknownTensor()
        subject, stage = trace_unseen(model, unknown, backend=chosen), Stage.TRACED
        chosen = guarded_backend(chosen, unknown)
    named = {"preset" if isinstance(qconfig, str) else "given": qconfig}
    found = swept(subject, chosen, mapping_for(chosen, mode=mode, **named))
    explained = tuple(_explain(entry, found) for entry in found.ledger)
    notes = (_UNSEEN,) if unknown is not None else ()
    if not found.sweeps:
        notes = (f"The model is {stage.name.lower()}: no pattern is to be tried at this stage.",)
    whole = Explanation(chosen.name, chosen.origins, stage.name.lower(), notes, explained)
    if node is None:
        return whole
    return replace(whole, nodes=tuple(_asked(node, explained, found)), is_expanded=True)


def _asked(
    node: str | Node, nodes: tuple[NodeExplanation, ...], found: Swept
) -> list[NodeExplanation]:
    """The operations that ``node`` names: itself, what it was made from, or what is in that module."""
    name = node if isinstance(node, str) else node.name
    names = {name} if isinstance(node, str) else {name, *member_names(node)}
    chosen = [each for each in nodes if each.node in names]
    chosen = chosen or [each for each in nodes if each.node in found.aliases.get(name, ())]
    chosen = chosen or [each for each in nodes if f"{each.path}.".startswith(f"{name}.")]
    if not chosen:
        raise UnknownNodeError(name, (known for each in nodes for known in (each.node, each.path)))
    return chosen


def _explain(entry: LedgerEntry, found: Swept) -> NodeExplanation:
    stages = tuple(_stages(entry.node, found))
    rule, *overridden = found.rules.get(entry.node, ("",))
    is_taken = entry.plugin is not None and entry.reason is None
    is_observed = found.is_observed(entry.node)
    return NodeExplanation(
        *(entry.node, entry.operation, entry.path),
        outcome=_outcome(entry, stages, is_taken=is_taken, is_observed=is_observed),
        is_quantized=entry.status in _QUANTIZED
        or (entry.status is Status.FLOAT and is_taken and is_observed),
        has_no_use=entry.status in {Status.REMOVED, Status.NO_TENSOR},
        rule=rule,
        stages=stages,
        overridden=tuple(overridden),
    )


def _stages(name: str, found: Swept) -> Iterator[StageExplanation]:
    for sweep, nodes in zip(found.sweeps, found.nodes, strict=True):
        node = nodes.get(name)
        if node is not None:
            yield _stage(sweep, _end(sweep, node) if sweep.purpose == "lowering" else node)


def _end(sweep: Sweep, node: Node) -> Node:
    """Where patterns around ``node`` end: in a converted graph that is the quantize behind it."""
    ends = [node]
    while ends:
        found = next((end for end in ends if sweep.candidates(end)), None)
        if found is not None:
            return found
        ends = [user for end in ends if end.target is not quantize_per_tensor for user in end.users]
    return node


def _stage(sweep: Sweep, node: Node) -> StageExplanation:
    match = sweep.taken.get(node)
    match = None if match is None or sweep.verdict(match) is not None else match
    candidates = sweep.candidates(node)
    elsewhere = () if candidates else tuple(sweep.elsewhere(node))
    return StageExplanation(
        sweep.purpose,
        node.name,
        None if match is None else render(match.entry.pattern),
        () if match is None else member_names(reversed(match.nodes)),
        candidates,
        tuple(sweep.stopped.get(node, ())),
        elsewhere,
        () if candidates or elsewhere else tuple(_near(sweep, node)),
    )


def _near(sweep: Sweep, node: Node) -> Iterable[str]:
    """Operators that patterns end in and whose names are like that of the operator of ``node``."""
    site = sweep.calls.site(node)
    anchors = {
        str(each.operator)
        for pattern, _ in sweep.index.entries
        for each in anchors_of(pattern)
        if isinstance(each, Op)
    }
    short = {name.rpartition(".")[2].lower(): name for name in sorted(anchors)}
    asked = "" if site is None else str(site.operators[-1]).rpartition(".")[2].lower()
    return [short[each] for each in difflib.get_close_matches(asked, short, n=3, cutoff=0.5)]


def _outcome(
    entry: LedgerEntry,
    stages: tuple[StageExplanation, ...],
    *,
    is_taken: bool,
    is_observed: bool,
) -> str:
    others = {
        each: None
        for stage in stages
        if stage.pattern
        for each in stage.members
        if each != entry.node
    }
    together = f" together with {', '.join(others)}" if others else ""
    said = {
        Status.REMOVED: f"removed: {entry.reason}",
        Status.NO_TENSOR: "gives no tensor, so there is nothing to quantize",
        Status.INT8: f"runs in the kernel {entry.kernel}{together}",
        Status.FLOAT16: f"runs in the kernel {entry.kernel}{together}, with a weight of float16",
        Status.REFERENCE: f"quantized{together}, but runs in no kernel: {entry.reason or _LATER}",
    }
    if entry.status in said:
        return said[entry.status]
    if is_taken and not is_observed:
        return f"left as it is: the pattern {entry.pattern} asks for nothing to be quantized"
    if is_taken:
        return f"quantized{together}, by the pattern {entry.pattern}"
    return f"stays in float: {entry.reason or 'nothing has been decided yet'}"
