"""Each way to write a pattern, and each kind of operator, has models that it is found in."""

from __future__ import annotations

import operator

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  the name everyone knows it by
from torch import nn

from fusion_core import MatchAllNode, any_of, ops, passes
from fusion_core.errors import NoExampleError
from fusion_core.examples import examples_of
from fusion_core.matcher import CallGraph, PatternIndex, scan
from fusion_core.patterns import (
    any_order,
    call,
    list_of,
    normalize_nested,
    normalize_sequential,
    optional,
    render,
    where,
)


def matches(pattern, model):
    return scan(CallGraph.of(model), PatternIndex([(pattern, pattern)])).matches


def sequential(pattern, **options):
    return examples_of(normalize_sequential(pattern), **options)


def nested(pattern):
    return examples_of(normalize_nested(pattern))


def texts(examples):
    return [each.text for each in examples]


def _calls(model):
    return [node for node in model.graph.nodes if node.op.startswith("call_")]


def test_there_is_an_example_of_every_alternative_and_with_and_without_an_optional_step():
    found = sequential((nn.Conv2d, optional(nn.BatchNorm2d), any_of(nn.ReLU, nn.ReLU6)))
    assert set(texts(found)) == {
        "Conv2d -> BatchNorm2d -> ReLU",
        "Conv2d -> BatchNorm2d -> ReLU6",
        "Conv2d -> ReLU",
    }


def test_a_limit_cuts_off_spellings_before_alternatives():
    found = sequential(any_of(ops.relu, ops.sigmoid, ops.tanh), limit=3)
    assert texts(found) == ["ReLU", "Sigmoid", "Tanh"]


def test_operands_in_any_order_and_lists_are_made():
    assert nested(any_order(operator.add, MatchAllNode, nn.Conv2d))
    (joined,) = nested((torch.cat, list_of(nn.Conv2d, nn.Conv2d)))
    assert [type(each) for each in joined.model.children()] == [nn.Conv2d, nn.Conv2d]
    assert nested((torch.cat, list_of(MatchAllNode, nn.Linear), 1))


@pytest.mark.parametrize(
    ("pattern", "kept"),
    [
        (call(nn.Conv2d, groups=2), lambda model: model.conv2d_0.groups == 2),
        (call(nn.Conv2d, kernel_size=1, bias=None), lambda model: model.conv2d_0.bias is None),
        (call(torch.add, alpha=2), lambda model: _calls(model)[0].kwargs == {"alpha": 2}),
        (call(ops.flatten, start_dim=any_of(1, 2)), lambda model: len(_calls(model)) == 1),
    ],
)
def test_arguments_that_the_pattern_names_have_the_values_it_asks_for(pattern, kept):
    assert kept(sequential(pattern)[0].model)


@pytest.mark.parametrize(
    "condition",
    [
        lambda _, conv: conv.kernel_size == (1, 1),
        lambda _, conv: conv.stride == (2, 2),
        lambda _, conv: conv.groups == conv.in_channels,
        lambda _, conv: conv.bias is None,
        lambda _, conv: conv.out_channels % 16 == 0,
        lambda node, _: len(node.meta["tensor_meta"].shape) == 4,
    ],
)
def test_settings_are_varied_until_a_condition_holds_also_within_a_chain(condition):
    pattern = normalize_sequential((where(nn.Conv2d, condition), nn.BatchNorm2d, nn.ReLU))
    (found,) = examples_of(pattern)
    assert condition(_calls(found.model)[0], found.model.conv2d_0)


def test_a_condition_that_fails_is_the_reason_that_there_is_no_example():
    with pytest.raises(NoExampleError, match="has no attribute 'colour'"):
        sequential(where(nn.Conv2d, lambda _, conv: conv.colour, reason="a colour"))


class Scale(nn.Module):
    """A module of a plugin's own that can be made without arguments."""

    def forward(self, x):
        return x * 2


class Opaque(nn.Module):
    """One that cannot."""

    def __init__(self, engine):
        super().__init__()
        self.engine = engine


def blend(first, second):
    return (first + second) / 2


def decode(text):
    return text.encode()


def test_modules_and_functions_of_a_plugins_own_are_called_where_a_call_can_be_guessed():
    assert texts(sequential((Scale, nn.ReLU)))
    (blended,) = sequential(blend)
    assert len(blended.inputs) == 2


def test_an_error_names_the_module_or_function_that_no_call_is_known_for():
    with pytest.raises(NoExampleError, match=r"how to make a Opaque is not known.*'engine'"):
        sequential((nn.Linear, Opaque))
    with pytest.raises(NoExampleError, match=r"decode.* no call of .*decode was found that works"):
        sequential(decode)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.Embedding, nn.EmbeddingBag, nn.LSTMCell])
def test_inputs_have_the_rank_and_dtype_that_a_type_takes(kind):
    (found,) = sequential(kind)
    assert _calls(found.model)[0].op == "call_module"
    assert found.inputs[0].dtype is (
        torch.int64 if issubclass(kind, (nn.Embedding, nn.EmbeddingBag)) else torch.float32
    )


def test_batch_norms_have_statistics_that_folding_must_heed():
    model = sequential((nn.Conv2d, nn.BatchNorm2d))[0].model
    norm = model.batchnorm2d_1
    assert not torch.equal(norm.running_mean, torch.zeros(4))
    assert not torch.equal(norm.running_var, torch.ones(4))


def test_an_example_is_still_found_once_it_is_traced():
    for pattern in ((nn.Conv2d, nn.BatchNorm2d, ops.relu), (ops.add, ops.relu), (F.linear,)):
        for example in sequential(pattern):
            traced = passes.trace(example.model, example.inputs)
            expected = 0 if F.linear in pattern else 1  # on a parameter it is made a module
            assert len(matches(example.pattern, traced)) == expected, render(example.pattern)


@pytest.mark.parametrize(("kind", "count"), [(nn.Bilinear, 2), (nn.MultiheadAttention, 3)])
def test_a_module_is_given_as_many_inputs_as_its_forward_must_have(kind, count):
    (found,) = sequential(kind)
    assert len(found.inputs) == count
