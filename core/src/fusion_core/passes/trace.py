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
from fusion_core.passes.own_modes import hold_modes, own_modes
from fusion_core.passes.private_copy import computed_weights, private_copy
from fusion_core.passes.record import Example, Stage, record_of
from fusion_core.passes.shapes import propagate
from fusion_core.passes.sizes import reads_size
from fusion_core.passes.tracer import obstacle
from fusion_core.registry import Backend, get_backend


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
        qat: The model is to be trained: it and its modules may be in training mode, and the result and
            what it calls are in theirs then. Dropout and batch norm stay and follow ``train()`` and
            ``eval()``, and so do functions that are given other constants in training. What is only
            there in training, such as an auxiliary head, is not in the graph; the ledger says so.
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
    finished = finish(_traced(model, private, leaves, example_inputs))
    if leaves.modes is not None:
        own_modes(finished, leaves.modes)
    return finished


def _traced(
    model: nn.Module, private: nn.Module, leaves: Leaves, example_inputs: ExampleInputs
) -> GraphModule:
    """The graph of ``private``, not yet finished."""
    arguments, omitted = bind_inputs(model, example_inputs)

    def run(drafted: GraphModule) -> None:
        propagate(drafted, arguments)

    names = [each for each in named_parameters(model) if each not in omitted]
    constants = {name: None for name, given in zip(names, arguments, strict=False) if given is None}
    try:
        graph, opaque = traced(
            private, leaves, omitted=omitted, constants=constants, run=run, source=model
        )
    except TraceError as error:
        if error.module or len(names) != len(arguments):
            raise
        graph = calling(private, leaves, MODEL, dict(zip(names, arguments, strict=True)), run)
        reason = obstacle(error.location, error.problem, error.__cause__ or error)
        if not add_parts(graph, arguments, leaves, {"": reason}):
            raise
    else:
        add_parts(graph, arguments, leaves, opaque)
    record_of(graph, Stage.TRACED, "trace").example = Example(arguments)
    return graph


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
    private = private_copy(model, qat=qat, inplace=inplace)
    private.train(qat)
    held = hold_modes(private) if qat else ()
    opened, leaves = Leaves.of(model, private, chosen, custom or CustomConfig())
    if not qat:
        return opened.eval(), leaves
    folded = tuple(
        f"{name} was computed by {by}, which is gone; its value is trained itself"
        for name, by in computed_weights(model).items()
    )
    modes = {path: module.training for path, module in model.named_modules(remove_duplicate=False)}
    return opened.eval(), replace(leaves, modes=modes, notes=leaves.notes + folded + held)


def _is_no_tensor(node: Node) -> bool:
    """Whether ``node`` plainly reads a size, or computes with nothing else."""
    if reads_size(node):
        return True
    operands = node.all_input_nodes
    return bool(operands) and all("tensor_meta" not in each.meta for each in operands)
