"""One operation, every spelling of it."""

from __future__ import annotations

import operator

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from fusion_core.patterns import Operator, operation_of
from fusion_core.patterns.aliases import SPELLINGS, as_operator

aten = torch.ops.aten


@pytest.mark.parametrize(
    ("operation", "spellings"),
    [
        ("relu", [nn.ReLU, F.relu, torch.relu, torch.relu_, "relu", "relu_", aten.relu.default]),
        ("add", [operator.add, operator.iadd, torch.add, "add", "add_", aten.add.Tensor]),
        ("mul", [operator.mul, operator.imul, torch.mul, torch.multiply, "mul", "mul_"]),
        ("sub", [operator.sub, torch.sub, "sub"]),
        ("matmul", [operator.matmul, torch.matmul, "matmul"]),
        ("cat", [torch.cat, torch.concat, torch.concatenate]),
        ("flatten", [nn.Flatten, torch.flatten, "flatten"]),
        ("reshape", [torch.reshape, "reshape", "view"]),
        ("max_pool2d", [nn.MaxPool2d, F.max_pool2d, torch.max_pool2d]),
        ("mean", [torch.mean, "mean"]),
    ],
)
def test_every_spelling_is_its_operation(operation, spellings):
    found = {operation_of(as_operator(each)) for each in spellings}
    assert found == {Operator("operation", operation)}


def test_no_spelling_belongs_to_two_operations():
    rows = [{as_operator(each) for each in row} for row in SPELLINGS.values()]
    assert sum(map(len, rows)) == len(set().union(*rows))


@pytest.mark.parametrize("spelling", [nn.Conv2d, torch.tanh, "size", getattr])
def test_what_has_one_spelling_only_has_no_operation(spelling):
    assert operation_of(as_operator(spelling)) is None


def test_different_operations_never_share_a_name():
    """relu6 clips above and relu does not: a table that mixed them would change numbers."""
    assert operation_of(as_operator(nn.ReLU6)) != operation_of(as_operator(nn.ReLU))
