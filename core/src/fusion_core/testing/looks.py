"""A look at a model before and after, and what has changed in it."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


def look(model: nn.Module) -> dict[str, Any]:
    """Everything of a model that a user could see change."""
    seen: dict[str, Any] = {}
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        seen[f"tensor {name}"] = (id(tensor), tensor.requires_grad, tensor.grad is None)
        seen[f"values of {name}"] = tensor.detach().clone()
    for name, module in model.named_modules():
        # A module's plain attributes hold its hooks and its training flag as well.
        state = {key: _plain(value) for key, value in vars(module).items()}
        seen[f"module {name or '(the model)'}"] = (id(module), type(module), repr(module), state)
    return seen


def _plain(value: Any) -> Any:
    return [*value] if isinstance(value, dict) else repr(value)


def changes_between(before: dict[str, Any], after: dict[str, Any]) -> tuple[str, ...]:
    """What two looks at a model do not have alike, in words."""
    names = dict.fromkeys((*before, *after))
    return tuple(name for name in names if not _same(before.get(name), after.get(name)))


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return torch.equal(one, other)
    return bool(one == other)
