"""The few edits that all passes make on a GraphModule."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg
from typing_extensions import Self

from fusion_core.passes.record import RECORD, PassRecord, attach, recall_nodes, remember_nodes


class Draft(GraphModule):
    """A GraphModule whose code is made once, by :func:`finish`, and not when its graph is set.

    It has the methods of the user's class.

    Attributes:
        is_draft: Whether the graph is still being edited.
    """

    is_draft = False

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """A draft, as the constructor makes it; copies and unpickled models are none."""
        drafted: Self = super().__new__(cls)
        if args or kwargs:
            drafted.__dict__["is_draft"] = True
        return drafted

    def recompile(self) -> Any:
        """Make the code, unless the graph is still being edited."""
        return None if self.is_draft else super().recompile()

    def __getattr__(self, name: str) -> Any:
        """Methods of the user's class are looked up there and bound to this model."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            record = vars(self).get(RECORD)
            kind = record.user_class.kind if isinstance(record, PassRecord) else None
            if kind is None or name.startswith("_"):
                raise
            found = inspect.getattr_static(kind, name, _NOWHERE)
            if found is _NOWHERE:
                raise
        return found.__get__(self, kind) if hasattr(found, "__get__") else found

    def __reduce__(self) -> tuple[Any, ...]:
        """Unpickled as what it is, which torch's own way of pickling graphs forgets."""
        rebuild, arguments = super().__reduce__()
        return _rebuilt, (rebuild, arguments)


_NOWHERE = object()


def _rebuilt(rebuild: Callable[..., GraphModule], arguments: tuple[Any, ...]) -> GraphModule:
    model = rebuild(*arguments)
    # Each GraphModule is of a class of its own, which holds its code.
    type(model).__bases__ = (Draft,)
    record = vars(model).get(RECORD)
    if isinstance(record, PassRecord):
        attach(model, record)
    return model


def copy_model(model: GraphModule) -> GraphModule:
    """A GraphModule with a graph of its own; called modules are shared with ``model``, never changed in place."""
    recall_nodes(model)
    graph = Graph()
    values: dict[Node, Node] = {}
    result = graph.graph_copy(model.graph, values)
    graph.output(result)
    copied = Draft(model, graph, type(model).__name__)
    for old, new in values.items():
        new.meta = dict(old.meta)
    copied.meta = dict(model.meta)
    setattr(copied, RECORD, getattr(model, RECORD))
    restore_attributes(copied)
    take_modes(copied, model)
    return copied


def take_modes(copied: GraphModule, model: GraphModule) -> None:
    """Put what is new in ``copied`` in the mode of ``model``; called modules are in their own."""
    known = set(model.modules())
    for module in copied.modules():
        if module not in known:
            module.training = model.training


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Run ``model`` in eval mode, and put every module of it back in its own mode afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def nodes_in(value: Any) -> list[Node]:
    """Every node in an argument, in order; one that is there twice is twice in the list."""
    found: list[Node] = []

    def note(node: Node) -> Node:
        found.append(node)
        return node

    map_arg(value, note)
    return found


def restore_attributes(model: GraphModule) -> None:
    """Put the plain attributes of the user's model on ``model``, where it has none of that name."""
    record = getattr(model, RECORD, None)
    for name, value in (record.preserved if isinstance(record, PassRecord) else {}).items():
        if name not in vars(model) and not hasattr(GraphModule, name):
            setattr(model, name, value)


def finish(model: GraphModule) -> GraphModule:
    """Drop what no node uses any more, check the graph, and make the code once."""
    model.delete_all_unused_submodules()
    restore_attributes(model)  # modules among them were unused
    model.graph.lint()
    vars(model).pop("is_draft", None)
    model.recompile()
    remember_nodes(model)
    return model


class Names:
    """Free attribute names on a model, each handed out once; no name is probed twice."""

    def __init__(self, model: nn.Module) -> None:
        """Names that ``model`` has are taken."""
        self._taken = {name for name, _ in model.named_modules()}
        self._taken.update(name for name, _ in model.named_parameters(remove_duplicate=False))
        self._taken.update(name for name, _ in model.named_buffers(remove_duplicate=False))
        self._taken.update(vars(model))
        self._next: dict[str, int] = {}

    def fresh(self, stem: str) -> str:
        """``stem`` itself if it is free, else ``stem_1``, ``stem_2``, ..."""
        name, count = stem, self._next.get(stem, 0)
        while name in self._taken:
            count += 1
            name = f"{stem}_{count}"
        self._next[stem] = count
        self._taken.add(name)
        return name


def after(value: Node) -> Node:
    """The node to insert before, so that what is inserted comes next to ``value`` and behind all placeholders."""
    following = value.next
    while following.op == "placeholder":
        following = following.next
    return following


def erase(graph: Graph, nodes: Iterable[Node]) -> None:
    """Erase nodes that only use each other; users go before what they use.

    What it costs depends on ``nodes`` alone, however large the graph is.
    """
    doomed = dict.fromkeys(nodes)
    ready = [node for node in doomed if not node.users]
    while ready:
        node = ready.pop()
        inputs = node.all_input_nodes
        graph.erase_node(node)
        del doomed[node]
        # Each becomes free once, when the last of its users has gone.
        ready.extend(each for each in inputs if each in doomed and not each.users)
    for node in doomed:
        graph.erase_node(node)  # something else uses it: torch refuses, and says what


def copy_module(module: nn.Module) -> nn.Module:
    """A module of the same type with tables of its own; parameters, buffers and children are shared."""
    copied = copy.copy(module)
    for table in ("_parameters", "_buffers", "_modules"):
        copied.__dict__[table] = dict(module.__dict__[table])
    return copied
