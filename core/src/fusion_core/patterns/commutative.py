"""Which operations give the same result whatever the order of their operands."""

from __future__ import annotations

import operator
from typing import Any

import torch

from fusion_core.patterns.aliases import SPELLINGS, operation_of
from fusion_core.patterns.grammar import Op

COMMUTATIVE = frozenset({"add", "mul", "maximum", "minimum"})
"""Operations of the alias table whose two operands may change places."""

_ORDERED: frozenset[Any] = frozenset(
    {
        *(operator.pow, operator.truediv, operator.floordiv, operator.mod, operator.lshift),
        *(operator.rshift, operator.getitem, operator.lt, operator.le, operator.gt, operator.ge),
        *(torch.pow, torch.div, torch.true_divide, torch.floor_divide, torch.remainder, torch.fmod),
        *(torch.bmm, torch.mm, torch.mv, torch.atan2, torch.where, torch.addmm, torch.baddbmm),
    }
)


def order_matters(pattern: Op) -> str | None:
    """Why the operands of ``pattern`` must not change places, as far as is known; None if they may."""
    operation = operation_of(pattern.operator)
    name = pattern.operator.target if pattern.operator.kind == "operation" else None
    if operation is not None:
        name = operation.target
    if (name in SPELLINGS and name not in COMMUTATIVE) or pattern.operator.target in _ORDERED:
        return f"the order of the operands of {pattern.operator} matters"
    if pattern.keywords:
        names = ", ".join(name for name, _ in pattern.keywords)
        return f"any_order cannot be constrained by {names}, which may tell the operands apart"
    return None
