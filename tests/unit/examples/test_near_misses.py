"""Near misses run, differ in one thing, and are not matched; what a pattern leaves open is none."""

from __future__ import annotations

import operator

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  the name everyone knows it by
from torch import nn

import fusion_core as core
from fusion_core import DTypeConfig, MatchAllNode, catalog, passes
from fusion_core.errors import NoExampleError
from fusion_core.examples import near_misses_of
from fusion_core.matcher import CallGraph, PatternIndex, scan
from fusion_core.patterns import (
    any_arguments,
    any_order,
    call,
    capture,
    normalize_nested,
    normalize_sequential,
    where,
)

INT8 = DTypeConfig(input_dtype=torch.quint8, output_dtype=torch.quint8, weight_dtype=torch.qint8)
NATIVE = catalog.native([INT8], [INT8], embedding=[INT8], recurrent=[INT8])
FBGEMM = [entry.config for entry in core.get_backend("fbgemm").entries]
CONFIGS = {each.normal_pattern: each for each in NATIVE + FBGEMM}.values()


def matches(pattern, model):
    return scan(CallGraph.of(model), PatternIndex([(pattern, pattern)])).matches


def sequential(pattern):
    return {each.text for each in near_misses_of(normalize_sequential(pattern))}


def nested(pattern):
    return {each.text for each in near_misses_of(normalize_nested(pattern))}


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_every_pattern_of_the_native_table_and_of_fbgemm_has_near_misses_that_it_leaves(config):
    missed = near_misses_of(config.normal_pattern)
    assert missed
    for each in missed:
        assert matches(config.normal_pattern, each.model) == []
        each.model(*each.inputs)


def test_a_chain_misses_where_something_else_reads_an_inner_value():
    found = sequential((nn.Conv2d, nn.ReLU))
    assert found == {
        "the value of Conv2d is read elsewhere, too",
        "Conv2d has a forward hook",
        "ReLU has a forward hook",
        "another operation stands in the place of Conv2d",
        "another operation stands in the place of ReLU",
    }


def test_a_sum_misses_with_a_factor_unless_the_pattern_leaves_it_open():
    assert "add has alpha=2" in sequential(operator.add) | sequential(torch.add)
    assert "add has alpha=2" not in sequential(call(torch.add, alpha=2))


def test_exchanged_operands_are_missed_where_their_order_matters():
    exchanged = "the operands of sub are exchanged"
    assert exchanged in nested((torch.sub, MatchAllNode, nn.Linear))
    added = nested(any_order(torch.add, MatchAllNode, nn.Linear))
    assert "the operands of add are exchanged" not in added


def test_another_number_is_missed_where_the_pattern_means_one():
    assert "clamp has 1.0 for 0.0" in nested((torch.clamp, MatchAllNode, 0.0, 6.0))
    assert "flatten has start_dim=2" in sequential(call(torch.flatten, start_dim=1))
    assert not any("for 0.0" in each for each in sequential(any_arguments(torch.clamp)))


def test_another_value_in_one_place_of_a_capture_is_missed():
    found = nested((operator.mul, capture("x"), (torch.sigmoid, capture("x"))))
    assert "mul reads another value than the others" in found
    assert "sigmoid reads another value than the others" in found


def test_settings_that_a_condition_refuses_are_near_misses():
    found = sequential(where(nn.Conv2d, lambda _, conv: conv.groups == 1, reason="one group"))
    assert {"it has groups=2", "it has groups=4"} <= found
    assert "it has stride=2" not in found
    assert "it has groups=4" in sequential((call(nn.Conv2d, groups=2), nn.ReLU))


def test_a_near_miss_is_still_missed_once_it_is_traced():
    for pattern in ((nn.Conv2d, nn.BatchNorm2d, nn.ReLU), (torch.add, F.relu), nn.LSTM):
        for each in near_misses_of(normalize_sequential(pattern)):
            traced = passes.trace(each.model, each.inputs)
            assert matches(each.pattern, traced) == [], each.text


def test_a_change_that_cannot_run_is_dropped_without_a_word(capfd):
    near_misses_of(normalize_sequential(F.conv_transpose2d))
    assert capfd.readouterr() == ("", "")


def test_a_pattern_without_examples_has_no_near_misses_either():
    with pytest.raises(NoExampleError):
        near_misses_of(normalize_sequential(where(nn.ReLU, lambda *_: False, reason="never")))
