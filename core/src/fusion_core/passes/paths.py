"""Inputs and outputs of a graph by path, as Python would write the way to them."""

from __future__ import annotations

import dataclasses
import operator
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from torch.fx import GraphModule, Node

from fusion_core.errors import CustomConfigError

Value = TypeVar("Value")


def input_values(model: GraphModule) -> dict[str, tuple[Node, ...]]:
    """The nodes that read each input: ``x``, ``x['left']``, ``x[0]``, ``x.left``."""
    found: dict[str, tuple[Node, ...]] = {}
    for node in model.graph.nodes:
        if node.op == "placeholder":
            for path, value in _reads(node, str(node.target)):
                found[path] = (*found.get(path, ()), value)
    return found


def output_values(model: GraphModule) -> dict[str, Any]:
    """What the graph gives at each path: ``""`` for a single value, ``[0]``, ``['y']``, ``.left``."""
    (result,) = next(node for node in reversed(model.graph.nodes) if node.op == "output").args
    return dict(_given(result, ""))


def resolved(
    field: str, wanted: tuple[str, ...], known: Mapping[str, Value], model: GraphModule
) -> dict[str, Value]:
    """What is known at each path that is wanted; ``0`` stands for the first input or output.

    Raises:
        CustomConfigError: There is nothing at some path.
    """
    names = [str(node.target) for node in model.graph.nodes if node.op == "placeholder"]
    found = {}
    for path in wanted:
        head = path[: len(path) - len(path.lstrip("0123456789"))]
        rest = path[len(head) :]
        candidates = [path]
        if head and field == "quantized_inputs" and int(head) < len(names):
            candidates.append(names[int(head)] + rest)
        elif head and field == "quantized_outputs":
            candidates.append(f"[{int(head)}]{rest}")
            candidates += [rest] if int(head) == 0 else []
        match = next((each for each in candidates if each in known), None)
        if match is None:
            listed = ", ".join(map(repr, known))
            problem = f"the model has nothing there; it has {listed}"
            raise CustomConfigError(field, path, problem, known)
        found[match] = known[match]
    return found


def _reads(node: Node, path: str) -> Iterator[tuple[str, Node]]:
    yield path, node
    for user in node.users:
        if user.op != "call_function" or user.args[:1] != (node,) or len(user.args) != 2:  # noqa: PLR2004  value and key
            continue
        key = user.args[1]
        if user.target is operator.getitem and isinstance(key, (int, str)):
            yield from _reads(user, f"{path}[{key!r}]")
        elif user.target is getattr:
            yield from _reads(user, f"{path}.{key}")


def _given(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    for step, inner in _items(value):
        yield from _given(inner, path + step)
    if not list(_items(value)):
        yield path, value


def _items(value: Any) -> Iterator[tuple[str, Any]]:
    """What a container holds, with the way to it; nothing for what is none."""
    if isinstance(value, Mapping):
        yield from ((f"[{key!r}]", each) for key, each in value.items())
    elif isinstance(value, (tuple, list)):
        yield from ((f"[{index}]", each) for index, each in enumerate(value))
    elif isinstance(value, Node) and isinstance(value.target, type):
        yield from _fields(value, value.target)


def _fields(node: Node, kind: Any) -> Iterator[tuple[str, Any]]:
    """What is in a named tuple, dataclass or ordered dictionary that ``node`` makes."""
    if kind is OrderedDict:
        pairs: Any = node.args[0]
        yield from ((f"[{key!r}]", each) for key, each in pairs)
    elif hasattr(kind, "_fields"):
        yield from ((f".{name}", each) for name, each in zip(kind._fields, node.args, strict=False))
    if hasattr(kind, "_fields") or dataclasses.is_dataclass(kind):
        yield from ((f".{name}", each) for name, each in node.kwargs.items())
