"""Field types for what has a name in Python: dtypes, module types, callables. JSON carries the names."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any

import torch
from pydantic import AfterValidator, BaseModel, BeforeValidator, PlainSerializer, WithJsonSchema
from torch import nn

from fusion_core.patterns import by_name, from_name, imported


def dtype_from_name(value: object) -> object:
    """``"quint8"`` or ``"torch.quint8"`` as the dtype; anything else is returned unchanged.

    Raises:
        ValueError: The string names no dtype.
    """
    if not isinstance(value, str):
        return value
    dtype = getattr(torch, value.removeprefix("torch."), None)
    if not isinstance(dtype, torch.dtype):
        msg = f"{value!r} is not a torch dtype"
        raise ValueError(msg)  # noqa: TRY004  pydantic reports ValueError with the field's name
    return dtype


def qualified_name(value: Any) -> str:
    """``package.module.name`` of a class or function."""
    name = getattr(value, "__qualname__", type(value).__qualname__)
    # Functions of torch's own builtin class are known as torch.<name>.
    return f"{value.__module__}.{name.removeprefix('_VariableFunctionsClass.')}"


def from_qualified_name(value: object) -> object:
    """The object that a dotted name stands for; anything but a string is returned unchanged.

    Raises:
        ValueError: The name cannot be imported.
    """
    if not isinstance(value, str):
        return value
    try:
        return imported(value)
    except LookupError:
        msg = f"{value!r} cannot be imported"
        raise ValueError(msg) from None


def arity_problem(function: Any, count: int, given: str) -> str | None:
    """Why ``function`` cannot be called with ``count`` positional arguments; None if it can.

    Args:
        function: Anything that can be called. Of a builtin without a signature only the call can tell.
        count: How many arguments.
        given: What they are, in words.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return None
    try:
        signature.bind(*(count * [None]))
    except TypeError as error:
        name = getattr(function, "__qualname__", repr(function))
        return f"{name}{signature} is called with {given}: {error}"
    return None


def called_with(*arguments: str) -> AfterValidator:
    """Refuses a function that cannot be called with ``arguments``, which are given in words."""

    def check(function: Any) -> Any:
        given = " and ".join(arguments) or "no arguments"
        problem = arity_problem(function, len(arguments), given)
        if problem is not None:
            raise ValueError(problem)
        return function

    return AfterValidator(check)


class PicklableModel(BaseModel):
    """A model whose fields may hold functions of torch that do not pickle by themselves."""

    def __getstate__(self) -> dict[Any, Any]:
        state = super().__getstate__()
        return {**state, "__dict__": by_name(state["__dict__"])}

    def __setstate__(self, state: dict[Any, Any]) -> None:
        super().__setstate__({**state, "__dict__": from_name(state["__dict__"])})


DType = Annotated[
    torch.dtype,
    BeforeValidator(dtype_from_name),
    PlainSerializer(str, return_type=str, when_used="json"),
    WithJsonSchema(
        {"type": "string", "description": "name of a torch dtype", "examples": ["torch.quint8"]}
    ),
]

ModuleType = Annotated[
    type[nn.Module],
    BeforeValidator(from_qualified_name),
    PlainSerializer(qualified_name, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "description": "qualified name of a torch.nn.Module type"}),
]

Function = Annotated[
    Callable[..., Any],
    BeforeValidator(from_qualified_name),
    PlainSerializer(qualified_name, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "description": "qualified name of a callable"}),
]

NodePatternFunction = Annotated[Function, called_with("the node pattern")]
