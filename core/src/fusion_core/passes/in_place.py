"""In-place operations become ordinary ones, so that nodes depend on each other only where the graph says so."""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.fx import GraphModule, Node

from fusion_core.errors import UnsupportedModelError
from fusion_core.matcher import CallGraph
from fusion_core.passes.written import IN_PLACE
from fusion_core.patterns import OVERLOAD, PACKET

_VIEWS = frozenset(
    {
        *("reshape", "flatten", "permute", "transpose", "squeeze", "unsqueeze", "contiguous"),
        *("identity", "chunk", "split", "unbind", "narrow", "expand", "movedim", "unflatten"),
        "detach",
    }
)


_IN_PLACE_METHODS = {f"__i{name}__": f"__{name}__" for name in ("add", "sub", "mul", "truediv")}


def out_of_place(model: GraphModule) -> None:
    """Replace in-place operations; what reads their operand later reads their result.

    Args:
        model: A traced graph; changed in place.

    Raises:
        UnsupportedModelError: An operation writes to memory that is read later under another name:
            the value that the operand is a view of, or another view of it.
    """
    written = _written_values(model)
    aliases = _Aliases(model, written)
    latest: dict[Node, Node] = {}
    for node in model.graph.nodes:
        for value in node.all_input_nodes:
            now = latest.get(written.get(value, value), value)
            if now is not value:
                node.replace_input_with(value, now)
        if node in written:
            aliases.check(node)
            latest[written[node]] = node
            plain = _plain_spelling(node)
            if plain == node.target and node.op == "call_method":
                _write_to_copy(model, node)
            node.target = plain
            node.meta.pop(IN_PLACE, None)
            node.kwargs = {key: value for key, value in node.kwargs.items() if key != "inplace"}
        aliases.add(node)


def _written_values(model: GraphModule) -> dict[Node, Node]:
    """For each in-place call the value that the first of a row of them writes to."""
    written: dict[Node, Node] = {}
    for node in model.graph.nodes:
        operand = node.args[0] if node.args else None
        if isinstance(operand, Node) and _plain_spelling(node) is not None and _is_write(node):
            written[node] = written.get(operand, operand)
    return written


def _is_write(node: Node) -> bool:
    """Whether an in-place call changes a tensor under all its names; ``n += 1`` is a new number."""
    if not node.meta.get(IN_PLACE):
        return True
    (operand, *_) = node.all_input_nodes
    meta = operand.meta.get("tensor_meta")
    return meta is not None and type(meta) is not tuple


def _write_to_copy(model: GraphModule, node: Node) -> None:
    """Give a call that has no other form a copy to write to, which is its result."""
    operand: Any = node.args[0]
    with model.graph.inserting_before(node):
        copied = model.graph.call_method("clone", (operand,))
    copied.meta = {key: operand.meta[key] for key in ("tensor_meta",) if key in operand.meta}
    node.update_arg(0, copied)


class _Aliases:
    """Which values share memory, as far as the graph has been gone through."""

    def __init__(self, model: GraphModule, written: dict[Node, Node]) -> None:
        self._written = written
        self._calls = CallGraph.of(model)
        self._source = {node: self._viewed(node) for node in model.graph.nodes}
        self._last_reader = {
            written.get(value, value): node
            for node in model.graph.nodes
            for value in node.all_input_nodes
        }
        self._families: defaultdict[Node, list[Node]] = defaultdict(list)
        self._done: set[Node] = set()

    def add(self, node: Node) -> None:
        """Go past ``node``."""
        self._done.add(node)
        if node not in self._written:
            self._families[self._line(node)[-1]].append(node)

    def check(self, write: Node) -> None:
        """Refuse the in-place call ``write`` if its memory is read later under another name."""
        operand = self._written[write]
        line = self._line(operand)
        for other in self._families[line[-1]]:
            late = self._last_reader.get(other)
            if other is operand or late is None or late in self._done or late is write:
                continue
            if not _apart(line, self._line(other)):
                msg = (
                    f"{write.name} changes {operand.name} in place, and {late.name} afterwards reads "
                    f"{other.name}, which shares its memory; write the operation out of place"
                )
                raise UnsupportedModelError(msg)

    def _line(self, node: Node) -> list[Node]:
        """``node``, what it is a view of, and so on to the value that owns the memory."""
        line = [self._written.get(node, node)]
        while (source := self._source[line[-1]]) is not None:
            line.append(self._written.get(source, source))
        return line

    def _viewed(self, node: Node) -> Node | None:
        """The value that ``node`` is a view of, if it is one."""
        site = self._calls.site(node)
        if site is None or not site.arguments or not isinstance(site.arguments[0], Node):
            return None
        is_view = node.target is operator.getitem or any(
            each.kind == "operation" and each.target in _VIEWS for each in site.operators
        )
        return site.arguments[0] if is_view else None


def _apart(line: list[Node], other: list[Node]) -> bool:
    """Whether two views of one value part at different items of it."""
    pairs = zip(reversed(line), reversed(other), strict=False)
    mine, theirs = next((pair for pair in pairs if pair[0] is not pair[1]), (None, None))
    if mine is None or theirs is None or not mine.target is theirs.target is operator.getitem:
        return False
    return _disjoint(mine.args[1], theirs.args[1])


def _disjoint(index: Any, other: Any) -> bool:
    if isinstance(index, tuple) and isinstance(other, tuple):
        return any(map(_disjoint, index, other))
    spans = [span for each in (index, other) for span in _span(each)]
    return len(spans) == 2 and (spans[0][1] <= spans[1][0] or spans[1][1] <= spans[0][0])  # noqa: PLR2004


def _span(index: Any) -> Iterator[tuple[float, float]]:
    """First place and the one behind the last, where the index says so without the length."""
    if type(index) is int and index >= 0:
        yield index, index + 1
    elif isinstance(index, slice) and index.step in {None, 1}:
        low, high = index.start or 0, float("inf") if index.stop is None else index.stop
        if all(isinstance(each, (int, float)) and each >= 0 for each in (low, high)):
            yield low, high


def _plain_spelling(node: Node) -> str | Callable[..., Any] | None:
    """The ordinary form of an in-place call, or None where the call is not in place."""
    if node.meta.get(IN_PLACE):
        return node.target
    if node.op == "call_method":
        return _plain_method(str(node.target))
    if node.op != "call_function" or isinstance(node.target, str):
        return None
    if node.kwargs.get("inplace") is True:
        return node.target
    if isinstance(node.target, (OVERLOAD, PACKET)):
        return _plain_native(node.target)
    return _plain_function(node.target)


def _plain_method(name: str) -> str | None:
    """The same name for a method that has no other form, such as ``copy_``."""
    if name in _IN_PLACE_METHODS:
        return _IN_PLACE_METHODS[name]
    if name == "requires_grad_" or not name.endswith("_") or name.endswith("__"):
        return None
    return name[:-1] if hasattr(torch.Tensor, name[:-1]) else name


def _plain_function(target: Callable[..., Any]) -> Callable[..., Any] | None:
    name = getattr(target, "__name__", "")
    if getattr(operator, name, None) is target:
        plain = getattr(operator, name[1:], None) if name[:1] == "i" else None
        return plain if name in {"iadd", "isub", "imul", "itruediv", "imatmul"} else None
    if name.endswith("_") and not name.endswith("__"):
        for room in (torch.nn.functional, torch):
            found = getattr(room, name[:-1], None)
            if found is not None and getattr(room, name, None) is target:
                return found  # type: ignore[no-any-return]  # a function of torch, by its name
    return None


def _plain_native(target: Any) -> Callable[..., Any] | None:
    """``aten.relu.default`` for ``aten.relu_.default``; the packet where overloads differ in name."""
    packet = getattr(target, "overloadpacket", target)
    namespace, _, name = str(packet).partition(".")
    plain = getattr(getattr(torch.ops, namespace), name[:-1], None) if name.endswith("_") else None
    if plain is None or target is packet:
        return plain
    _, _, overload = str(target).rpartition(".")
    found: Callable[..., Any] = getattr(plain, overload) if overload in plain.overloads() else plain
    return found
