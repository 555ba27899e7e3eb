"""trace: the user's model as a graph of its own, in the plain form that the other passes expect."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import nn
from torch.fx import Graph, GraphModule, Node

from fusion_core.errors import ModelStateError
from fusion_core.ledger import Ledger, LedgerEntry, Status
from fusion_core.matcher import CallGraph
from fusion_core.passes.edit import finish, restore_attributes
from fusion_core.passes.lift import lift
from fusion_core.passes.private_copy import private_copy
from fusion_core.passes.record import Example, PassRecord, Stage, attach, members, record_of
from fusion_core.passes.shapes import macs_of, propagate
from fusion_core.passes.simplify import absorb_padding, simplify
from fusion_core.passes.tracer import trace_graph
from fusion_core.patterns import Operator, operators_in
from fusion_core.registry import Backend, get_backend

_SIZES = frozenset({"size", "dim", "numel"})

ExampleInputs: TypeAlias = torch.Tensor | Sequence[Any] | Mapping[str, Any]


def trace(
    model: nn.Module, example_inputs: ExampleInputs, *, backend: str | Backend | None = None
) -> GraphModule:
    """The graph of a model, ready to be fused.

    Modules of ``torch.nn``, and of types that a pattern of ``backend`` names, are called; all
    others are inlined. A module whose forward cannot be traced is called whole and stays in float.
    Weighted functional calls on the model's own parameters become modules, dropout and identity go,
    modules called from several places get one copy for each.

    Args:
        model: A module in eval mode, with float32 parameters. It is not changed and shares nothing
            with the result.
        example_inputs: One input: a tensor, a sequence of positional arguments, or a dict of
            keyword arguments. It is run once, to learn shapes and dtypes.
        backend: Name of the backend, or the backend, whose module types shall not be inlined.

    Returns:
        A new GraphModule with a ledger.

    Raises:
        ModelStateError: The model fails on ``example_inputs``.
        TraceError: The model's own forward cannot be traced.
        TrainingModeError: Some module is in training mode.
        UnsupportedModelError: The model as a whole cannot be quantized, for example because it is
            float16.
    """
    private = private_copy(model)
    arguments, omitted = bind_inputs(model, example_inputs)
    traced = _traced(
        model, private, backend, omitted, run=lambda traced: propagate(traced, arguments)
    )
    record_of(traced, Stage.TRACED, "trace").example = Example(arguments)
    return traced


def trace_unseen(
    model: nn.Module, unknown: Any, *, backend: str | Backend | None = None
) -> GraphModule:
    """The graph of a model that is not run, because nobody has an input for it.

    Args:
        model: As for :func:`trace`. Arguments of its forward that have defaults are left out.
        unknown: What every node gets for its ``tensor_meta``.
        backend: As for :func:`trace`.

    Raises:
        TraceError: As :func:`trace` does, and all that it raises but for the inputs.
    """
    parameters = inspect.signature(model.forward).parameters.values()
    omitted = {each.name: each.default for each in parameters if each.default is not each.empty}

    def run(traced: GraphModule) -> None:
        for node in traced.graph.nodes:
            if not _is_no_tensor(node):
                node.meta["tensor_meta"] = unknown

    return _traced(model, private_copy(model), backend, omitted, run=run)


def _is_no_tensor(node: Node) -> bool:
    """Whether ``node`` plainly reads a size, or computes with nothing else."""
    if node.op == "call_method" and node.target in _SIZES:
        return True
    if node.op == "call_function" and node.target is getattr and node.args[1:2] == ("shape",):
        return True
    operands = node.all_input_nodes
    return bool(operands) and all("tensor_meta" not in each.meta for each in operands)


def _traced(
    model: nn.Module,
    private: nn.Module,
    backend: str | Backend | None,
    omitted: dict[str, Any],
    *,
    run: Callable[[GraphModule], None],
) -> GraphModule:
    """The graph of ``private``, a copy of ``model``; ``run`` tells its nodes what their values are."""
    operators = _operators(None if backend is None else get_backend(backend))
    leaf_types = {each.target for each in operators if each.kind == "module"}
    graph, opaque = trace_graph(private, leaf_types, omitted)
    _drop_omitted(graph, omitted)
    for node in graph.nodes:
        # A postponed annotation is a string here, which some releases of torch cannot pickle.
        node.type = None if isinstance(node.type, str) else node.type
    traced = GraphModule(private, graph, type(model).__name__)
    record = PassRecord(
        Stage.TRACED, Ledger(), module_names=tuple(name for name, _ in model.named_modules())
    )
    record.preserved = _plain_attributes(model)
    attach(traced, record)
    restore_attributes(traced)
    traced.eval()
    run(traced)
    _open_ledger(traced, record.ledger, opaque)
    simplify(traced, record.ledger)
    lift(traced, {each.target for each in operators if each.kind == "function"})
    absorb_padding(traced, record.ledger)
    return finish(traced)


def bind_inputs(
    model: nn.Module, example_inputs: ExampleInputs
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """One input as positional arguments of the model's forward, and the defaults of those left out.

    Raises:
        ModelStateError: The inputs do not fit the forward's signature.
    """
    signature = inspect.signature(model.forward)
    try:
        if isinstance(example_inputs, torch.Tensor):
            bound = signature.bind(example_inputs)
        elif isinstance(example_inputs, Mapping):
            bound = signature.bind(**example_inputs)
        else:
            bound = signature.bind(*example_inputs)
    except TypeError as error:
        msg = f"example_inputs do not fit {type(model).__name__}.forward{signature}: {error}"
        raise ModelStateError(msg) from error
    given = bound.arguments
    omitted = {
        name: parameter.default
        for name, parameter in signature.parameters.items()
        if name not in given and parameter.default is not parameter.empty
    }
    arguments: list[Any] = []
    for name, value in given.items():
        kind = signature.parameters[name].kind
        arguments.extend(value if kind is inspect.Parameter.VAR_POSITIONAL else (value,))
    return tuple(arguments), omitted


def _operators(backend: Backend | None) -> Collection[Operator]:
    entries = () if backend is None else backend.entries
    return {each for entry in entries for each in operators_in(entry.pattern)}


def _drop_omitted(graph: Graph, omitted: Mapping[str, Any]) -> None:
    """Erase the placeholders of arguments that were traced as constants, and FX's checks of them."""
    if not omitted:
        return
    for node in list(graph.nodes):
        if node.op == "call_function" and getattr(node.target, "__name__", "") in {
            "_assert_is_none",
            "_assert",
        }:
            operands = list(node.all_input_nodes)
            if not node.users and len(operands) == 1 and _only_checks(operands[0]):
                graph.erase_node(node)
                if not operands[0].users and operands[0].op != "placeholder":
                    graph.erase_node(operands[0])
    for node in list(graph.nodes):
        if (
            node.op == "placeholder"
            and not node.users
            and str(node.target).rsplit("_", 1)[0] in omitted
        ):
            graph.erase_node(node)


def _only_checks(node: Node) -> bool:
    """Whether ``node`` is an omitted argument, or its comparison with the default."""
    return node.op == "placeholder" or all(
        each.op == "placeholder" for each in node.all_input_nodes
    )


def _plain_attributes(model: nn.Module) -> dict[str, Any]:
    """What the user put on the model that is neither a tensor nor a module."""
    internal = set(vars(nn.Module()))
    return {
        name: copy.deepcopy(value)
        for name, value in vars(model).items()
        if name not in internal
        and not isinstance(value, (torch.Tensor, nn.Module))
        and not callable(value)
    }


def _open_ledger(model: GraphModule, ledger: Ledger, opaque: Mapping[str, str]) -> None:
    calls = CallGraph.of(model)
    for node in model.graph.nodes:
        site = calls.site(node)
        if site is None and not node.op.startswith("call_"):
            continue
        reason = opaque.get(str(node.target)) if node.op == "call_module" else None
        ledger.open(
            LedgerEntry(
                node=node.name,
                operation=site.operators[0].short_name if site else str(node.target),
                path=next((member.path for member in members(node)), ""),
                macs=macs_of(node),
                status=Status.FLOAT if "tensor_meta" in node.meta else Status.NO_TENSOR,
                reason=f"kept whole: {reason}" if reason else None,
            )
        )
