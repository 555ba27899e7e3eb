"""Canonical call sites: one form for every spelling of a call.

Arguments given by keyword and by position become one list in signature order, so a pattern sees the
same call either way. What the list cannot hold, keyword-only arguments such as ``alpha`` or
``dtype``, is kept apart: they change what is computed, so a pattern refuses them unless it names
them or they have their defaults.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Mapping
from functools import cached_property
from typing import Any, NamedTuple

from torch import nn
from torch.fx import Graph, GraphModule, Node

from fusion_core.matcher.signatures import Parameters, bind, is_same, operation_default, signatures
from fusion_core.matcher.spelling import Key, operators_of
from fusion_core.nn.weighted import operator_type
from fusion_core.patterns import Operator

# Whether an operation works in place says nothing about its value.
_NEUTRAL = frozenset({"inplace"})

MISSING = inspect.Parameter.empty
"""What :meth:`CallSite.argument` gives where there is no such argument."""


class CallSite:
    """One call of a graph in canonical form.

    Attributes:
        node: The node that makes the call.
        key: What tells its operator from others; see :mod:`fusion_core.matcher.spelling`.
        module: The module that is called, if it is one.
        arguments: Arguments in signature order; those left out in between have their defaults.
        modifiers: Keyword-only arguments that do not have their defaults.
    """

    __slots__ = ("_parameters", "arguments", "key", "modifiers", "module", "node")

    def __init__(self, node: Node, key: Key, module: nn.Module | None) -> None:
        """The call of ``node``, whose operator is ``key``."""
        self.node = node
        self.key = key
        self.module = module
        self.arguments: tuple[Any, ...] = node.args
        self.modifiers: Mapping[str, Any] = {}
        self._parameters: Parameters | None = None
        if node.kwargs:
            self.arguments, self.modifiers, self._parameters = bind(node, self.operators[0])

    @property
    def operators(self) -> tuple[Operator, ...]:
        """Every operator the call is: its exact spelling first, then its operation."""
        return operators_of(self.key)

    @property
    def parameters(self) -> tuple[inspect.Parameter, ...]:
        """What the call's arguments are, in order; empty where the signature is not known."""
        if self._parameters is None:
            operator, count = self.operators[0], len(self.arguments)
            candidates = signatures(operator.kind, operator.target)
            fitting = (each for each in candidates if len(each.positional) >= count)
            self._parameters = next(fitting, None)
        return () if self._parameters is None else self._parameters.positional

    def surplus(self, count: int, named: tuple[str, ...] = ()) -> str | None:
        """The first argument behind the ``count`` leading ones that is not named nor at its default."""
        if len(self.arguments) <= count:
            return None
        parameters = self.parameters
        for index, value in enumerate(self.arguments[count:], start=count):
            if index >= len(parameters):
                return repr(value)
            parameter = parameters[index]
            name = parameter.name
            if name not in named and name not in _NEUTRAL and not is_same(value, parameter.default):
                return f"{name}={value!r}"
        return None

    def argument(self, name: str) -> Any:
        """The argument ``name``, or else the module's attribute; ``MISSING`` if there is neither."""
        if name in self.modifiers:
            return self.modifiers[name]
        for index, parameter in enumerate(self.parameters):
            if parameter.name == name:
                given = index < len(self.arguments)
                return self.arguments[index] if given else parameter.default
        if self.module is not None:
            return getattr(self.module, name, MISSING)
        if self._parameters is not None and name in self._parameters.signature.parameters:
            return self._parameters.signature.parameters[name].default
        return operation_default(self.key, name)

    def bound(self) -> dict[str, Any]:
        """Arguments by parameter name, defaults filled in; by position where the signature is unknown."""
        parameters = self.parameters
        names = [each.name for each in parameters]
        found = {each.name: each.default for each in parameters if each.default is not each.empty}
        for index, value in enumerate(self.arguments):
            found[names[index] if index < len(names) else str(index)] = value
        found.update({k: v for k, v in self.node.kwargs.items() if k not in found})
        return found


class Survey(NamedTuple):
    """What a sweep needs to know of every node before it starts.

    Attributes:
        keys: :meth:`CallGraph.key` of every node that calls something.
        careful: Nodes that cannot be taken at a glance: calls with keyword arguments, and of
            modules that have several callers, children, hooks or a forward of their own.
    """

    keys: dict[Node, Key]
    careful: set[Node]


class CallGraph:
    """The call sites of one graph, each made once."""

    def __init__(self, graph: Graph, modules: Mapping[str, nn.Module]) -> None:
        """Of ``graph``, whose module calls name entries of ``modules`` (path to module)."""
        self.graph = graph
        self.modules = modules
        self._sites: dict[Node, CallSite | None] = {}
        self._types: dict[type, type | None] = {}

    @classmethod
    def of(cls, model: GraphModule) -> CallGraph:
        """Of the graph of ``model``."""
        return cls(model.graph, dict(model.named_modules(remove_duplicate=False)))

    def site(self, node: Node) -> CallSite | None:
        """The canonical call of ``node``, or None for inputs, outputs and attribute reads of the model."""
        try:
            return self._sites[node]
        except KeyError:
            site = self._sites[node] = self._make(node)
            return site

    def module(self, node: Node) -> nn.Module | None:
        """The module that ``node`` calls, if it calls one."""
        return self.modules.get(str(node.target)) if node.op == "call_module" else None

    def obstacle(self, site: CallSite) -> str | None:
        """Why nothing may be done with the call at all, or None."""
        module = site.module
        if module is None:
            return None
        if not _may_hide(module) and self._counts[id(module)] == 1:
            return None
        return self._first_obstacle(site.node, module)

    def _first_obstacle(self, node: Node, module: nn.Module) -> str | None:
        for path, each in module.named_modules(prefix=str(node.target)):
            if each._forward_hooks or each._forward_pre_hooks:
                return f"{path} has forward hooks, which a replacement would not run"
            if "forward" in vars(each):
                return f"{path} has a forward of its own, which is not that of its type"
        count = self._counts[id(module)]
        if count > 1 and any(True for _ in module.state_dict()):
            return f"{node.target} is called from {count} places"
        return None

    @cached_property
    def _counts(self) -> Counter[int]:
        """How many nodes call each module, by its id."""
        called = [node.target for node in self.graph.nodes if node.op == "call_module"]
        return Counter(map(id, map(self.modules.get, called)))

    def _make(self, node: Node) -> CallSite | None:
        key = self.key(node)
        return None if key is None else CallSite(node, key, self.module(node))

    def key(self, node: Node) -> Key | None:
        """What tells the operator of ``node`` from others, or None where the node calls nothing."""
        op, target = node.op, node.target
        if op == "call_module":
            module = self.modules.get(target)  # type: ignore[arg-type]  # a path, for this op
            kind = type(module)
            if kind not in self._types:
                self._types[kind] = None if module is None else operator_type(module)
            return self._types[kind]
        if op == "call_function":
            if target is getattr and len(node.args) > 1:
                return ("getattr", node.args[1])
            return ("function", target) if isinstance(target, type) else target
        return target if op == "call_method" else None

    def survey(self) -> Survey:
        """What a sweep needs to know of every node before it starts."""
        keys: dict[Node, Key] = {}
        careful: set[Node] = set()
        called: list[tuple[nn.Module | None, Node]] = []
        module_of, types = self.modules.get, self._types
        for node in self.graph.nodes:
            op = node.op
            if op == "call_module":
                module = module_of(node.target)
                key = types.get(type(module))
                keys[node] = self.key(node) if key is None else key
                called.append((module, node))
                if module is not None and _may_hide(module):
                    careful.add(node)
            elif op == "call_function" or op == "call_method":  # noqa: PLR1714  twice as fast
                keys[node] = self.key(node)
            if node.kwargs:
                careful.add(node)
        if len({id(module) for module, _ in called}) < len(called):
            careful.update(node for module, node in called if self._counts[id(module)] > 1)
        return Survey(keys, careful)


def _may_hide(module: nn.Module) -> bool:
    """Whether ``module`` has children, hooks or a forward of its own."""
    state = vars(module)
    # There is no public way to ask a module for its hooks.
    return (
        bool(state["_modules"] or state["_forward_hooks"] or state["_forward_pre_hooks"])
        or "forward" in state
    )
