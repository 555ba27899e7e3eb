"""The few edits that all passes make on a GraphModule."""

from __future__ import annotations

import copy
from collections.abc import Iterable

from torch import nn
from torch.fx import Graph, GraphModule, Node

from fusion_core.passes.record import RECORD, PassRecord, recall_nodes, remember_nodes


def copy_model(model: GraphModule) -> GraphModule:
    """A GraphModule with a graph of its own; called modules are shared with ``model``, never changed in place."""
    recall_nodes(model)
    graph = Graph()
    values: dict[Node, Node] = {}
    result = graph.graph_copy(model.graph, values)
    graph.output(result)
    copied = GraphModule(model, graph, type(model).__name__)
    for old, new in values.items():
        new.meta = dict(old.meta)
    copied.meta = dict(model.meta)
    setattr(copied, RECORD, getattr(model, RECORD))
    restore_attributes(copied)
    copied.train(model.training)
    return copied


def restore_attributes(model: GraphModule) -> None:
    """Put the plain attributes of the user's model on ``model``, where it has none of that name."""
    record = getattr(model, RECORD, None)
    for name, value in (record.preserved if isinstance(record, PassRecord) else {}).items():
        if not hasattr(model, name):
            setattr(model, name, value)


def finish(model: GraphModule) -> GraphModule:
    """Drop what no node uses any more, check the graph, and make the code once."""
    model.delete_all_unused_submodules()
    model.graph.lint()
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
