"""The names that operators go by in text, and back from such a name to the object.

Names are as short as they can be and still be found again: ``Conv2d``, ``operator.add``,
``functional.relu``, ``torch.flatten``, ``aten.add.Tensor``; everything else by its qualified name.
"""

from __future__ import annotations

import importlib
import operator
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import reduce
from types import MappingProxyType
from typing import Any

import torch
from torch import nn

# In this order: many functions of torch.nn.functional are torch's own.
NAMESPACES: Mapping[str, Any] = MappingProxyType(
    {"operator": operator, "torch": torch, "functional": torch.nn.functional}
)
FORMS = frozenset({"any_of", "any_order", "where", "getattr"})
"""Words that are no operators before parentheses in the text of a pattern."""

WORDS = FORMS | {"None", "True", "False", "Ellipsis", "inf", "nan"}
"""Words with a meaning of their own in the text of a pattern."""

_LOCAL = "<locals>"

OVERLOAD, PACKET = type(torch.ops.aten.relu.default), type(torch.ops.aten.relu)
"""Types of ``torch.ops.aten.relu.default`` and of ``torch.ops.aten.relu``."""


def module_name(kind: type[nn.Module]) -> str:
    """``Conv2d`` for a type of torch.nn, else the qualified name, as short as it can be found.

    What no name can find, because it was made within a function, goes by its own name alone.
    """
    name = kind.__qualname__
    if getattr(nn, name, None) is kind:
        return name
    return kind.__name__ if _LOCAL in name else f"{_public_room(kind)}.{name}"


def operation_name(name: str) -> str:
    """An operation goes by its own name, or where that is a word of the grammar, by that of its object."""
    return f"fusion_core.ops.{name}" if name in WORDS else name


def function_name(target: Any) -> str:
    """The name a function is known by: ``operator.add``, ``torch.flatten``, ``aten.add.Tensor``."""
    if isinstance(target, (OVERLOAD, PACKET)):
        return str(target)
    name = getattr(target, "__name__", None) or str(target)
    for prefix, namespace in NAMESPACES.items():
        if getattr(namespace, name, None) is target:
            return f"{prefix}.{name}"
    # Of a method of a builtin class, such as torch.Tensor.relu, only the class knows a module.
    owner = getattr(target, "__objclass__", target)
    module = getattr(owner, "__module__", None)
    qualified = getattr(target, "__qualname__", name)
    return name if not module or _LOCAL in qualified else f"{module}.{qualified}"


def object_named(name: str) -> Any:
    """The object that a name of this module's functions stands for.

    Args:
        name: The bare name of a class of torch.nn, or a name with dots.

    Raises:
        LookupError: Nothing has that name; says what is missing.
    """
    first, _, rest = name.partition(".")
    if not rest:
        return _attribute(nn, name, f"torch.nn has no {name!r}")
    missing = f"there is no {name!r}"
    if first in NAMESPACES:
        with suppress(LookupError):
            return _attribute(NAMESPACES[first], rest, missing)
    try:
        return imported(name)
    except LookupError:
        if first in NAMESPACES:
            raise LookupError(missing) from None
        # torch.ops has any namespace one asks for; only its operators exist or do not.
        if not hasattr(getattr(torch.ops, first), rest.partition(".")[0]):
            raise
        return _attribute(torch.ops, name, missing)


def _attribute(value: Any, path: str, problem: str) -> Any:
    try:
        return reduce(getattr, path.split("."), value)
    except AttributeError:
        raise LookupError(problem) from None


def imported(name: str) -> Any:
    """The object of a name with dots, the first of which are those of modules.

    Raises:
        LookupError: There is none; says what is missing.
    """
    parts = name.split(".")
    problem = ""
    for cut in range(len(parts) - 1, 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:cut]))
        except ImportError:
            continue
        rest = ".".join(parts[cut:])
        problem = problem or f"{name!r}: {found.__name__} has no {rest!r}"
        # A package may have an object of the name of one of its modules.
        with suppress(LookupError):
            return _attribute(found, rest, problem)
    raise LookupError(problem or f"{name!r} cannot be imported: there is no module {parts[0]!r}")


def _public_room(kind: type[nn.Module]) -> str:
    """The shortest package above the type's module that has the very type as an attribute."""
    parts = kind.__module__.split(".")
    for cut in range(1, len(parts)):
        room = ".".join(parts[:cut])
        if getattr(sys.modules.get(room), kind.__qualname__, None) is kind:
            return room
    return kind.__module__
