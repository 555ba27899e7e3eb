"""How operators may be called: signatures, what a call binds to them, and which value is a default."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import torch
from torch.fx import Node
from torch.fx.operator_schemas import get_signature_for_torch_op

from fusion_core.matcher.spelling import Key, operators_of
from fusion_core.patterns import Operator, spellings_of

Bound: TypeAlias = "tuple[tuple[Any, ...], Mapping[str, Any], Parameters | None]"


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


def bind(node: Node, operator: Operator) -> Bound:
    """Arguments in signature order, keyword-only ones that are not the default, and the signature."""
    for candidate in signatures(operator.kind, operator.target):
        try:
            bound = candidate.signature.bind(*node.args, **node.kwargs)
        except TypeError:
            continue
        return (*_read(bound, candidate), candidate)
    # No signature to go by: the input may still be recognised by the name torch gives it.
    if not node.args and "input" in node.kwargs:
        rest = {name: value for name, value in node.kwargs.items() if name != "input"}
        return (node.kwargs["input"],), rest, None
    return tuple(node.args), dict(node.kwargs), None


def _read(
    bound: inspect.BoundArguments, parameters: Parameters
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional arguments up to the last given one, and keyword-only ones that are not the default."""
    given = bound.arguments
    positional = parameters.positional
    last = max((index for index, each in enumerate(positional) if each.name in given), default=-1)
    arguments = [given.get(each.name, each.default) for each in positional[: last + 1]]
    modifiers: dict[str, Any] = {}
    for name, value in given.items():
        parameter = parameters.signature.parameters[name]
        if parameter.kind is parameter.VAR_POSITIONAL:
            arguments.extend(value)
        elif parameter.kind is parameter.VAR_KEYWORD:
            modifiers.update(value)
        elif parameter.kind is parameter.KEYWORD_ONLY and not is_same(value, parameter.default):
            modifiers[name] = value
    return tuple(arguments), modifiers


@lru_cache(maxsize=4096)
def operation_default(key: Key, name: str) -> Any:
    """The default that another spelling of a call's operation gives ``name``; else ``Parameter.empty``.

    ``operator.add`` has no ``alpha``: it does what ``torch.add`` does at its default.
    """
    operations = (each for each in operators_of(key) if each.kind == "operation")
    for each in (spelling for operation in operations for spelling in spellings_of(operation)):
        for candidate in signatures(each.kind, each.target):
            parameter = candidate.signature.parameters.get(name)
            if parameter is not None and parameter.default is not parameter.empty:
                return parameter.default
    return inspect.Parameter.empty


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


def is_same(value: Any, default: Any) -> bool:
    """Whether an argument is its default; ``0`` stands for ``[0, 0]``, None for ``[]``, as torch lets them."""
    if isinstance(value, Node) or default is inspect.Parameter.empty:
        return False
    if isinstance(default, (list, tuple)) and not isinstance(value, (list, tuple)):
        if value is None:
            return not default
        return len(default) > 0 and all(is_same(value, each) for each in default)
    if isinstance(value, (list, tuple)) and isinstance(default, (list, tuple)):
        return list(value) == list(default)
    return bool(value == default)
