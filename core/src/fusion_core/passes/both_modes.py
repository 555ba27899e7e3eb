"""What a forward does in training and not in eval mode, seen by tracing it in both.

A graph is that of eval mode. Calls in it that are given other constants in training, such as
``training=self.training``, become modules that follow the mode; what else differs is told.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from difflib import SequenceMatcher
from itertools import count, repeat
from typing import Any, Final, TypeAlias

import torch
from torch import nn
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg

from fusion_core.errors import TraceError, first_few
from fusion_core.matcher import CallGraph, CallSite
from fusion_core.nn.by_mode import ByMode, OnlyInTraining, Operand
from fusion_core.passes.dropout import MODULE_OF
from fusion_core.passes.edit import Names, after, nodes_in
from fusion_core.passes.record import members
from fusion_core.passes.shapes import shape_of
from fusion_core.passes.switched_off import gives_operand
from fusion_core.passes.tracer import WITHOUT_GRADIENT

_IN_TRAINING: Final = "fusion_in_training"
_SWITCHES: Final = frozenset({"training", "train", "use_input_stats"})
_Place: TypeAlias = int | str  # of an argument: its position, or its keyword


def note_training(model: nn.Module, graph: Graph, again: Callable[[], Graph]) -> tuple[str, ...]:
    """Let the calls of ``graph`` know which of their constants are others in training.

    Args:
        model: What was traced, in eval mode.
        graph: Its graph; calls get an entry in their ``meta``.
        again: Traces the model once more.

    Returns:
        What the ledger is to say: where else the forward does otherwise in training.
    """
    model.train()
    try:
        training = again()
    except TraceError as error:
        _assume(model, graph.nodes)
        return (f"what the forward does in training alone is not known: {error}",)
    finally:
        model.eval()
    mine, theirs = _by_scope(graph), _by_scope(training)
    different: list[Node] = []
    for scope in dict.fromkeys((*mine, *theirs)):
        pairs, alone = _aligned(mine[scope], theirs[scope])
        different += alone
        different += [node for node, other in pairs if not _noted(node, other)]
    _assume(model, [node for node in different if node.graph is graph])
    if not different:
        return ()
    places = first_few(dict.fromkeys(map(_described, different)))
    return (
        f"the graph has what the forward does in eval mode, which is not what it does in training: {places}",
    )


def in_training(site: CallSite) -> dict[str, Any]:
    """Constants of a call that are others in training, by the names of the parameters."""
    names = [each.name for each in site.parameters]
    changes: Mapping[_Place, Any] = site.node.meta.get(_IN_TRAINING, {})
    return {
        names[place] if isinstance(place, int) and place < len(names) else str(place): value
        for place, value in changes.items()
    }


def is_switched(node: Node) -> bool:
    """Whether ``node`` is a call with other constants in training."""
    return node.op == "call_function" and bool(node.meta.get(_IN_TRAINING))


def follow_modes(model: GraphModule) -> None:
    """Make modules, which follow train() and eval(), of calls that :func:`note_training` has noted."""
    calls, names = CallGraph.of(model), Names(model)
    for node in list(model.graph.nodes):
        site = calls.site(node)
        if not is_switched(node) or site is None:
            continue
        module, operands = _dropout(site) or _by_mode(node)
        path = names.fresh("dropout" if type(module) in MODULE_OF.values() else "by_mode")
        model.add_submodule(path, module.eval())
        with model.graph.inserting_before(node):
            call = model.graph.call_module(path, operands)
        call.meta = {key: value for key, value in node.meta.items() if key != _IN_TRAINING}
        node.replace_all_uses_with(call)
        model.graph.erase_node(node)


def stop_gradients(model: GraphModule) -> None:
    """Detach values where they leave a ``torch.no_grad()``, which a graph does not have."""
    for node in list(model.graph.nodes):
        if not node.meta.get(WITHOUT_GRADIENT):
            continue
        outside = [user for user in node.users if not user.meta.get(WITHOUT_GRADIENT)]
        if shape_of(node) is None:
            for user in outside:  # it takes an item of several
                user.meta[WITHOUT_GRADIENT] = user.op != "output"
        elif outside:
            with model.graph.inserting_before(after(node)):
                detached = model.graph.call_function(torch.Tensor.detach, (node,))
            detached.meta = dict(node.meta)
            for user in outside:
                user.replace_input_with(node, detached)


def _by_scope(graph: Graph) -> defaultdict[str, list[Node]]:
    """What is called, by the module in whose forward it stands."""
    found: defaultdict[str, list[Node]] = defaultdict(list)
    for node in graph.nodes:
        for member in members(node):
            found[member.scope].append(node)
    return found


def _aligned(mine: list[Node], theirs: list[Node]) -> tuple[list[tuple[Node, Node]], list[Node]]:
    """Calls that are there in both, and those that are there in one."""
    first, second = map(_kind, mine), map(_kind, theirs)
    kinds, others = list(first), list(second)
    if kinds == others:
        return list(zip(mine, theirs, strict=True)), []
    pairs: list[tuple[Node, Node]] = []
    alone: list[Node] = []
    matcher = SequenceMatcher(None, kinds, others, autojunk=False)
    for tag, low, high, start, end in matcher.get_opcodes():
        if tag == "equal":
            pairs += zip(mine[low:high], theirs[start:end], strict=True)
        else:
            alone += (*mine[low:high], *theirs[start:end])
    return pairs, alone


def _kind(node: Node) -> tuple[str, Any]:
    return node.op, node.target


def _noted(node: Node, other: Node) -> bool:
    """Note in ``node`` the constants that ``other``, the same call in training, has otherwise.

    Returns:
        Whether there is nothing else to say.
    """
    mine, theirs = _arguments(node), _arguments(other)
    if mine.keys() != theirs.keys():
        return False
    changed = {
        place: theirs[place] for place in mine if _template(mine[place]) != _template(theirs[place])
    }
    if not changed:
        return True
    if node.op != "call_function" or any(
        nodes_in(each[place]) for place in changed for each in (mine, theirs)
    ):
        return False
    node.meta[_IN_TRAINING] = changed
    return True


def _arguments(node: Node) -> dict[_Place, Any]:
    arguments: dict[_Place, Any] = dict(enumerate(node.args))
    return arguments | node.kwargs


def _template(value: Any) -> Any:
    """``value`` with the same thing for every node, and with its type: 0 is not False."""
    plain = _with_operands(value, repeat(0))
    return type(plain).__name__, plain


def _with_operands(value: Any, indices: Iterator[int]) -> Any:
    """``value`` with the next operand for each node in it."""

    def operand(_node: Node) -> Any:
        return Operand(next(indices))

    return map_arg(value, operand)


def _assume(model: nn.Module, nodes: Any) -> None:
    """Take a switch that is off for ``self.training``, where the forward cannot be asked."""
    nodes = list(nodes)
    calls = CallGraph(nodes[0].graph, dict(model.named_modules())) if nodes else None
    for node in nodes:
        site = calls.site(node) if calls is not None and node.op == "call_function" else None
        if site is not None:
            node.meta[_IN_TRAINING] = dict(_switched_on(site))


def _switched_on(site: CallSite) -> Iterator[tuple[_Place, bool]]:
    arguments = _arguments(site.node)
    for index, parameter in enumerate(site.parameters):
        for place in (index, parameter.name):
            if parameter.name in _SWITCHES and arguments.get(place) is False:
                yield place, True


def _dropout(site: CallSite) -> tuple[nn.Module, tuple[Any, ...]] | None:
    """The module of torch that does what a dropout function does in both modes, and its operand."""
    kind = MODULE_OF.get(site.node.target)
    now = site.bound()
    later = {**now, **in_training(site)}
    if kind is None or _is_on(now) or not _in_training(later) or isinstance(later.get("p"), Node):
        return None
    return kind(later.get("p", 0.5)), (site.arguments[0],)


def _is_on(bound: Mapping[str, Any]) -> bool:
    return _in_training(bound) and bound.get("p", 0.5) != 0


def _in_training(bound: Mapping[str, Any]) -> bool:
    return bound.get("training", bound.get("train")) is True


def _by_mode(node: Node) -> tuple[nn.Module, tuple[Any, ...]]:
    operands = tuple(nodes_in((node.args, node.kwargs)))
    args, kwargs = _with_operands((node.args, node.kwargs), count())
    changes = node.meta[_IN_TRAINING]
    training = (
        tuple(changes.get(index, value) for index, value in enumerate(args)),
        {name: changes.get(name, value) for name, value in kwargs.items()},
    )
    function: Any = node.target
    kind = OnlyInTraining if gives_operand(node) else ByMode
    return kind(function, (args, kwargs), training), operands


def _described(node: Node) -> str:
    (member,) = members(node)
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    return f"{name or node.name} in {member.scope or 'the model'}"
