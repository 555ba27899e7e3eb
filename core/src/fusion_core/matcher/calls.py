"""Canonical call sites: one form for every spelling of a call.

Arguments given by keyword and by position become one list in signature order, so a pattern sees the
same call either way. What the list cannot hold, keyword-only arguments such as ``alpha`` or
``dtype``, is kept apart: they change what is computed, so a pattern refuses them unless they have
their defaults.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import nn
from torch.fx import Graph, Node
from torch.fx.operator_schemas import get_signature_for_torch_op
from torch.nn.utils.parametrize import type_before_parametrizations

from fusion_core.patterns import Operator, operation_of

# Whether an operation works in place says nothing about its value.
_NEUTRAL = frozenset({"inplace"})


@dataclass(frozen=True, slots=True, eq=False)
class Parameters:
    """How an operator may be called.

    Attributes:
        signature: Its signature.
        positional: Those parameters that can be given by position, in order.
    """

    signature: inspect.Signature
    positional: tuple[inspect.Parameter, ...]

    @classmethod
    def of(cls, signature: inspect.Signature) -> Parameters:
        """The parameters of ``signature``."""
        kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        return cls(
            signature, tuple(each for each in signature.parameters.values() if each.kind in kinds)
        )


@dataclass(frozen=True, slots=True)
class CallSite:
    """One call of a graph in canonical form.

    Attributes:
        node: The node that makes the call.
        operators: Every operator the call is: its exact spelling first, then its operation.
        arguments: Arguments in signature order; those left out in between have their defaults.
        modifiers: Keyword-only arguments that do not have their defaults, as ``name=value``.
        obstacle: Why nothing may be done with this call at all, or None.
    """

    node: Node
    operators: tuple[Operator, ...]
    arguments: tuple[Any, ...]
    modifiers: tuple[str, ...]
    obstacle: str | None
    _parameters: Parameters | None

    @property
    def _positional(self) -> tuple[inspect.Parameter, ...]:
        return () if self._parameters is None else self._parameters.positional

    def surplus(self, count: int) -> str | None:
        """The first argument behind the ``count`` leading ones that does not have its default."""
        parameters = self._positional
        for index, value in enumerate(self.arguments[count:], start=count):
            if index >= len(parameters):
                return repr(value)
            parameter = parameters[index]
            if parameter.name not in _NEUTRAL and not _same(value, parameter.default):
                return f"{parameter.name}={value!r}"
        return None

    def bound(self) -> dict[str, Any]:
        """Arguments by parameter name, defaults filled in; by position where the signature is unknown."""
        parameters = self._positional
        names = [each.name for each in parameters]
        found = {each.name: each.default for each in parameters if each.default is not each.empty}
        for index, value in enumerate(self.arguments):
            found[names[index] if index < len(names) else str(index)] = value
        found.update({k: v for k, v in self.node.kwargs.items() if k not in found})
        return found


class CallGraph:
    """The call sites of one graph, each made once."""

    def __init__(self, graph: Graph, modules: Mapping[str, nn.Module]) -> None:
        """Of ``graph``, whose module calls name entries of ``modules`` (path to module)."""
        self.graph = graph
        self.modules = modules
        self._sites: dict[Node, CallSite | None] = {}
        self._call_counts = Counter(
            id(modules[str(node.target)])
            for node in graph.nodes
            if node.op == "call_module" and str(node.target) in modules
        )

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

    def _make(self, node: Node) -> CallSite | None:
        exact = _exact_operator(node, self.module(node))
        if exact is None:
            return None
        arguments, modifiers, signature = _bind(node, exact)
        operation = operation_of(exact)
        packet = getattr(exact.target, "overloadpacket", None) if exact.kind == "function" else None
        also = (operation, None if packet is None else Operator("function", packet))
        operators = (exact, *(each for each in also if each is not None))
        return CallSite(node, operators, arguments, modifiers, self._obstacle(node), signature)

    def _obstacle(self, node: Node) -> str | None:
        module = self.module(node)
        if module is None:
            return None
        for path, each in module.named_modules(prefix=str(node.target)):
            # There is no public way to ask a module for its hooks.
            if each._forward_hooks or each._forward_pre_hooks:
                return f"{path} has forward hooks, which a replacement would not run"
            if "forward" in vars(each):
                return f"{path} has a forward of its own, which is not that of its type"
        count = self._call_counts[id(module)]
        if count > 1 and any(True for _ in module.state_dict()):
            return f"{node.target} is called from {count} places"
        return None


def _exact_operator(node: Node, module: nn.Module | None) -> Operator | None:
    if node.op == "call_module":
        return None if module is None else Operator("module", type_before_parametrizations(module))
    if node.op == "call_method":
        return Operator("method", node.target)
    if node.op == "call_function":
        if node.target is getattr and len(node.args) > 1:
            return Operator("getattr", node.args[1])
        return Operator("function", node.target)
    return None


def _bind(
    node: Node, operator: Operator
) -> tuple[tuple[Any, ...], tuple[str, ...], Parameters | None]:
    candidates = signatures(operator.kind, operator.target)
    if not node.kwargs:
        fitting = (each for each in candidates if len(each.positional) >= len(node.args))
        return tuple(node.args), (), next(fitting, None)
    for candidate in candidates:
        try:
            bound = candidate.signature.bind(*node.args, **node.kwargs)
        except TypeError:
            continue
        return (*_read(bound, candidate), candidate)
    # No signature to go by: the input may still be recognised by the name torch gives it.
    if not node.args and "input" in node.kwargs:
        rest = tuple(f"{name}={value!r}" for name, value in node.kwargs.items() if name != "input")
        return (node.kwargs["input"],), rest, None
    return tuple(node.args), tuple(f"{name}={value!r}" for name, value in node.kwargs.items()), None


def _read(
    bound: inspect.BoundArguments, parameters: Parameters
) -> tuple[tuple[Any, ...], tuple[str, ...]]:
    """Positional arguments up to the last given one, and keyword-only ones that are not the default."""
    given = bound.arguments
    positional = parameters.positional
    last = max((index for index, each in enumerate(positional) if each.name in given), default=-1)
    arguments = [given.get(each.name, each.default) for each in positional[: last + 1]]
    modifiers: list[str] = []
    for name, value in given.items():
        parameter = parameters.signature.parameters[name]
        if parameter.kind is parameter.VAR_POSITIONAL:
            arguments.extend(value)
        elif parameter.kind is parameter.VAR_KEYWORD:
            modifiers.extend(f"{key}={each!r}" for key, each in value.items())
        elif parameter.kind is parameter.KEYWORD_ONLY and not _same(value, parameter.default):
            modifiers.append(f"{name}={value!r}")
    return tuple(arguments), tuple(modifiers)


@lru_cache(maxsize=4096)
def signatures(kind: str, target: Any) -> tuple[Parameters, ...]:
    """Every signature an operator may be called with, as far as known; none for attribute reads."""
    if kind == "getattr":
        return ()
    if kind == "module":
        forward = inspect.signature(target.forward)
        parameters = list(forward.parameters.values())[1:]
        return (Parameters.of(forward.replace(parameters=parameters)),)
    if kind == "method":
        target = getattr(torch, target, None) or getattr(torch, target.removesuffix("_"), None)
        if target is None:
            return ()
    return tuple(map(Parameters.of, _function_signatures(target)))


def _function_signatures(target: Callable[..., Any]) -> tuple[inspect.Signature, ...]:
    try:
        schemas = get_signature_for_torch_op(target)
    except NameError:  # FX cannot read every schema; it fails for that of dict
        schemas = None
    if schemas:
        return tuple(schemas)
    try:
        signature = inspect.signature(target)
    except (TypeError, ValueError):  # a builtin that publishes none
        return ()
    return (_dispatched_signature(target) or signature,)


def _dispatched_signature(target: Callable[..., Any]) -> inspect.Signature | None:
    """The signature behind ``F.max_pool2d`` and its like, which choose one of two functions by a flag."""
    if not inspect.isfunction(target) or target.__closure__ is None:
        return None
    for inner in inspect.getclosurevars(target).nonlocals.values():
        if inspect.isfunction(inner):
            return inspect.signature(inner)
    return None


def _same(value: Any, default: Any) -> bool:
    """Whether an argument is its default; ``0`` stands for ``[0, 0]``, None for ``[]``, as torch lets them."""
    if isinstance(value, Node) or default is inspect.Parameter.empty:
        return False
    if isinstance(default, (list, tuple)) and not isinstance(value, (list, tuple)):
        if value is None:
            return not default
        return len(default) > 0 and all(_same(value, each) for each in default)
    if isinstance(value, (list, tuple)) and isinstance(default, (list, tuple)):
        return list(value) == list(default)
    return bool(value == default)
