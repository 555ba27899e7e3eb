"""What alternatives, conditions, names and the like match, each a rule with its right value."""

# ruff: noqa: ARG005  a forward takes self, used or not

from __future__ import annotations

import operator

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from fusion_core.configs import Skip
from fusion_core.errors import PredicateError
from fusion_core.matcher import Match, NoMatch
from fusion_core.patterns import (
    MatchAllNode,
    any_of,
    any_order,
    call,
    capture,
    chain,
    literal,
    normalize_sequential,
    operator_count,
    ops,
    optional,
    where,
)

ANY = MatchAllNode


def layers():
    return {
        "conv": nn.Conv2d(3, 3, 1),
        "other": nn.Conv2d(3, 3, 3),
        "bn": nn.BatchNorm2d(3),
        "fc": nn.Linear(3, 3),
    }


@pytest.fixture
def tried(graphs):
    """``tried(pattern, forward)``: the match or no match at the last call."""
    return lambda pattern, forward: graphs.match(pattern, graphs.traced(forward, **layers()))


@pytest.fixture
def shape(graphs, tried):
    """The names in a match's node pattern, or the reason why there is none."""

    def shape(pattern, forward):
        found = tried(pattern, forward)
        if isinstance(found, NoMatch):
            return found.reason
        return graphs.names(found.node_pattern)

    return shape


class TestOptional:
    BLOCK = (any_of(ops.relu, ops.relu6), (optional(nn.BatchNorm2d), nn.Conv2d))

    def test_a_step_that_is_there_is_taken(self, shape):
        assert shape(self.BLOCK, lambda self, x: F.relu(self.bn(self.conv(x)))) == (
            "relu",
            ("bn", "conv"),
        )

    def test_none_stands_for_one_that_is_missing(self, shape):
        assert shape(self.BLOCK, lambda self, x: F.relu6(self.conv(x))) == (
            "relu6",
            (None, "conv"),
        )

    def test_it_is_a_step_of_a_chain_too(self, graphs):
        pattern = normalize_sequential((nn.Conv2d, optional(nn.BatchNorm2d), ops.relu))
        for forward in (
            lambda self, x: F.relu(self.bn(self.conv(x))),
            lambda self, x: torch.relu(self.conv(x)),
        ):
            assert isinstance(graphs.match(pattern, graphs.traced(forward, **layers())), Match)

    def test_the_last_step_may_be_missing(self, shape):
        pattern = (optional(ops.relu), nn.Conv2d)
        assert shape(pattern, lambda self, x: self.conv(x)) == (None, "conv")
        assert shape(pattern, lambda self, x: self.conv(x).relu()) == ("relu", "conv")


class TestAnyOrder:
    SUM = any_order(ops.add, ANY, (nn.BatchNorm2d, nn.Conv2d))

    @pytest.mark.parametrize(
        "forward",
        [
            lambda self, x: x + self.bn(self.conv(x)),
            lambda self, x: self.bn(self.conv(x)) + x,
            lambda self, x: torch.add(self.bn(self.conv(x)), other=x),
            lambda self, x: x.add(self.bn(self.conv(x))),
        ],
    )
    def test_operands_stand_as_the_pattern_has_them(self, shape, forward):
        assert shape(self.SUM, forward) == ("add", "x", ("bn", "conv"))

    def test_where_both_orders_fit_the_written_one_is_taken(self, shape):
        assert shape(
            any_order(ops.add, ANY, nn.Conv2d), lambda self, x: self.conv(x) + self.other(x)
        ) == ("add", "conv", "other")

    def test_another_weight_of_the_sum_is_no_sum(self, shape):
        reason = shape(self.SUM, lambda self, x: torch.add(x, self.bn(self.conv(x)), alpha=2))
        assert reason == "add has alpha=2, which no place of the pattern names"


class TestCapture:
    SWISH = any_order(ops.mul, capture("x"), (ops.sigmoid, capture("x", nn.Conv2d)))

    def test_both_readers_of_a_named_value_may_be_inside(self, tried):
        def forward(self, x):
            y = self.conv(x)
            return y * torch.sigmoid(y)

        match = tried(self.SWISH, forward)
        assert [node.name for node in match.nodes] == ["mul", "conv", "sigmoid"]
        assert match.captures["x"].name == "conv"

    def test_two_values_are_not_one(self, shape):
        reason = shape(self.SWISH, lambda self, x: self.conv(x) * torch.sigmoid(self.other(x)))
        assert reason in {
            "other is not conv, which stands for x",
            "conv is not other, which stands for x",
        }

    def test_a_third_reader_is_outside(self, shape):
        def forward(self, x):
            y = self.conv(x)
            z = y * torch.sigmoid(y)
            return y, z

        assert "is also used by" in shape(self.SWISH, forward)

    def test_a_constant_may_have_a_name(self, tried):
        pattern = (ops.add, capture("a", ANY(literals=True)), capture("a", ANY(literals=True)))
        assert isinstance(tried(pattern, lambda self, x: x + x), Match)
        scaled = call(torch.add, ANY, ANY, alpha=ANY(literals=True))
        assert isinstance(tried(scaled, lambda self, x: torch.add(x, x, alpha=3)), Match)

    def test_several_outputs_of_one_function_meet_again(self, tried):
        halves = capture("halves", ops.chunk)
        pattern = (ops.mul, (operator.getitem, halves, 0), (operator.getitem, halves, 1))

        def forward(_self, x):
            parts = x.chunk(2)
            return parts[0] * parts[1]

        assert len(tried(pattern, forward).nodes) == 4


class TestCall:
    @pytest.mark.parametrize(
        "forward",
        [
            lambda self, x: torch.flatten(x, 1),
            lambda self, x: torch.flatten(x, start_dim=1),
            lambda self, x: x.flatten(1),
            lambda self, x: torch.flatten(input=x, start_dim=1, end_dim=-1),
        ],
    )
    def test_an_argument_by_name_is_found_however_it_is_given(self, tried, forward):
        assert isinstance(tried((call(ops.flatten, start_dim=1), ANY), forward), Match)

    def test_other_arguments_must_still_have_their_defaults(self, shape):
        reason = shape(
            (call(ops.flatten, start_dim=1), ANY), lambda self, x: torch.flatten(x, 1, 2)
        )
        assert reason == "flatten has end_dim=2, which no place of the pattern names"

    def test_a_name_that_a_spelling_lacks_has_the_operations_default(self, tried):
        assert isinstance(tried((call(ops.add, alpha=1), ANY, ANY), lambda self, x: x + x), Match)
        assert isinstance(tried((call(ops.add, alpha=2), ANY, ANY), lambda self, x: x + x), NoMatch)

    def test_a_module_has_attributes_by_name(self, shape):
        small = call(nn.Conv2d, kernel_size=any_of(1, 5), groups=1)
        assert shape(small, lambda self, x: self.conv(x)) == "conv"
        reason = shape(small, lambda self, x: self.other(x))
        assert reason == "other has kernel_size=(3, 3); kernel_size must be any_of(1, 5)"

    def test_a_string_is_a_constant_there(self, tried):
        zeros = call(F.pad, ANY, ..., mode="constant")
        assert isinstance(tried(zeros, lambda self, x: F.pad(x, (1, 1))), Match)
        assert isinstance(tried(zeros, lambda self, x: F.pad(x, (1, 1), "reflect")), NoMatch)


class TestLists:
    def test_a_list_is_looked_into(self, shape, tried):
        pattern = (ops.cat, [nn.Conv2d, ANY])
        match = tried(pattern, lambda self, x: torch.cat([self.conv(x), x]))
        assert str(match.node_pattern) == "(cat, [conv, x])"
        assert (
            shape(pattern, lambda self, x: torch.cat([self.conv(x), x, x]))
            == "the list has 3 items, not 2"
        )

    def test_more_items_may_follow_dots(self, tried):
        pattern = (call(ops.cat, dim=1), [nn.Conv2d, ...])
        assert isinstance(tried(pattern, lambda self, x: torch.cat((self.conv(x), x, x), 1)), Match)

    def test_a_value_among_the_further_items_is_no_part_of_the_match(self, shape):
        def forward(self, x):
            y = self.conv(x)
            return torch.cat([y, y])

        assert "left free" in shape((ops.cat, [nn.Conv2d, ...]), forward)


class TestWhere:
    def test_the_reason_is_given(self, shape):
        small = where(nn.Conv2d, lambda node, conv: conv.kernel_size[0] < 3, "kernels up to 2x2")
        assert shape((ops.relu, small), lambda self, x: F.relu(self.conv(x))) == ("relu", "conv")
        reason = shape((ops.relu, small), lambda self, x: F.relu(self.other(x)))
        assert reason == "other does not fulfil the condition: kernels up to 2x2"

    def test_a_skip_brings_a_reason_of_its_own(self, shape):
        never = where(nn.Conv2d, lambda node, conv: Skip(f"{conv.out_channels} channels"))
        reason = shape(never, lambda self, x: self.conv(x))
        assert reason == "conv does not fulfil the condition: 3 channels"

    def test_a_condition_that_raises_names_pattern_and_node(self, tried):
        broken = where(nn.Conv2d, lambda node, conv: 1 / 0, "never asked")
        with pytest.raises(PredicateError, match=r"entry: .*'never asked' raised at conv: Zero"):
            tried(broken, lambda self, x: self.conv(x))


class TestChoices:
    def test_a_choice_that_fails_later_does_not_hide_another(self, shape):
        """The wildcard fits first, but then the convolution would be read from outside."""
        pattern = (ops.add, any_of(ANY, nn.Conv2d), (ops.relu, capture("y", nn.Conv2d)))
        shared = (ops.add, any_of(capture("y"), ANY), (ops.relu, capture("y", nn.Conv2d)))

        def forward(self, x):
            y = self.conv(x)
            return y + F.relu(y)

        assert "is also used by" in shape(pattern, forward) or "free" in shape(pattern, forward)
        assert shape(shared, forward) == ("add", "conv", ("relu", "conv"))

    def test_the_match_with_most_nodes_wins_whatever_a_pattern_could_be(self, graphs):
        calls = graphs.traced(lambda self, x: F.relu(self.bn(x)), **layers())
        longer = (ops.relu, any_of((nn.BatchNorm2d, (nn.Conv2d, nn.Conv2d)), ANY))
        result = graphs.sweep(calls, longer, (ops.relu, nn.BatchNorm2d))
        assert [match.entry for match in result.matches] == [1]

    def test_many_alternatives_in_a_row_cost_no_more_than_they_are_long(self, graphs):
        """Three to the power of sixty ways to read it, and one of them fits."""
        either = any_of(torch.neg, torch.abs, torch.exp)
        pattern = normalize_sequential((nn.Conv2d, *[either] * 60))
        assert operator_count(pattern) == 61

        def forward(self, x):
            x = self.conv(x)
            for place in range(60):
                x = (torch.neg, torch.abs, torch.exp)[place % 3](x)
            return x

        result = graphs.sweep(graphs.traced(forward, **layers()), pattern)
        assert len(result.matches[0].nodes) == 61

    def test_a_chain_within_a_nested_pattern(self, shape):
        pattern = (ops.relu, (ops.add, ANY, chain(nn.Conv2d, nn.BatchNorm2d)))
        assert shape(pattern, lambda self, x: F.relu(x + self.bn(self.conv(x)))) == (
            "relu",
            ("add", "x", ("bn", "conv")),
        )

    def test_a_literal_may_be_a_string(self, tried):
        pattern = (F.pad, ANY, ANY(literals=True), literal("reflect"))
        assert isinstance(tried(pattern, lambda self, x: F.pad(x, (1, 1), "reflect")), Match)


@pytest.mark.parametrize(
    "family",
    [
        lambda place: (call(ops.flatten, start_dim=place + 2), ANY),
        lambda place: (ops.cat, [*[ANY] * 2, *[nn.Linear] * (place % 50 + 1)]),
        lambda place: (any_of(ops.relu, ops.flatten), (optional(nn.Linear), (ops.add, ANY, place))),
    ],
    ids=["arguments by name", "lists", "optional steps"],
)
def test_constraints_that_fail_are_not_even_tried(graphs, family):
    calls = graphs.traced(lambda self, x: torch.flatten(self.conv(x), 1), **layers())
    few, many = (
        graphs.sweep(calls, (call(ops.flatten, start_dim=1), ANY), *map(family, range(count)))
        for count in (10, 1000)
    )
    assert few.tried == many.tried == 1
