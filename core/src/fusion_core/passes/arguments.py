"""What a forward is called with: inputs bound to its parameters, and arguments that are constants of the graph."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import nn
from torch.fx import Graph, Node, has_side_effect
from torch.overrides import handle_torch_function, has_torch_function

from fusion_core.errors import ModelStateError

ExampleInputs: TypeAlias = torch.Tensor | Sequence[Any] | Mapping[str, Any]

PACKED = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
"""Kinds of parameters that take any number of arguments."""

_CHECKS = frozenset({"_assert_is_none", "_assert", "require_none"})


@has_side_effect
def require_none(value: object, message: str) -> None:
    """See that an argument is None, as it was when the model was traced.

    Raises:
        ValueError: It is not.
    """
    if has_torch_function((value,)):
        handle_torch_function(require_none, (value,), value, message)
    elif value is not None:
        raise ValueError(message)


def bind_inputs(
    model: nn.Module, example_inputs: ExampleInputs
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """One input as positional arguments of the model's forward, and the defaults of those left out.

    Raises:
        ModelStateError: The inputs do not fit the forward's signature, or it packs some by ``**``.
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
    arguments: list[Any] = []
    for name, value in given.items():
        kind = signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_KEYWORD:
            msg = (
                f"{type(model).__name__}.forward takes {', '.join(value)} by **{name}, and the inputs of a "
                "graph have names; give forward a parameter for each"
            )
            raise ModelStateError(msg)
        arguments.extend(value if kind is inspect.Parameter.VAR_POSITIONAL else (value,))
    return tuple(arguments), left_out(signature, given)


def named_parameters(module: nn.Module) -> tuple[str, ...]:
    """Names of the parameters of a forward, without what packs any number of arguments."""
    parameters = inspect.signature(module.forward).parameters.values()
    return tuple(each.name for each in parameters if each.kind not in PACKED)


def left_out(signature: inspect.Signature, given: Mapping[str, Any]) -> dict[str, Any]:
    """The defaults of the parameters that are not among ``given``."""
    return {
        name: parameter.default
        for name, parameter in signature.parameters.items()
        if name not in given and parameter.default is not parameter.empty
    }


def drop_omitted(graph: Graph, omitted: Mapping[str, Any]) -> None:
    """Erase the placeholders of arguments that were traced as constants, and FX's checks of them."""
    if not omitted:
        return
    for node in list(graph.nodes):
        if _is_check(node):
            operands = list(node.all_input_nodes)
            if not node.users and len(operands) == 1 and _only_checks(operands[0], omitted):
                graph.erase_node(node)
                if not operands[0].users and operands[0].op != "placeholder":
                    graph.erase_node(operands[0])
    for node in list(graph.nodes):
        if _is_one_of(node, omitted) and not node.users:
            graph.erase_node(node)


def name_constants(graph: Graph, constants: Mapping[str, Any]) -> None:
    """Give the placeholders of constant arguments their names back; FX's checks of them stay.

    FX numbers the placeholder of an argument that it was given as a constant. Its check for None is
    replaced: where one is unpickled, FX cannot trace anything any more.
    """
    for node in graph.nodes:
        if getattr(node.target, "__name__", "") == "_assert_is_none":
            node.target = require_none
            node.meta.pop("is_wrapped", None)
        if _is_one_of(node, constants):
            node.target = str(node.target).rpartition("_")[0]


def is_check_of_constant(node: Node) -> bool:
    """Whether ``node`` belongs to FX's checks that an argument has the value it was traced with."""
    return _is_check(node) or (
        bool(node.users) and node.op == "call_function" and all(map(_is_check, node.users))
    )


def _is_check(node: Node) -> bool:
    return node.op == "call_function" and getattr(node.target, "__name__", "") in _CHECKS


def _is_one_of(node: Node, names: Mapping[str, Any]) -> bool:
    return node.op == "placeholder" and str(node.target).rpartition("_")[0] in names


def _only_checks(node: Node, omitted: Mapping[str, Any]) -> bool:
    """Whether ``node`` is an omitted argument, or its comparison with the default."""
    if node.op == "placeholder":
        return _is_one_of(node, omitted)
    return all(_is_one_of(each, omitted) for each in node.all_input_nodes)
