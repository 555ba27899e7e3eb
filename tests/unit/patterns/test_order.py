"""Which of two patterns goes first, and how patterns are shown."""

from __future__ import annotations

import math
import operator

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from fusion_core.patterns import (
    MatchAllNode,
    Operator,
    any_of,
    normalize_nested,
    normalize_sequential,
    operator_count,
    operators_in,
    ops,
    precedence,
    render,
    wildcard_count,
)

BLOCK = (nn.ReLU, (operator.add, MatchAllNode, (nn.BatchNorm2d, nn.Conv2d)))
FORKED = (nn.ReLU, any_of((nn.BatchNorm2d, nn.Conv2d), (operator.add, MatchAllNode, nn.Linear)))


@pytest.mark.parametrize(
    ("pattern", "operators", "wildcards"),
    [
        (nn.ReLU, 1, 0),
        (BLOCK, 4, 1),
        ((operator.add, MatchAllNode, MatchAllNode(literals=True)), 1, 2),
        ((nn.ReLU, 3), 1, 0),
        (FORKED, 3, 1),
        ((nn.ReLU, any_of(MatchAllNode, nn.Conv2d)), 2, 1),
    ],
)
def test_size_is_the_most_that_a_match_claims(pattern, operators, wildcards):
    normal = normalize_nested(pattern)
    assert (operator_count(normal), wildcard_count(normal)) == (operators, wildcards)


def test_operators_of_every_alternative_are_named():
    found = set(operators_in(normalize_nested(FORKED)))
    assert found == {
        Operator("function", operator.add),
        *(Operator("module", each) for each in (nn.ReLU, nn.BatchNorm2d, nn.Conv2d, nn.Linear)),
    }


def key(pattern, priority=0, plugin="acme", index=0):
    return precedence(normalize_nested(pattern), priority=priority, plugin=plugin, index=index)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (key(nn.ReLU, priority=1), key(BLOCK)),
        (key((nn.ReLU, nn.Conv2d), plugin="z", index=9), key(nn.ReLU)),
        (key((nn.ReLU, nn.Conv2d), index=9), key((operator.add, MatchAllNode, nn.Conv2d))),
        (key(nn.ReLU, plugin="acme", index=9), key(nn.ReLU, plugin="acme.fast")),
        (key(nn.ReLU, index=0), key(nn.ReLU, index=1)),
    ],
    ids=["priority", "more operators", "fewer wildcards", "plugin", "place"],
)
def test_precedence_looks_at_one_thing_after_another(first, second):
    assert first < second


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (nn.Conv2d, "Conv2d"),
        ((nn.ReLU, (nn.BatchNorm2d, nn.Conv2d)), "Conv2d -> BatchNorm2d -> ReLU"),
        (BLOCK, "operator.add(*, Conv2d -> BatchNorm2d) -> ReLU"),
        (("relu", (F.relu, torch.relu)), "torch.relu -> functional.relu -> .relu"),
        ((nn.ReLU, (getattr, "T")), "getattr(T) -> ReLU"),
        ((ops.add, MatchAllNode(literals=True), 1.5), "add(*literal, 1.5)"),
        ((nn.ReLU, nn.Conv2d, ...), "Conv2d -> ReLU(...)"),
        ((any_of(nn.ReLU, nn.ReLU6), nn.Conv2d), "Conv2d -> any_of(ReLU, ReLU6)"),
        ((nn.ReLU, any_of(nn.Conv1d, nn.Conv2d)), "any_of(Conv1d, Conv2d) -> ReLU"),
        ((torch.ops.aten.relu.default, F.linear), "functional.linear -> aten.relu.default"),
        ((F.max_pool2d, F.conv2d), "torch.conv2d -> functional.max_pool2d"),
        (math.sqrt, "math.sqrt"),
        (len, "builtins.len"),
    ],
)
def test_patterns_are_shown_in_data_flow_order_or_as_calls(pattern, text):
    assert render(normalize_nested(pattern)) == text


def test_both_formats_of_a_chain_are_shown_alike():
    chain = normalize_sequential((nn.Conv2d, nn.ReLU))
    assert render(chain) == render(normalize_nested((nn.ReLU, nn.Conv2d)))
