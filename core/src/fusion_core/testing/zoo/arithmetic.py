"""Capabilities without a weight that compute: sums, products and activations with a range of their own."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812  the name everyone knows it by
from torch import nn

from fusion_core.testing.zoo.case import IMAGES, Calls, Case


def _of_two(
    spellings: Mapping[str, Calls],
    *,
    shapes: tuple[tuple[int, ...], ...] = (IMAGES, IMAGES),
    is_one: bool = False,
) -> tuple[Case, ...]:
    return tuple(
        Case(text, forward, shapes=shapes, is_one=is_one) for text, forward in spellings.items()
    )


def _of_one(
    spellings: Mapping[str, Calls], kind: type[nn.Module] | None = None
) -> tuple[Case, ...]:
    """An operation as functions and methods, and as the module ``kind``."""
    cases = tuple(Case(text, forward) for text, forward in spellings.items())
    if kind is None:
        return cases
    as_module = Case(
        f"nn.{kind.__name__}",
        lambda model, x: model.layer(x),
        layers=lambda: {"layer": kind()},
    )
    return (as_module, *cases)


ARITHMETIC: dict[str, tuple[Case, ...]] = {
    "add": _of_two(
        {
            "x + y": lambda _, x, y: x + y,
            "torch.add": lambda _, x, y: torch.add(x, y),
            "x.add(y)": lambda _, x, y: x.add(y),
        }
    ),
    "add.relu": _of_two(
        {
            "F.relu(x + y)": lambda _, x, y: F.relu(x + y),
            "x.add(y).relu()": lambda _, x, y: x.add(y).relu(),
        },
        is_one=True,
    ),
    "add.same": _of_one({"x + x": lambda _, x: x + x}),
    "add.scalar": _of_one({"x + 1.5": lambda _, x: x + 1.5}),
    "mul": _of_two(
        {
            "x * y": lambda _, x, y: x * y,
            "torch.mul": lambda _, x, y: torch.mul(x, y),
            "x.mul(y)": lambda _, x, y: x.mul(y),
        }
    ),
    "mul.relu": _of_two({"F.relu(x * y)": lambda _, x, y: F.relu(x * y)}, is_one=True),
    "mul.scalar": _of_one({"x * 0.7": lambda _, x: x * 0.7}),
    "matmul": _of_two(
        {"x @ y": lambda _, x, y: x @ y, "torch.matmul": lambda _, x, y: torch.matmul(x, y)},
        shapes=((2, 6, 8), (2, 8, 4)),
    ),
    "elu": _of_one({"F.elu": lambda _, x: F.elu(x)}, nn.ELU),
    "leaky_relu": _of_one({"F.leaky_relu": lambda _, x: F.leaky_relu(x, 0.1)}, nn.LeakyReLU),
    "hardswish": _of_one({"F.hardswish": lambda _, x: F.hardswish(x)}, nn.Hardswish),
    "sigmoid": _of_one({"x.sigmoid()": lambda _, x: x.sigmoid()}, nn.Sigmoid),
    "tanh": _of_one({"torch.tanh": lambda _, x: torch.tanh(x)}, nn.Tanh),
    "hardsigmoid": _of_one({"F.hardsigmoid": lambda _, x: F.hardsigmoid(x)}, nn.Hardsigmoid),
    "softmax": _of_one({"F.softmax": lambda _, x: F.softmax(x, dim=-1)}),
}
"""Models by capability."""
