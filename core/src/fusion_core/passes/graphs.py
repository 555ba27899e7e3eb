"""From a private module to a GraphModule in the plain form that the other passes expect."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.fx import Graph, GraphModule

from fusion_core.ledger import Ledger, LedgerEntry, Status
from fusion_core.matcher import CallGraph
from fusion_core.passes.arguments import drop_omitted, is_check_of_constant, name_constants
from fusion_core.passes.both_modes import follow_modes, note_training, stop_gradients
from fusion_core.passes.edit import Draft, restore_attributes
from fusion_core.passes.leaves import Leaves
from fusion_core.passes.lift import lift
from fusion_core.passes.record import (
    MEMBERS,
    Member,
    PassRecord,
    Stage,
    UserClass,
    attach,
    members,
)
from fusion_core.passes.shapes import macs_of
from fusion_core.passes.simplify import absorb_padding, simplify
from fusion_core.passes.tracer import joined, trace_graph

KEPT_WHOLE = "kept whole: "
MODEL = "model"
"""Where a model is whose own forward stays Python, in the graph that calls it."""


def traced(  # noqa: PLR0913  what a graph is made of, by keyword
    model: nn.Module,
    leaves: Leaves,
    *,
    omitted: Mapping[str, Any],
    run: Callable[[GraphModule], None],
    constants: Mapping[str, Any] | None = None,
    prefix: str = "",
    source: nn.Module | None = None,
) -> tuple[GraphModule, dict[str, str]]:
    """The graph of ``model``, not yet finished, and for each module in it that is kept whole, why.

    Args:
        model: A private module; it is taken over.
        leaves: What is not inlined.
        omitted: Arguments of the forward that are left out, with their defaults.
        run: Tells the nodes what their values are.
        constants: Arguments that are given, but always with the same value; the graph checks it.
        prefix: Path of ``model`` in the user's model.
        source: What the user calls the model; default ``model``.

    Raises:
        TraceError: The forward of ``model`` itself cannot be traced.
    """
    source, fixed = source or model, dict(constants or {})
    kept, concrete = _within(prefix, model, leaves), {**omitted, **fixed}
    graph, opaque = trace_graph(model, leaves.module_types, concrete, kept=kept, prefix=prefix)
    notes: tuple[str, ...] = ()
    if leaves.qat:

        def again() -> Graph:
            return trace_graph(model, leaves.module_types, concrete, kept=opaque, prefix=prefix)[0]

        notes = note_training(model, graph, again)
    drop_omitted(graph, omitted)
    name_constants(graph, fixed)
    drafted = _drafted(model, graph, source, leaves, is_root=not prefix)
    run(drafted)
    record = _record(drafted)
    reasons = {joined(prefix, path): reason for path, reason in opaque.items()}
    _open_ledger(drafted, record.ledger, {**leaves.unopened, **reasons})
    record.ledger.notes.extend(notes)
    simplify(drafted, record.ledger, qat=leaves.qat)
    lift(drafted, leaves.functions, qat=leaves.qat)
    if leaves.qat:
        follow_modes(drafted)
        stop_gradients(drafted)
    absorb_padding(drafted, record.ledger)
    return drafted, opaque


def calling(
    model: nn.Module,
    leaves: Leaves,
    name: str,
    given: Mapping[str, Any],
    run: Callable[[GraphModule], None],
    place: str = "",
) -> GraphModule:
    """A graph that does nothing but call ``model``, not yet finished.

    Args:
        model: A private module.
        leaves: What is not inlined.
        name: Where ``model`` is in the result.
        given: The arguments that it is called with, by name.
        run: Tells the nodes what their values are.
        place: Path of ``model`` in the user's model.
    """
    parameters = inspect.signature(model.forward).parameters
    leading = dict(zip(parameters, given, strict=False))
    graph, outer = Graph(), nn.Module()
    outer.add_module(name, model)
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for each in given:
        value = graph.placeholder(each)
        is_leading = leading.get(each) == each  # nothing before it is left out
        if is_leading and parameters[each].kind is not inspect.Parameter.KEYWORD_ONLY:
            args.append(value)
        else:
            kwargs[each] = value
    call = graph.call_module(name, tuple(args), kwargs)
    scope, kind = place.rpartition(".")[0], type(model)
    call.meta[MEMBERS] = (Member(call.name, place, scope, (kind,), ((kind, 0),)),)
    graph.output(call)
    drafted = _drafted(outer.eval(), graph, model, leaves, is_root=not place)
    run(drafted)
    _open_ledger(drafted, _record(drafted).ledger, {})
    simplify(drafted, _record(drafted).ledger, qat=leaves.qat)
    return drafted


def _within(prefix: str, model: nn.Module, leaves: Leaves) -> dict[str, str]:
    """Paths in ``model`` of what is not to be traced in one graph with it, and why."""
    kept = {}
    for path, module in model.named_modules():
        name = joined(prefix, path)
        if path and name in leaves.standalone:
            kept[path] = "a model of its own"
        elif path and name in leaves.python and type(module) not in leaves.module_types:
            kept[path] = leaves.python[name]
    return kept


def _drafted(
    model: nn.Module, graph: Graph, source: nn.Module, leaves: Leaves, *, is_root: bool
) -> GraphModule:
    for node in graph.nodes:
        # A postponed annotation is a string here, which some releases of torch cannot pickle.
        node.type = None if isinstance(node.type, str) else node.type
    drafted = Draft(model, graph, type(source).__name__)
    record = PassRecord(Stage.TRACED, Ledger(), module_names=leaves.module_names)
    of_the_whole = {"quantized_inputs": (), "quantized_outputs": ()}
    record.custom = leaves.custom if is_root else leaves.custom.model_copy(update=of_the_whole)
    record.qat = leaves.qat
    record.user_class = UserClass.of(source)
    record.preserved = _plain_attributes(source)
    if is_root:
        wanted = {name: getattr(source, name) for name in leaves.custom.preserved_attributes}
        record.preserved.update(
            (name, copy.deepcopy(value) if isinstance(value, nn.Module) else value)
            for name, value in wanted.items()
            if not inspect.ismethod(value)  # the result has all methods
        )
        record.ledger.notes.extend(leaves.notes)
    attach(drafted, record)
    restore_attributes(drafted)
    drafted.eval()
    return drafted


def _record(model: GraphModule) -> PassRecord:
    record: Any = getattr(model, "fusion_record")  # noqa: B009  attached above
    assert isinstance(record, PassRecord)  # noqa: S101
    return record


def _plain_attributes(model: nn.Module) -> dict[str, Any]:
    """What the user put on the model that is neither a tensor nor a module."""
    bare = GraphModule({}, Graph()) if isinstance(model, GraphModule) else nn.Module()
    internal = set(vars(bare))
    # What the class leaves out of a pickle, such as weak references, is not kept either.
    state = getattr(model, "__getstate__", lambda: None)()
    pickled = state if isinstance(state, dict) else vars(model)
    return {
        name: copy.deepcopy(value)
        for name, value in vars(model).items()
        if name not in internal
        and name in pickled
        and not isinstance(value, (torch.Tensor, nn.Module))
        and not callable(value)
    }


def _open_ledger(model: GraphModule, ledger: Ledger, opaque: Mapping[str, str]) -> None:
    calls = CallGraph.of(model)
    for node in model.graph.nodes:
        site = calls.site(node)
        path = next((member.path for member in members(node)), "")
        if (site is None and not node.op.startswith("call_")) or is_check_of_constant(node):
            continue
        if isinstance(node.target, type):
            continue  # makes a named tuple or another container, and computes nothing
        reason = opaque.get(path) if node.op == "call_module" else None
        ledger.open(
            LedgerEntry(
                node=node.name,
                operation=site.operators[0].short_name if site else str(node.target),
                path=path,
                macs=macs_of(node),
                status=Status.FLOAT if "tensor_meta" in node.meta else Status.NO_TENSOR,
                reason=f"{KEPT_WHOLE}{reason}" if reason else None,
            )
        )
