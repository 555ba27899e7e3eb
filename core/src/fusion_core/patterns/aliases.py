"""One name for one operation, however a model spells it.

``ops.relu`` in a pattern covers ``nn.ReLU``, ``F.relu``, ``torch.relu``, ``x.relu()``, the in-place
forms, the aten overload and its packet ``torch.ops.aten.relu``. A pattern that names a spelling
itself (``nn.ReLU``) insists on that spelling.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from torch import nn

from fusion_core.patterns.grammar import Operator
from fusion_core.patterns.spellings import SPELLINGS

__all__ = ["SPELLINGS", "Operation", "as_operator", "operation_of", "ops", "spellings_of"]


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation by its own name; usable as an operator in any pattern.

    Attributes:
        name: ``"relu"``, ``"add"``, ...
    """

    name: str

    def __post_init__(self) -> None:
        if self.name not in SPELLINGS:
            msg = (
                f"{self.name!r} is not a known operation; known are {', '.join(sorted(SPELLINGS))}"
            )
            raise ValueError(msg)


def as_operator(spelling: object) -> Operator:
    """The operator that ``spelling`` names: a module type, a function, or a method name."""
    if isinstance(spelling, str):
        return Operator("method", spelling)
    if isinstance(spelling, type) and issubclass(spelling, nn.Module):
        return Operator("module", spelling)
    return Operator("function", spelling)


def _operations() -> dict[Operator, Operator]:
    """The operation of every spelling, and of every overload packet that one row alone has overloads of."""
    found: dict[Operator, Operator] = {}
    rows_of_packet: dict[Any, set[str]] = {}
    for name, spellings in SPELLINGS.items():
        for spelling in spellings:
            found[as_operator(spelling)] = Operator("operation", name)
            packet = getattr(spelling, "overloadpacket", None)
            if packet is not None:
                rows_of_packet.setdefault(packet, set()).add(name)
    for packet, names in rows_of_packet.items():
        if len(names) == 1:
            found[as_operator(packet)] = Operator("operation", *names)
    return found


_OPERATION_OF: Mapping[Operator, Operator] = MappingProxyType(_operations())

_SPELLINGS_OF: dict[Operator, list[Operator]] = {}
for _spelling, _operation in _OPERATION_OF.items():
    _SPELLINGS_OF.setdefault(_operation, []).append(_spelling)


def operation_of(operator: Operator) -> Operator | None:
    """The operation that ``operator`` spells, or None where it has no other spelling."""
    return _OPERATION_OF.get(operator)


def operation_name(called: Any) -> str:
    """The name of the operation that a function, a method's name or a type of module spells; empty for none."""
    operation = operation_of(as_operator(called))
    return "" if operation is None else str(operation.target)


def spellings_of(operator: Operator) -> Sequence[Operator]:
    """Every spelling of an operation; any other operator is its own only one."""
    return _SPELLINGS_OF.get(operator, (operator,))


class _Operations:
    """``ops.relu`` for ``Operation("relu")``."""

    def __getattr__(self, name: str) -> Operation:
        try:
            return Operation(name)
        except ValueError as error:
            raise AttributeError(str(error)) from None

    def __dir__(self) -> list[str]:
        return sorted(SPELLINGS)


ops = _Operations()
