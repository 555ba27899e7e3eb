"""Capabilities whose output has its input's parameters: pooling, clamping and what moves values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  the name everyone knows it by
from torch import nn

from fusion_core.testing.zoo.case import Calls, Case

_Build = Callable[[], nn.Module]


def _behind(spellings: Mapping[str, Calls], build: _Build = nn.Identity) -> tuple[Case, ...]:
    """An operation on what a producer gives; the model gives that as well.

    With two readers the producer cannot take up the operation, which therefore stands alone.
    """

    def case(text: str, operation: Calls) -> Case:
        def forward(model: Any, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            produced = model.before(x)
            return operation(model, produced), produced

        return Case(text, forward, lambda: {"layer": build()}, is_behind=True)

    return tuple(case(text, operation) for text, operation in spellings.items())


def _called(model: Any, x: torch.Tensor) -> torch.Tensor:
    result: torch.Tensor = model.layer(x)
    return result


MOVEMENT: dict[str, tuple[Case, ...]] = {
    "cat": (
        Case(
            "torch.cat",
            lambda model, x: torch.cat([model.before(x), x], 1),
            is_behind=True,
        ),
    ),
    "max_pool2d": _behind(
        {"nn.MaxPool2d": _called, "F.max_pool2d": lambda _, x: F.max_pool2d(x, 3, 2, 1)},
        lambda: nn.MaxPool2d(2),
    ),
    "avg_pool2d": _behind(
        {"nn.AvgPool2d": _called, "F.avg_pool2d": lambda _, x: F.avg_pool2d(x, 2)},
        lambda: nn.AvgPool2d(2),
    ),
    "adaptive_avg_pool2d": _behind(
        {
            "nn.AdaptiveAvgPool2d": _called,
            "F.adaptive_avg_pool2d": lambda _, x: F.adaptive_avg_pool2d(x, 4),
        },
        lambda: nn.AdaptiveAvgPool2d(4),
    ),
    "mean": _behind(
        {
            "x.mean((2, 3))": lambda _, x: x.mean((2, 3)),
            "torch.mean": lambda _, x: torch.mean(x, 3, keepdim=True),
        }
    ),
    "relu": _behind(
        {
            "nn.ReLU": _called,
            "F.relu": lambda _, x: F.relu(x),
            "torch.relu": lambda _, x: torch.relu(x),
            "x.relu()": lambda _, x: x.relu(),
        },
        nn.ReLU,
    ),
    "relu6": _behind({"nn.ReLU6": _called, "F.relu6": lambda _, x: F.relu6(x)}, nn.ReLU6),
    "hardtanh": _behind({"nn.Hardtanh": _called}, lambda: nn.Hardtanh(-0.7, 0.9)),
    "clamp": _behind(
        {
            "torch.clamp": lambda _, x: torch.clamp(x, -0.7, 0.9),
            "x.clamp()": lambda _, x: x.clamp(-0.7, 0.9),
        }
    ),
    "flatten": _behind(
        {
            "nn.Flatten": _called,
            "torch.flatten": lambda _, x: torch.flatten(x, 1),
            "x.flatten()": lambda _, x: x.flatten(1),
        },
        nn.Flatten,
    ),
    "reshape": _behind(
        {
            "x.reshape()": lambda _, x: x.reshape(2, -1),
            "x.view()": lambda _, x: x.view(2, 4, -1),
        }
    ),
    "permute": _behind(
        {
            "x.permute()": lambda _, x: x.permute(0, 2, 3, 1),
            "torch.permute": lambda _, x: torch.permute(x, (0, 2, 1, 3)),
        }
    ),
    "transpose": _behind(
        {
            "x.transpose()": lambda _, x: x.transpose(1, 2),
            "torch.transpose": lambda _, x: torch.transpose(x, 2, 3),
        }
    ),
    "squeeze": _behind({"x.unsqueeze(1).squeeze(1)": lambda _, x: x.unsqueeze(1).squeeze(1)}),
    "pad": _behind(
        {"nn.ZeroPad2d": _called, "F.pad": lambda _, x: F.pad(x, (1, 0, 2, 1))},
        lambda: nn.ZeroPad2d(1),
    ),
    "interpolate": _behind(
        {"nn.Upsample": _called, "F.interpolate": lambda _, x: F.interpolate(x, scale_factor=2)},
        lambda: nn.Upsample(scale_factor=2),
    ),
    "pixel_shuffle": _behind({"nn.PixelShuffle": _called}, lambda: nn.PixelShuffle(2)),
}
"""Models by capability."""
