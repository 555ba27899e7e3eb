"""One name for one operation, however a model spells it.

``ops.relu`` in a pattern covers ``nn.ReLU``, ``F.relu``, ``torch.relu``, ``x.relu()``, the in-place
forms and the aten overload. A pattern that names a spelling itself (``nn.ReLU``) insists on that
spelling.
"""

from __future__ import annotations

import operator as python_operator
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  the name everyone knows it by
from torch import nn

from fusion_core.patterns.grammar import Operator

aten = torch.ops.aten


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


# Modules, functions and method names in one row each; a string is a method name.
SPELLINGS: Mapping[str, tuple[Any, ...]] = MappingProxyType(
    {
        "relu": (
            *(nn.ReLU, F.relu, F.relu_, torch.relu, torch.relu_, "relu", "relu_"),
            *(aten.relu.default, aten.relu_.default),
        ),
        "relu6": (nn.ReLU6, F.relu6, aten.relu6.default, aten.relu6_.default),
        "hardtanh": (
            nn.Hardtanh,
            F.hardtanh,
            F.hardtanh_,
            aten.hardtanh.default,
            aten.hardtanh_.default,
        ),
        "clamp": (
            *(torch.clamp, torch.clamp_, torch.clip, "clamp", "clamp_", "clip", "clip_"),
            *(torch.clamp_min, torch.clamp_max, "clamp_min", "clamp_max", aten.clamp.default),
        ),
        "add": (
            *(python_operator.add, python_operator.iadd, torch.add, "add", "add_", "__add__"),
            *("__iadd__", aten.add.Tensor, aten.add_.Tensor),
        ),
        "sub": (
            python_operator.sub,
            python_operator.isub,
            torch.sub,
            "sub",
            "sub_",
            aten.sub.Tensor,
        ),
        "mul": (
            *(python_operator.mul, python_operator.imul, torch.mul, torch.multiply, "mul", "mul_"),
            *("__mul__", aten.mul.Tensor, aten.mul_.Tensor),
        ),
        "matmul": (python_operator.matmul, torch.matmul, "matmul", torch.bmm, "bmm"),
        "cat": (torch.cat, torch.concat, torch.concatenate, aten.cat.default),
        "mean": (torch.mean, "mean", aten.mean.dim, aten.mean.default),
        "max_pool1d": (nn.MaxPool1d, F.max_pool1d, torch.max_pool1d),
        "max_pool2d": (nn.MaxPool2d, F.max_pool2d, torch.max_pool2d, aten.max_pool2d.default),
        "max_pool3d": (nn.MaxPool3d, F.max_pool3d, torch.max_pool3d),
        "avg_pool1d": (nn.AvgPool1d, F.avg_pool1d),
        "avg_pool2d": (nn.AvgPool2d, F.avg_pool2d, aten.avg_pool2d.default),
        "avg_pool3d": (nn.AvgPool3d, F.avg_pool3d),
        "adaptive_avg_pool1d": (nn.AdaptiveAvgPool1d, F.adaptive_avg_pool1d),
        "adaptive_avg_pool2d": (
            *(nn.AdaptiveAvgPool2d, F.adaptive_avg_pool2d),
            aten.adaptive_avg_pool2d.default,
        ),
        "adaptive_avg_pool3d": (nn.AdaptiveAvgPool3d, F.adaptive_avg_pool3d),
        "flatten": (nn.Flatten, torch.flatten, "flatten"),
        "reshape": (torch.reshape, "reshape", "view", aten.view.default, aten.reshape.default),
        "permute": (torch.permute, "permute", aten.permute.default),
        "transpose": (torch.transpose, "transpose", aten.transpose.int),
        "squeeze": (torch.squeeze, "squeeze"),
        "unsqueeze": (torch.unsqueeze, "unsqueeze"),
        "contiguous": ("contiguous",),
        "pad": (
            *(nn.ZeroPad1d, nn.ZeroPad2d, nn.ZeroPad3d),
            *(nn.ConstantPad1d, nn.ConstantPad2d, nn.ConstantPad3d, F.pad),
        ),
        "identity": (nn.Identity,),
        "dropout": (
            *(nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout),
            *(nn.FeatureAlphaDropout, F.dropout, F.dropout1d, F.dropout2d, F.dropout3d),
            *(torch.dropout, F.alpha_dropout, F.feature_alpha_dropout),
        ),
    }
)


def as_operator(spelling: object) -> Operator:
    """The operator that ``spelling`` names: a module type, a function, or a method name."""
    if isinstance(spelling, str):
        return Operator("method", spelling)
    if isinstance(spelling, type) and issubclass(spelling, nn.Module):
        return Operator("module", spelling)
    return Operator("function", spelling)


_OPERATION_OF: Mapping[Operator, Operator] = MappingProxyType(
    {
        as_operator(spelling): Operator("operation", name)
        for name, spellings in SPELLINGS.items()
        for spelling in spellings
    }
)


def operation_of(operator: Operator) -> Operator | None:
    """The operation that ``operator`` spells, or None where it has no other spelling."""
    return _OPERATION_OF.get(operator)


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
