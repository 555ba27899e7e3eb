"""What tells the operator of a node from others at a glance: its key.

The type of the module that is called, the function, the method's name as a string, or
``("getattr", name)``. A class that is called as a function has the key ``("function", class)``.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, TypeAlias

from torch import nn

from fusion_core.patterns import PACKET, Operator, operation_of, spellings_of

Key: TypeAlias = Any


@lru_cache(maxsize=8192)
def operators_of(key: Key) -> tuple[Operator, ...]:
    """Every operator that a node with ``key`` is: its exact spelling, its operation, its packet."""
    exact = _exact(key)
    packet = getattr(exact.target, "overloadpacket", None) if exact.kind == "function" else None
    also = (operation_of(exact), None if packet is None else Operator("function", packet))
    return (exact, *(each for each in also if each is not None))


@lru_cache(maxsize=65536)
def keys_of(operator: Operator) -> frozenset[Key]:
    """Every key that a node which is ``operator`` may have; the inverse of :func:`operators_of`."""
    if isinstance(operator.target, PACKET):
        overloads = (getattr(operator.target, name) for name in operator.target.overloads())
        return frozenset({operator.target, *overloads})
    return frozenset(map(_key, spellings_of(operator)))


def _key(exact: Operator) -> Key:
    is_class = exact.kind == "function" and isinstance(exact.target, type)
    return (exact.kind, exact.target) if exact.kind == "getattr" or is_class else exact.target


def _exact(key: Key) -> Operator:
    if isinstance(key, str):
        return Operator("method", key)
    if isinstance(key, tuple):
        return Operator(*key)
    if isinstance(key, type) and issubclass(key, nn.Module):
        return Operator("module", key)
    return Operator("function", key)
