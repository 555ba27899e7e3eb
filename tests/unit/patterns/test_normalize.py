"""Every spelling of a pattern is one canonical value, and what is no pattern is refused at once."""

from __future__ import annotations

import operator
import pickle
import re

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from fusion_core.errors import PatternError
from fusion_core.patterns import (
    AnyOf,
    LiteralValue,
    MatchAllNode,
    Op,
    Operation,
    Operator,
    Step,
    any_arguments,
    any_of,
    any_order,
    call,
    capture,
    normalize_nested,
    normalize_sequential,
    ops,
    render,
)

CONV, BN, RELU = (Op(Operator("module", kind)) for kind in (nn.Conv2d, nn.BatchNorm2d, nn.ReLU))


def applied(outer, *inputs, open=False):  # noqa: A002  the name of the field
    return Op(outer.operator, inputs, open)


def copied(value):
    return pickle.loads(pickle.dumps(value))  # noqa: S301  our own bytes


both_formats = pytest.mark.parametrize("normalize", [normalize_sequential, normalize_nested])


@both_formats
@pytest.mark.parametrize(
    ("spelling", "kind", "target"),
    [
        (nn.Conv2d, "module", nn.Conv2d),
        (F.relu, "function", F.relu),
        (torch.relu, "function", torch.relu),
        (operator.add, "function", operator.add),
        (torch.ops.aten.add.Tensor, "function", torch.ops.aten.add.Tensor),
        (torch.ops.aten.add, "function", torch.ops.aten.add),
        ("relu_", "method", "relu_"),
        ((getattr, "shape"), "getattr", "shape"),
        (ops.relu, "operation", "relu"),
        (Operation("add"), "operation", "add"),
    ],
)
def test_an_operator_is_a_pattern_of_its_kind(normalize, spelling, kind, target):
    assert normalize(spelling) == Op(Operator(kind, target))


@both_formats
def test_a_tuple_of_one_is_its_element(normalize):
    assert normalize((nn.ReLU,)) == RELU


def test_sequential_tuples_are_in_data_flow_order():
    assert normalize_sequential((nn.Conv2d, nn.BatchNorm2d, nn.ReLU)) == applied(
        RELU, applied(BN, CONV)
    )


def test_nested_tuples_name_the_last_operator_first():
    pattern = (nn.ReLU, (operator.add, MatchAllNode, (nn.BatchNorm2d, nn.Conv2d)))
    add = Op(Operator("function", operator.add))
    assert normalize_nested(pattern) == applied(
        RELU, applied(add, MatchAllNode(), applied(BN, CONV))
    )


def test_both_formats_of_a_chain_have_one_canonical_form():
    assert normalize_sequential((nn.Conv2d, nn.BatchNorm2d, "relu")) == normalize_nested(
        ("relu", (nn.BatchNorm2d, nn.Conv2d))
    )


@pytest.mark.parametrize("length", [4, 5, 12, 200])
def test_a_sequential_tuple_may_have_any_length(length):
    pattern = normalize_sequential((nn.Conv2d,) + (nn.ReLU,) * (length - 1))
    for _ in range(length - 1):
        assert pattern.operator == RELU.operator
        (pattern,) = pattern.inputs
    assert pattern == CONV


@pytest.mark.parametrize("wildcard", [MatchAllNode, MatchAllNode()])
def test_a_wildcard_may_be_written_as_class_or_value(wildcard):
    assert normalize_nested((nn.ReLU, wildcard)) == applied(RELU, MatchAllNode())


def test_a_wildcard_may_start_a_sequential_tuple():
    pattern = normalize_sequential((MatchAllNode(literals=True), nn.ReLU))
    assert pattern == applied(RELU, MatchAllNode(literals=True))


@pytest.mark.parametrize("value", [None, True, 0, 1.5, 2j])
def test_a_number_or_none_in_argument_place_is_a_literal(value):
    assert normalize_nested((nn.ReLU, value)) == applied(RELU, LiteralValue(value))


@pytest.mark.parametrize(("value", "other"), [(1, True), (1, 1.0), (0, None), (0, False)])
def test_a_literal_accepts_its_own_type_only(value, other):
    assert LiteralValue(value).accepts(value)
    assert not LiteralValue(value).accepts(other)
    assert LiteralValue(value) != LiteralValue(other)


def test_an_ellipsis_leaves_further_arguments_free():
    assert normalize_nested((nn.ReLU, nn.Conv2d, ...)) == applied(RELU, CONV, open=True)
    assert normalize_nested((nn.ReLU, ...)) == RELU


def test_alternatives_are_flat_distinct_and_in_order():
    nested = any_of(nn.ReLU, any_of(nn.Conv2d, nn.ReLU), nn.BatchNorm2d)
    assert normalize_sequential(nested) == AnyOf((RELU, CONV, BN))


def test_alternatives_of_equal_value_and_different_type_are_distinct():
    pattern = normalize_nested((nn.ReLU, any_of(True, 1, 1.0)))  # noqa: FBT003
    assert len(pattern.inputs[0].choices) == 3


def test_one_alternative_is_the_pattern_itself():
    assert normalize_sequential(any_of(nn.ReLU, nn.ReLU)) == RELU


def test_alternatives_at_the_head_share_their_inputs():
    expected = Step((RELU, BN), (CONV,))
    assert normalize_sequential((nn.Conv2d, any_of(nn.ReLU, nn.BatchNorm2d))) == expected
    assert normalize_nested((any_of(nn.ReLU, nn.BatchNorm2d), nn.Conv2d)) == expected


def test_alternatives_in_a_nested_pattern_may_be_whole_patterns():
    pattern = normalize_nested((nn.ReLU, any_of((nn.BatchNorm2d, nn.Conv2d), nn.Conv2d)))
    assert pattern == applied(RELU, AnyOf((applied(BN, CONV), CONV)))


def test_alternatives_in_a_sequential_pattern_may_be_chains():
    whole = any_of((nn.Conv2d, nn.BatchNorm2d), nn.Conv2d)
    assert normalize_sequential(whole) == AnyOf((applied(BN, CONV), CONV))
    assert normalize_sequential((whole, nn.ReLU)) == applied(RELU, AnyOf((applied(BN, CONV), CONV)))


@both_formats
@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ((), "tuple is empty"),
        (nn.ReLU(), "names an instance; write its type ReLU"),
        (int, "class int is not a torch.nn.Module"),
        (getattr, "getattr needs the attribute's name"),
        ((getattr, 3), "getattr needs the attribute's name"),
        ("not a name", "'not a name' is not a method name"),
        ("", "'' is not a method name"),
        ([nn.Conv2d, nn.ReLU], "nothing anchors it"),
        (any_of(), "any_of needs at least one alternative"),
        ((nn.Conv2d, any_of()), "any_of needs at least one alternative"),
        (MatchAllNode, "nothing anchors it"),
        (any_of(nn.ReLU, MatchAllNode), "nothing anchors it"),
    ],
)
def test_what_is_no_pattern_is_refused_with_its_problem(normalize, pattern, problem):
    with pytest.raises(PatternError, match=re.escape(problem)) as caught:
        normalize(pattern)
    assert caught.value.pattern is pattern
    assert repr(pattern) in str(caught.value)


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ((nn.ReLU, (nn.BatchNorm2d, nn.Conv2d)), "give a nested one as complex_pattern"),
        ((nn.Conv2d, MatchAllNode), "* cannot have inputs"),
        ((nn.Conv2d, (getattr, "shape")), "getattr(shape) reads an attribute"),
        ((nn.Conv2d, 3), "3 is neither a module type, a function nor a method name"),
        ((nn.Conv2d, ...), "Ellipsis is neither"),
        ((nn.Conv2d, applied(RELU, CONV)), "an operator already has inputs"),
        ((nn.Conv2d, any_of(nn.ReLU, MatchAllNode)), "* cannot have inputs"),
    ],
)
def test_what_is_no_sequential_pattern_is_refused_with_its_problem(pattern, problem):
    with pytest.raises(PatternError, match=re.escape(problem)):
        normalize_sequential(pattern)


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        (3, "3 is neither a module type"),
        ((MatchAllNode, nn.Conv2d), "* cannot have inputs"),
        ((3, nn.Conv2d), "3 is neither a module type, a function nor a method name"),
        (((nn.ReLU, nn.Conv2d), nn.Conv2d), "stands where an operator must"),
        ((nn.ReLU, ()), "a tuple is empty"),
        ((nn.ReLU, ..., nn.Conv2d), "Ellipsis is neither"),
        ((nn.ReLU, (nn.Conv2d, object())), "neither a module type"),
        (((getattr, "shape"), nn.Conv2d), "getattr(shape) reads an attribute"),
    ],
)
def test_what_is_no_nested_pattern_is_refused_with_its_problem(pattern, problem):
    with pytest.raises(PatternError, match=re.escape(problem)):
        normalize_nested(pattern)


def test_an_unknown_operation_is_refused_with_the_known_ones():
    with pytest.raises(
        ValueError, match=r"'frobnicate' is not a known operation; known are .*relu"
    ):
        Operation("frobnicate")
    with pytest.raises(AttributeError, match="'frobnicate' is not a known operation"):
        _ = ops.frobnicate


def test_every_operation_is_listed_as_an_attribute():
    assert {"relu", "add", "cat", "flatten"} <= set(dir(ops))
    assert all(getattr(ops, name) == Operation(name) for name in dir(ops))


@pytest.mark.parametrize(
    "pattern",
    [
        normalize_sequential((nn.Conv2d, F.relu, "relu", ops.add)),
        normalize_nested((torch.relu, (operator.add, MatchAllNode, 3))),
        normalize_nested((torch.ops.aten.add.Tensor, any_of(F.max_pool2d, torch.ops.aten.relu))),
    ],
    ids=render,
)
def test_canonical_patterns_pickle(pattern):
    assert copied(pattern) == pattern


def test_alternatives_as_written_pickle():
    written = any_of((nn.ReLU, F.max_pool2d), torch.ops.aten.relu.default)
    assert copied(written) == written


def test_a_function_that_no_module_holds_is_left_to_pickle_to_refuse():
    def local(x):
        return x

    with pytest.raises((AttributeError, pickle.PicklingError), match="local"):
        pickle.dumps(normalize_sequential((nn.Conv2d, local)))


def test_an_operator_with_any_arguments_leaves_the_rest_free_in_a_sequential_tuple() -> None:
    sequential = normalize_sequential((nn.Conv2d, any_arguments(ops.clamp)))
    assert sequential == normalize_nested((ops.clamp, nn.Conv2d, ...))


def test_arguments_named_in_two_calls_all_count():
    twice = call(call(torch.add, alpha=2), out=None)
    assert normalize_nested(twice) == normalize_nested(call(torch.add, alpha=2, out=None))
    with pytest.raises(PatternError, match="call is given alpha twice"):
        normalize_nested(call(call(torch.add, alpha=2), alpha=3))


def test_names_within_names_are_filled_in_everywhere():
    """A bare place of a name is the same pattern as the place that says what it is."""
    inner = capture("b", nn.Conv2d)
    whole = normalize_nested((torch.add, capture("a", (torch.neg, capture("b"))), inner))
    assert whole == normalize_nested((torch.add, capture("a", (torch.neg, inner)), inner))


@pytest.mark.parametrize(
    "pattern",
    [
        (torch.add, capture("x", (torch.neg, capture("x")))),
        (
            torch.add,
            capture("a", (torch.neg, capture("b"))),
            capture("b", (torch.neg, capture("a"))),
        ),
    ],
)
def test_a_value_is_no_part_of_itself(pattern):
    with pytest.raises(PatternError, match="stands for"):
        normalize_nested(pattern)


def test_a_name_stands_for_one_pattern():
    with pytest.raises(PatternError, match="'x' stands for two different patterns"):
        normalize_nested((torch.add, capture("x", nn.Conv2d), capture("x", nn.Linear)))


@pytest.mark.parametrize(
    "operation", [torch.sub, operator.matmul, torch.cat, operator.pow, ops.div]
)
def test_operands_whose_order_matters_cannot_be_in_any_order(operation):
    with pytest.raises(PatternError, match=r"the order of the operands .* matters"):
        normalize_nested(any_order(operation, nn.Conv2d, MatchAllNode))
