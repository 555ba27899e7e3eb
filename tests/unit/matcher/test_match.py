"""One pattern at one node: what matches, what does not, and the sentence that says why."""

# ruff: noqa: ARG005  a forward takes self, used or not

from __future__ import annotations

import operator

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import fx, nn
from torch.nn.utils import parametrizations

from fusion_core.matcher import CallGraph, Match, NoMatch, match_at
from fusion_core.patterns import (
    LiteralValue,
    MatchAllNode,
    Op,
    Operator,
    any_of,
    normalize_nested,
    ops,
)

ANY = MatchAllNode
LITERAL = MatchAllNode(literals=True)
CONV_RELU = (nn.ReLU, nn.Conv2d)
RESIDUAL = (ops.relu, (ops.add, ANY, nn.Conv2d))


@pytest.fixture
def tried(graphs):
    """The result of a pattern at the last call of a graph with a few modules."""

    def tried(pattern, forward):
        return graphs.match(pattern, graphs.traced(forward, **modules()))

    return tried


def modules():
    return {
        "conv": nn.Conv2d(2, 2, 1),
        "conv2": nn.Conv2d(2, 2, 1),
        "bn": nn.BatchNorm2d(2),
        "relu": nn.ReLU(),
        "linear": nn.Linear(2, 2),
    }


@pytest.mark.parametrize(
    ("pattern", "forward"),
    [
        (nn.Conv2d, lambda self, x: self.conv(x)),
        (F.relu, lambda self, x: F.relu(x)),
        (torch.relu, lambda self, x: torch.relu(x)),
        (operator.add, lambda self, x: x + 1),
        (torch.ops.aten.relu.default, lambda self, x: torch.ops.aten.relu.default(x)),
        (torch.ops.aten.relu, lambda self, x: torch.ops.aten.relu.default(x)),
        ("relu", lambda self, x: x.relu()),
        ((getattr, "shape"), lambda self, x: x.shape),
        (ops.relu, lambda self, x: x.relu_()),
        (ops.add, lambda self, x: x.add(x)),
        (CONV_RELU, lambda self, x: self.relu(self.conv(x))),
        (CONV_RELU, lambda self, x: self.relu(input=self.conv(input=x))),
        (("relu", nn.Conv2d), lambda self, x: self.conv(x).relu()),
        ((F.relu, nn.Conv2d), lambda self, x: F.relu(input=self.conv(x), inplace=True)),
        ((nn.ReLU, (getattr, "T")), lambda self, x: self.relu(x.T)),
        ((ops.add, nn.Conv2d, ANY), lambda self, x: torch.add(self.conv(x), x)),
        ((ops.add, nn.Conv2d, ANY), lambda self, x: torch.add(other=x, input=self.conv(x))),
        ((ops.add, nn.Conv2d, ANY), lambda self, x: self.conv(x).add(x, alpha=1)),
        ((ops.add, ANY, ANY), lambda self, x: x + x),
        ((ops.add, ANY, 1), lambda self, x: x + 1),
        ((ops.add, ANY, LITERAL), lambda self, x: x + 2.5),
        ((ops.add, ANY, LITERAL), lambda self, x: x + x),
        ((torch.flatten, nn.Conv2d, 1), lambda self, x: torch.flatten(self.conv(x), start_dim=1)),
        ((torch.flatten, nn.Conv2d), lambda self, x: torch.flatten(self.conv(x))),
        ((torch.flatten, nn.Conv2d), lambda self, x: torch.flatten(self.conv(x), 0, -1)),
        ((torch.flatten, nn.Conv2d, ...), lambda self, x: torch.flatten(self.conv(x), 1)),
        ((ops.max_pool2d, nn.Conv2d, ...), lambda self, x: F.max_pool2d(self.conv(x), 2)),
        (torch.clamp, lambda self, x: torch.clamp(x, 0, 6)),
        ((torch.clamp, nn.Conv2d, 0, 6), lambda self, x: torch.clamp(self.conv(x), 0, max=6)),
        ((any_of(nn.ReLU, F.relu), nn.Conv2d), lambda self, x: F.relu(self.conv(x))),
        (
            (nn.ReLU, any_of((nn.BatchNorm2d, nn.Conv2d), nn.Conv2d)),
            lambda self, x: self.relu(self.conv(x)),
        ),
        (RESIDUAL, lambda self, x: F.relu(x + self.conv(x))),
    ],
)
def test_a_pattern_matches_every_spelling_of_its_calls(tried, pattern, forward):
    assert isinstance(tried(pattern, forward), Match)


@pytest.mark.parametrize(
    ("pattern", "forward", "reason"),
    [
        (nn.Conv1d, lambda self, x: self.conv(x), "conv (Conv2d) is not Conv1d"),
        (F.relu, lambda self, x: x.relu(), "relu (.relu) is not functional.relu"),
        ((getattr, "T"), lambda self, x: x.shape, "getattr_1 (getattr(shape)) is not getattr(T)"),
        (ops.relu, lambda self, x: F.relu6(x), "relu6 (functional.relu6) is not relu"),
        (CONV_RELU, lambda self, x: self.relu(x), "x (placeholder) is not Conv2d"),
        ((ops.add, nn.Conv2d, ANY), lambda self, x: 1 + x, "1 is not Conv2d"),
        (
            (ops.add, ANY, nn.Conv2d),
            lambda self, x: torch.add(x, self.conv(x), alpha=2),
            "add has alpha=2, which no place of the pattern names",
        ),
        (torch.add, lambda self, x: torch.add(x, x, alpha=2), "add has alpha=2, which no place"),
        (
            (torch.flatten, nn.Conv2d),
            lambda self, x: torch.flatten(self.conv(x), 1),
            "flatten has start_dim=1, which no place of the pattern names",
        ),
        (
            (torch.flatten, nn.Conv2d, 1),
            lambda self, x: torch.flatten(self.conv(x), 2),
            "2 is not 1",
        ),
        (
            (torch.flatten, nn.Conv2d, 0),
            lambda self, x: torch.flatten(self.conv(x)),
            "flatten has 1 arguments, not 2",
        ),
        ((ops.add, ANY, 1), lambda self, x: x + True, "True is not 1"),
        ((ops.add, ANY, 1), lambda self, x: x + x, "x is not 1"),
        (
            (ops.add, nn.Conv2d, ANY),
            lambda self, x: self.conv(x) + 1,
            "the wildcard stands for a value of the graph, not 1",
        ),
        (
            (ops.cat, ANY),
            lambda self, x: torch.cat([x, x]),
            "the wildcard stands for a value of the graph, not [x, x]",
        ),
        (
            (nn.ReLU, any_of(nn.Conv1d, (nn.BatchNorm2d, nn.Conv1d))),
            lambda self, x: self.relu(self.bn(self.conv(x))),
            "conv (Conv2d) is not Conv1d",
        ),
    ],
)
def test_another_call_is_refused_with_a_sentence(tried, pattern, forward, reason):
    found = tried(pattern, forward)
    assert isinstance(found, NoMatch)
    assert found.reason.startswith(reason)


class TestUsers:
    def test_an_inner_value_that_is_read_elsewhere_is_refused(self, graphs):
        calls = graphs.traced(lambda self, x: (t := self.conv(x), self.relu(t) + t)[1], **modules())
        relu = next(node for node in calls.graph.nodes if node.name == "relu")
        assert graphs.match(CONV_RELU, calls, relu).reason == "conv is also used by add"

    def test_an_inner_value_that_is_returned_is_refused(self, graphs):
        def forward(self, x):
            t = x + self.conv(x)
            return self.relu(t), t

        found = graphs.match(RESIDUAL, graphs.traced(forward, **modules()))
        assert found.reason == "add is also used by output"

    def test_the_anchor_may_have_any_number_of_users(self, graphs):
        calls = graphs.traced(lambda self, x: (r := self.relu(self.conv(x)), r), **modules())
        assert isinstance(graphs.match(CONV_RELU, calls), Match)

    def test_a_wildcard_may_have_any_number_of_users(self, graphs):
        def forward(self, x):
            y = self.bn(x)
            return y, self.relu(y + self.conv(y))

        assert isinstance(graphs.match(RESIDUAL, graphs.traced(forward, **modules())), Match)


class TestOneNodeInTwoPlaces:
    @pytest.mark.parametrize("pattern", [(ops.add, ANY, nn.Conv2d), (ops.add, nn.Conv2d, ANY)])
    def test_a_wildcard_never_binds_a_node_of_the_match(self, tried, pattern):
        found = tried(pattern, lambda self, x: (y := self.conv(x)) + y)
        assert found.reason == "conv stands for an operator and is an operand left free at once"

    def test_an_argument_left_free_is_never_a_node_of_the_match(self, tried):
        found = tried(
            (torch.clamp, nn.Conv2d, ...), lambda self, x: torch.clamp(t := self.conv(x), t)
        )
        assert found.reason == "conv stands for an operator and is an operand left free at once"

    def test_an_operator_stands_in_one_place(self, tried):
        found = tried((ops.add, nn.Conv2d, nn.Conv2d), lambda self, x: (y := self.conv(x)) + y)
        assert found.reason == "conv stands in two places"

    def test_two_operators_of_one_type_are_two_nodes(self, tried):
        found = tried((ops.add, nn.Conv2d, nn.Conv2d), lambda self, x: self.conv(x) + self.conv2(x))
        assert {node.name for node in found.nodes} == {"add", "conv", "conv2"}


class TestModules:
    def test_a_parametrized_module_matches_its_original_type(self, graphs):
        conv = parametrizations.weight_norm(nn.Conv2d(1, 1, 1))
        calls = graphs.traced(lambda self, x: F.relu(self.conv(x)), conv=conv)
        assert isinstance(graphs.match((ops.relu, nn.Conv2d), calls), Match)

    @pytest.mark.parametrize("register", ["register_forward_hook", "register_forward_pre_hook"])
    def test_a_hooked_module_is_refused(self, graphs, register):
        conv = nn.Conv2d(1, 1, 1)
        getattr(conv, register)(lambda *_: None)
        found = graphs.match(nn.Conv2d, graphs.traced(lambda self, x: self.conv(x), conv=conv))
        assert found.reason == "conv has forward hooks, which a replacement would not run"

    def test_a_module_called_from_two_places_is_refused_at_both(self, graphs):
        calls = graphs.traced(
            lambda self, x: self.bn(self.conv(self.bn(self.conv(x)))), **modules()
        )
        found = [graphs.match((nn.BatchNorm2d, nn.Conv2d), calls, n) for n in calls.graph.nodes]
        reasons = {each.reason for each in found if each.reason.startswith("bn is called")}
        assert reasons == {"bn is called from 2 places"}
        assert not any(isinstance(each, Match) for each in found)


class TestMatch:
    def test_claimed_are_the_operators_anchor_first_without_the_wildcards(self, graphs):
        calls = graphs.traced(lambda self, x: F.relu(self.bn(x) + self.conv(x)), **modules())
        match = graphs.match(RESIDUAL, calls)
        assert [node.name for node in match.nodes] == ["relu", "add", "conv"]
        assert (match.anchor.name, match.entry) == ("relu", "entry")

    @pytest.mark.parametrize(
        ("pattern", "shape"),
        [
            (ops.relu, "relu"),
            (RESIDUAL, ("relu", ("add", "bn", "conv"))),
            ((ops.relu, (ops.add, (nn.BatchNorm2d, ANY), nn.Conv2d)), None),
            ((ops.relu, any_of((ops.add, ANY, ANY), nn.Conv2d)), ("relu", ("add", "bn", "conv"))),
        ],
    )
    def test_the_node_pattern_has_the_shape_of_the_nested_pattern(self, graphs, pattern, shape):
        calls = graphs.traced(lambda self, x: F.relu(self.bn(x) + self.conv(x)), **modules())
        expected = shape or ("relu", ("add", ("bn", "x"), "conv"))
        assert graphs.names(graphs.match(pattern, calls).node_pattern) == expected

    def test_literals_stand_in_the_node_pattern_as_they_are(self, graphs):
        calls = graphs.traced(lambda self, x: torch.clamp(self.conv(x), 0, 6), **modules())
        match = graphs.match((torch.clamp, nn.Conv2d, 0, LITERAL), calls)
        assert graphs.names(match.node_pattern) == ("clamp", "conv", 0, 6)

    def test_a_failed_alternative_leaves_nothing_claimed(self, graphs):
        calls = graphs.traced(lambda self, x: self.relu(self.bn(self.conv(x))), **modules())
        pattern = (nn.ReLU, any_of((nn.BatchNorm2d, nn.Conv1d), (nn.BatchNorm2d, nn.Conv2d)))
        match = graphs.match(pattern, calls)
        assert [node.name for node in match.nodes] == ["relu", "bn", "conv"]

    def test_a_failed_alternative_leaves_nothing_bound(self, graphs):
        calls = graphs.traced(lambda self, x: self.relu(self.conv(x) + x), **modules())
        pattern = (nn.ReLU, any_of((ops.add, ANY, nn.Linear), (ops.add, nn.Conv2d, ANY)))
        match = graphs.match(pattern, calls)
        assert graphs.names(match.node_pattern) == ("relu", ("add", "conv", "x"))

    def test_a_nearer_miss_is_deeper(self, tried):
        def forward(self, x):
            return self.relu(self.bn(self.linear(x)))

        patterns = [nn.Conv2d, CONV_RELU, (nn.ReLU, (nn.BatchNorm2d, nn.Conv2d))]
        assert [tried(each, forward).depth for each in patterns] == [0, 1, 2]


class TestOperandOrder:
    def test_a_wildcard_operand_computed_after_the_root_is_no_obstacle(self, graphs):
        def forward(self, x):
            y = self.conv(x)
            z = torch.sigmoid(self.bn(x))
            return F.relu(z + y)

        match = graphs.match(RESIDUAL, graphs.traced(forward, **modules()))
        assert graphs.names(match.node_pattern) == ("relu", ("add", "sigmoid", "conv"))

    def test_a_wildcard_operand_that_depends_on_the_match_is_refused(self, graphs):
        def forward(self, x):
            y = self.conv(x)
            z = torch.sigmoid(y)
            return F.relu(z + y)

        found = graphs.match(RESIDUAL, graphs.traced(forward, **modules()))
        assert found.reason == "conv is also used by sigmoid"

    def test_operands_are_not_commutative(self, tried):
        assert isinstance(tried(RESIDUAL, lambda self, x: F.relu(self.conv(x) + x)), NoMatch)


@pytest.mark.parametrize("value", [(1, 2), "reflect", torch.float16, 1 + 2j])
def test_a_canonical_literal_may_be_any_constant(value):
    graph = fx.Graph()
    node = graph.call_function(F.pad, (graph.placeholder("x"), value))
    calls = CallGraph(graph, {})
    pattern = Op(Operator("function", F.pad), (ANY(), LiteralValue(value)))
    assert isinstance(match_at(pattern, node, calls, None), Match)
    other = normalize_nested((F.pad, ANY, 7))
    assert match_at(other, node, calls, None).reason == f"{value!r} is not 7"
