"""Models made out of patterns: found where they should be, and not where one thing is different."""

from __future__ import annotations

import operator

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  the name everyone knows it by
from torch import nn

import fusion_core as core
from fusion_core import MatchAllNode, catalog, ops
from fusion_core.errors import NoExampleError
from fusion_core.examples import examples_of, near_misses_of
from fusion_core.examples.of_patterns import count_matches
from fusion_core.patterns import normalize_nested, normalize_sequential, render

INT8 = core.DTypeConfig(
    input_dtype=torch.quint8, output_dtype=torch.quint8, weight_dtype=torch.qint8
)
NATIVE = catalog.native([INT8], [INT8], embedding=[INT8], recurrent=[INT8])
FBGEMM = [entry.config for entry in core.get_backend("fbgemm").entries]
CONFIGS = {each.normal_pattern: each for each in NATIVE + FBGEMM}.values()
RESIDUAL = normalize_nested((nn.ReLU, (operator.add, MatchAllNode, (nn.BatchNorm2d, nn.Conv2d))))


def texts(found):
    return [each.text for each in found]


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_every_pattern_of_the_catalog_and_of_fbgemm_has_examples_that_run_and_match_once(config):
    for example in examples_of(config.normal_pattern, limit=4):
        assert not example.model.training
        example.model(*example.inputs)
        assert count_matches(config.normal_pattern, example.model) == 1


def test_examples_are_the_same_each_time_and_leave_the_random_numbers_alone():
    pattern = normalize_sequential((nn.Conv2d, nn.BatchNorm2d))
    state = torch.get_rng_state()
    (example,) = examples_of(pattern)
    assert torch.equal(torch.get_rng_state(), state)
    (again,) = examples_of(pattern)
    assert torch.equal(example.inputs[0], again.inputs[0])


def test_each_alternative_and_each_optional_step_has_its_example():
    pattern = normalize_sequential((core.any_of(nn.Conv2d, nn.Linear), core.optional(nn.ReLU)))
    assert sorted(texts(examples_of(pattern))) == [
        "Conv2d",
        "Conv2d -> ReLU",
        "Linear",
        "Linear -> ReLU",
    ]


def test_alternatives_and_optional_steps_with_names_are_shown():
    either = core.any_of(core.capture("last", nn.ReLU), nn.ReLU6)
    assert sorted(texts(examples_of(normalize_sequential((nn.Conv2d, either))))) == [
        "Conv2d -> $last:ReLU",
        "Conv2d -> ReLU6",
    ]
    norm = core.optional(core.capture("norm", nn.BatchNorm2d))
    assert len(examples_of(normalize_sequential((nn.Conv2d, norm, nn.ReLU)))) == 2


def test_an_operation_is_shown_as_module_function_and_method():
    kinds = {
        node.op
        for example in examples_of(normalize_sequential(ops.relu))
        for node in example.model.graph.nodes
    }
    assert {"call_module", "call_function", "call_method"} <= kinds


def test_a_limit_cuts_off_the_rest():
    assert (
        len(examples_of(normalize_sequential(core.any_of(nn.ReLU, nn.SiLU, nn.GELU)), limit=2)) == 2
    )


def test_a_wildcard_is_an_input_of_its_own():
    (example,) = examples_of(RESIDUAL)
    assert len(example.inputs) == 2
    assert example.inputs[0].shape == example.inputs[1].shape


def test_one_name_in_two_places_is_one_value():
    value = core.capture("x", MatchAllNode)
    (example,) = examples_of(normalize_nested((torch.mul, value, (torch.sigmoid, value))))
    assert len(example.inputs) == 1


def test_attributes_and_arguments_that_a_pattern_asks_for_are_given():
    (conv,) = examples_of(normalize_sequential(core.call(nn.Conv2d, kernel_size=(5, 5))))
    assert conv.model.get_submodule("conv2d_0").kernel_size == (5, 5)
    (softmax,) = examples_of(normalize_sequential(core.call(F.softmax, dim=1)))
    (node,) = softmax.model.graph.find_nodes(op="call_function", target=F.softmax)
    assert node.kwargs["dim"] == 1


def test_settings_are_tried_until_a_condition_holds():
    def is_wide(_node, module):
        return module.kernel_size == (7, 7)

    (example,) = examples_of(normalize_sequential(core.where(nn.Conv2d, is_wide, "is 7x7")))
    assert example.model.get_submodule("conv2d_0").kernel_size == (7, 7)


def test_a_condition_that_nothing_meets_is_named_as_what_stands_in_the_way():
    never = core.where(nn.Conv2d, lambda _node, _module: False, "is never")
    with pytest.raises(NoExampleError, match="its conditions refuse every model"):
        examples_of(normalize_sequential(never))


def test_a_module_that_cannot_be_made_is_named():
    class Own(nn.Module):
        def __init__(self, size):
            super().__init__()
            self.size = size

    with pytest.raises(NoExampleError, match=r"how to make a Own is not known \(TypeError: "):
        examples_of(normalize_sequential(Own))


def test_near_misses_run_and_are_not_found():
    found = near_misses_of(RESIDUAL)
    assert {
        "the value of Conv2d is read elsewhere, too",
        "the value of BatchNorm2d is read elsewhere, too",
        "the operands of add are exchanged",
        "add has alpha=2",
        "another operation stands in the place of ReLU",
    } <= set(texts(found))
    for miss in found:
        miss.model(*miss.inputs)
        assert count_matches(RESIDUAL, miss.model) == 0


def test_what_a_pattern_leaves_open_is_no_near_miss():
    either = normalize_nested((nn.ReLU, core.any_order(operator.add, MatchAllNode, nn.Conv2d)))
    assert "the operands of add are exchanged" not in texts(near_misses_of(either))


@pytest.mark.parametrize("name", sorted(core.patterns.SPELLINGS))
def test_every_operation_of_the_alias_table_has_an_example(name):
    pattern = normalize_sequential(core.Operation(name))
    assert examples_of(pattern, limit=1), render(pattern)
