"""Patterns are pickled with their functions by name, for some of torch's do not pickle by themselves."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from functools import reduce
from typing import Any

from fusion_core.patterns.naming import OVERLOAD, PACKET


@dataclass(frozen=True, slots=True)
class Named:
    """A function by its name.

    Attributes:
        module: Name of a module.
        path: Attributes to follow from there.
    """

    module: str
    path: tuple[str, ...]


def by_name(spelling: Any) -> Any:
    """``spelling`` with what does not pickle replaced by its name; tuples, lists and dicts are entered."""
    if isinstance(spelling, (tuple, list)):
        return type(spelling)(by_name(each) for each in spelling)
    if isinstance(spelling, dict):
        return {by_name(key): by_name(value) for key, value in spelling.items()}
    if isinstance(spelling, (OVERLOAD, PACKET)):
        return Named("torch", ("ops", *str(spelling).split(".")))
    name, module = getattr(spelling, "__name__", ""), getattr(spelling, "__module__", None)
    if "<locals>" in getattr(spelling, "__qualname__", "") and module is not None:
        named = Named(module, (name,))
        return named if _found(named) is spelling else spelling
    return spelling


def from_name(spelling: Any) -> Any:
    """What :func:`by_name` was given."""
    if isinstance(spelling, (tuple, list)):
        return type(spelling)(from_name(each) for each in spelling)
    if isinstance(spelling, dict):
        return {from_name(key): from_name(value) for key, value in spelling.items()}
    return _found(spelling) if isinstance(spelling, Named) else spelling


def _found(named: Named) -> Any:
    try:
        return reduce(getattr, named.path, importlib.import_module(named.module))
    except AttributeError:
        return None
