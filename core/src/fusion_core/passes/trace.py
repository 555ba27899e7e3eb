"""trace: the user's model as a graph of its own, in the plain form that the other passes expect."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import Any

from torch import nn
from torch.fx import GraphModule, Node

from fusion_core.configs import CustomConfig
from fusion_core.errors import TraceError
from fusion_core.passes.arguments import ExampleInputs, bind_inputs, left_out, named_parameters
from fusion_core.passes.edit import finish
from fusion_core.passes.graphs import MODEL, calling, traced
from fusion_core.passes.islands import add_parts
from fusion_core.passes.leaves import Leaves
from fusion_core.passes.private_copy import private_copy
from fusion_core.passes.record import Example, Stage, record_of
from fusion_core.passes.shapes import propagate
from fusion_core.passes.tracer import obstacle
from fusion_core.registry import Backend, get_backend

_SIZES = frozenset({"size", "dim", "numel"})


def trace(
    model: nn.Module,
    example_inputs: ExampleInputs,
    *,
    backend: str | Backend | None = None,
    custom: CustomConfig | None = None,
    qat: bool = False,
    inplace: bool = False,
) -> GraphModule:
    """The graph of a model, ready to be fused.

    Modules of ``torch.nn``, and of types that a pattern of ``backend`` names, are called; all
    others are inlined. A forward that cannot be traced stays Python, and the modules in it become
    graphs of their own. Weighted functions of the model's own parameters become modules, dropout and
    identity go, modules called from several places get one copy for each.

    Args:
        model: A module in eval mode, with float32 parameters. It is not changed and shares nothing
            with the result.
        example_inputs: One input: a tensor, a sequence of positional arguments, or a dict of
            keyword arguments. It is run to learn shapes and dtypes.
        backend: Name of the backend, or the backend, whose module types shall not be inlined.
        custom: Which modules, inputs, outputs and attributes are special. No later pass need be
            told again.
        qat: The model is to be trained: it may be in training mode, and so is the result then;
            dropout and batch norm stay and follow ``train()`` and ``eval()``. What is only there in
            training, such as an auxiliary head, is not in the graph.
        inplace: With ``qat``: share parameters and buffers with ``model``, for its optimizer's sake.

    Returns:
        A new GraphModule with a ledger.

    Raises:
        CustomConfigError: ``custom`` names what the model does not have.
        ModelStateError: The model fails on ``example_inputs``.
        TraceError: Neither the model's own forward can be traced nor anything in it, or a
            standalone module cannot.
        TrainingModeError: Some module is in training mode.
        UnsupportedModelError: The model as a whole cannot be quantized.
    """
    private, leaves = _prepared(model, backend, custom, qat=qat, inplace=inplace and qat)
    arguments, omitted = bind_inputs(model, example_inputs)

    def run(drafted: GraphModule) -> None:
        propagate(drafted, arguments)

    try:
        graph, opaque = traced(private, leaves, omitted=omitted, run=run, source=model)
    except TraceError as error:
        names = [each for each in named_parameters(model) if each not in omitted]
        if error.module or len(names) != len(arguments):
            raise
        graph = calling(private, leaves, MODEL, dict(zip(names, arguments, strict=True)), run)
        reason = obstacle(error.location, error.problem, error.__cause__ or error)
        if not add_parts(graph, arguments, leaves, {"": reason}):
            raise
    else:
        add_parts(graph, arguments, leaves, opaque)
    record_of(graph, Stage.TRACED, "trace").example = Example(arguments)
    return finish(graph).train(qat and model.training)


def trace_unseen(
    model: nn.Module, unknown: Any, *, backend: str | Backend | None = None
) -> GraphModule:
    """The graph of a model that is not run, because nobody has an input for it.

    Modules whose forward cannot be traced are kept whole.

    Args:
        model: As for :func:`trace`. Arguments of its forward that have defaults are left out.
        unknown: What every node gets for its ``tensor_meta``.
        backend: As for :func:`trace`.

    Raises:
        TraceError: As :func:`trace` does, and all that it raises but for the inputs.
    """

    def run(drafted: GraphModule) -> None:
        for node in drafted.graph.nodes:
            if not _is_no_tensor(node):
                node.meta["tensor_meta"] = unknown

    private, leaves = _prepared(model, backend, None)
    omitted = left_out(inspect.signature(model.forward), {})
    return finish(traced(private, leaves, omitted=omitted, run=run, source=model)[0])


def _prepared(
    model: nn.Module,
    backend: str | Backend | None,
    custom: CustomConfig | None,
    *,
    qat: bool = False,
    inplace: bool = False,
) -> tuple[nn.Module, Leaves]:
    """A private copy of the model, and what is not inlined in it."""
    chosen = None if backend is None else get_backend(backend)
    private = private_copy(model, qat=qat, inplace=inplace).train(qat)
    opened, leaves = Leaves.of(model, private, chosen, custom or CustomConfig())
    return opened.eval(), replace(leaves, qat=qat)


def _is_no_tensor(node: Node) -> bool:
    """Whether ``node`` plainly reads a size, or computes with nothing else."""
    if node.op == "call_method" and node.target in _SIZES:
        return True
    if node.op == "call_function" and node.target is getattr and node.args[1:2] == ("shape",):
        return True
    operands = node.all_input_nodes
    return bool(operands) and all("tensor_meta" not in each.meta for each in operands)
