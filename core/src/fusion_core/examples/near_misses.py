"""``near_misses_of``: models that differ in one thing from what a pattern matches."""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from fusion_core.errors import ModelStateError, PredicateError
from fusion_core.examples.of_patterns import (
    PatternExample,
    count_matches,
    examples_of,
    with_other_settings,
)
from fusion_core.passes.shapes import propagate
from fusion_core.patterns import Pattern

_READ_BY_ALL = 3
"""Examples of a pattern that near misses are made from."""


@dataclass(frozen=True, eq=False)
class NearMiss:
    """A model in which a pattern is not found, though little is missing.

    Attributes:
        model: The model, in eval mode, float32; an FX graph module.
        inputs: What it is called with.
        text: What is different.
        pattern: The pattern.
    """

    model: GraphModule
    inputs: tuple[Tensor, ...]
    text: str
    pattern: Pattern


def near_misses_of(pattern: Pattern) -> tuple[NearMiss, ...]:
    """Models that differ in one thing from an example of ``pattern`` and are not matched.

    An inner value that is read twice, operands in another order, an argument that the pattern does not
    name or a number that it does not mean, another value in one of the places of a capture, another
    operation in the place of one, a module with a hook, settings that a condition refuses. What the
    pattern leaves open is no near miss.

    Args:
        pattern: The canonical pattern.

    Raises:
        NoExampleError: No model can be made for the pattern at all.
    """
    found: dict[str, NearMiss] = {}
    for example in examples_of(pattern, limit=_READ_BY_ALL):
        for text, model in _changed(example):
            if text not in found and _is_missed(pattern, model, example.inputs):
                found[text] = NearMiss(model, example.inputs, text, pattern)
    for text, model, inputs in with_other_settings(pattern):
        if text not in found and _is_missed(pattern, model, inputs):
            found[text] = NearMiss(model, inputs, text, pattern)
    return tuple(found.values())


def _is_missed(pattern: Pattern, model: GraphModule, inputs: tuple[Tensor, ...]) -> bool:
    try:
        propagate(model, tuple(each.clone() for each in inputs))
        return count_matches(pattern, model) == 0
    except (ModelStateError, PredicateError):  # a change that does not even run is no model
        return False


def _changed(example: PatternExample) -> Iterator[tuple[str, GraphModule]]:
    """Copies of an example with one thing changed in each."""
    calls = [node.name for node in example.model.graph.nodes if _is_call(node)]
    for name in calls:
        for change in _CHANGES:
            model = copy.deepcopy(example.model)
            node = next(each for each in model.graph.nodes if each.name == name)
            text = change(model, node)
            if text is not None:
                model.graph.lint()
                model.recompile()
                yield text, model.eval()


def _is_call(node: Node) -> bool:
    return node.op in {"call_module", "call_function", "call_method"}


def _read_twice(model: GraphModule, node: Node) -> str | None:
    """An inner value is an output of the model as well."""
    (output,) = model.graph.find_nodes(op="output")
    if output.args[0] is node:
        return None
    output.args = ((output.args[0], node),)
    return f"the value of {_called(model, node)} is read elsewhere, too"


def _swapped(model: GraphModule, node: Node) -> str | None:
    """Two operands are exchanged."""
    arguments = node.args
    if len(arguments) < 2 or not all(isinstance(each, Node) for each in arguments[:2]):  # noqa: PLR2004  operands
        return None
    if arguments[0] is arguments[1]:
        return None
    node.args = (arguments[1], arguments[0], *arguments[2:])
    return f"the operands of {_called(model, node)} are exchanged"


_WITH_FACTOR: Mapping[Any, Callable[..., Any]] = {
    operator.add: torch.add,
    operator.sub: torch.sub,
}


def _scaled(model: GraphModule, node: Node) -> str | None:
    """A sum has a factor, which no pattern names by accident."""
    node.target = _WITH_FACTOR.get(node.target, node.target)
    if node.target not in {torch.add, torch.sub, "add", "sub"} or node.kwargs:
        return None
    node.kwargs = {"alpha": 2}
    return f"{_called(model, node)} has alpha=2"


def _other_number(model: GraphModule, node: Node) -> str | None:
    """The first number among the arguments is another."""
    for index, value in enumerate(node.args):
        if type(value) in {int, float}:
            node.update_arg(index, value + 1)  # type: ignore[operator]  # it is a number
            return f"{_called(model, node)} has {node.args[index]} for {value}"
    for name, value in node.kwargs.items():
        if type(value) in {int, float}:
            node.update_kwarg(name, value + 1)  # type: ignore[operator]  # it is a number
            return f"{_called(model, node)} has {name}={node.kwargs[name]}"
    return None


def _other_value(model: GraphModule, node: Node) -> str | None:
    """Of a value that stands in several places, one is another value."""
    for index, value in enumerate(node.args):
        if isinstance(value, Node) and len(value.users) > 1:
            with model.graph.inserting_before(node):
                other = model.graph.call_function(torch.neg, (value,))
            node.update_arg(index, other)
            return f"{_called(model, node)} reads another value than the others"
    return None


def _hooked(model: GraphModule, node: Node) -> str | None:
    """A module has a hook, which nothing that replaces it would run."""
    if node.op != "call_module":
        return None
    model.get_submodule(str(node.target)).register_forward_hook(_unchanged)
    return f"{_called(model, node)} has a forward hook"


def _unchanged(_module: object, _inputs: object, _output: object) -> None:
    """A hook that leaves everything as it is."""


_OTHERS: Mapping[Callable[..., Any] | str, Callable[..., Any] | str] = {
    operator.add: operator.sub,
    torch.add: torch.sub,
    "add": "sub",
    operator.mul: torch.maximum,
    torch.mul: torch.maximum,
    "mul": "maximum",
}


def _other_operation(model: GraphModule, node: Node) -> str | None:
    """Another operation of as many operands stands in a call's place."""
    called = _called(model, node)
    if node.target in _OTHERS:
        node.target = _OTHERS[node.target]
    elif node.all_input_nodes:
        node.args, node.kwargs = (node.all_input_nodes[0],), {}
        node.op, node.target = "call_function", torch.cos
    else:
        return None
    return f"another operation stands in the place of {called}"


def _called(model: GraphModule, node: Node) -> str:
    if node.op == "call_module":
        return type(model.get_submodule(str(node.target))).__name__
    return str(getattr(node.target, "__name__", node.target))


_CHANGES: tuple[Callable[[GraphModule, Node], str | None], ...] = (
    _read_twice,
    _swapped,
    _scaled,
    _other_number,
    _other_value,
    _hooked,
    _other_operation,
)
