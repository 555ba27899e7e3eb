"""One sweep: every node has at most one owner, and the cost depends on the graph alone."""

# ruff: noqa: ARG005  a forward takes self, used or not

from __future__ import annotations

import operator

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import fx, nn

from fusion_core.matcher import CallGraph, NoMatch, PatternIndex, nearest_miss, scan
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
CONV_BN = (nn.BatchNorm2d, nn.Conv2d)
CONV_BN_RELU = (ops.relu, CONV_BN)
RESIDUAL = (ops.relu, (ops.add, ANY, CONV_BN))


def convs(*names):
    made = {f"conv{name}": nn.Conv2d(1, 1, 1) for name in names}
    return made | {f"bn{name}": nn.BatchNorm2d(1) for name in names}


def claimed(result):
    return [[node.name for node in match.nodes] for match in result.matches]


class TestOwnership:
    def test_the_value_of_a_wildcard_stays_free_for_its_own_match(self, graphs):
        """M1."""

        def forward(self, x):
            a = F.relu(self.bn1(self.conv1(x)))
            return F.relu(a + self.bn2(self.conv2(x)))

        result = graphs.sweep(graphs.traced(forward, **convs(1, 2)), RESIDUAL, CONV_BN_RELU)
        assert claimed(result) == [["relu_1", "add", "bn2", "conv2"], ["relu", "bn1", "conv1"]]

    def test_residual_blocks_in_series_all_match(self, graphs):
        """M2."""

        def forward(self, x):
            x = self.conv0(x)
            for conv in (self.conv1, self.conv2):
                x = F.relu(conv(x) + x)
            return x

        calls = graphs.traced(forward, **convs(0, 1, 2))
        result = graphs.sweep(calls, (ops.relu, (ops.add, nn.Conv2d, ANY)), nn.Conv2d)
        assert claimed(result) == [
            ["relu_1", "add_1", "conv2"],
            ["relu", "add", "conv1"],
            ["conv0"],
        ]

    def test_a_value_with_two_users_is_not_hidden(self, graphs):
        """M4."""

        def forward(self, x):
            t = self.conv1(x)
            return F.relu(t) + t

        result = graphs.sweep(graphs.traced(forward, **convs(1)), (ops.relu, nn.Conv2d), nn.Conv2d)
        assert claimed(result) == [["conv1"]]

    def test_the_longer_match_wins_whatever_the_order(self, graphs):
        """M7."""
        calls = graphs.traced(lambda self, x: F.relu(self.bn1(self.conv1(x))), **convs(1))
        shorter = (ops.relu, nn.BatchNorm2d)
        for patterns in ([CONV_BN_RELU, shorter], [shorter, CONV_BN_RELU]):
            assert claimed(graphs.sweep(calls, *patterns)) == [["relu", "bn1", "conv1"]]

    def test_a_claimed_node_anchors_no_match(self, graphs):
        calls = graphs.traced(lambda self, x: torch.exp(torch.abs(torch.neg(x))))
        patterns = [(torch.exp, torch.abs), (torch.abs, torch.neg), torch.neg]
        assert claimed(graphs.sweep(calls, *patterns)) == [["exp", "abs_1"], ["neg"]]

    def test_in_a_run_of_like_calls_the_last_ones_pair_first(self, graphs):
        calls = graphs.traced(lambda self, x: torch.neg(torch.neg(torch.neg(x))))
        result = graphs.sweep(calls, (torch.neg, torch.neg))
        assert claimed(result) == [["neg_2", "neg_1"]]


class TestAccept:
    def test_a_refused_match_leaves_its_nodes_to_the_next_pattern(self, graphs):
        calls = graphs.traced(lambda self, x: F.relu(self.bn1(self.conv1(x))), **convs(1))

        def only_pairs(match):
            return None if len(match.nodes) == 2 else NoMatch("{} nodes", (len(match.nodes),))

        result = graphs.sweep(calls, CONV_BN_RELU, (ops.relu, nn.BatchNorm2d), accept=only_pairs)
        assert claimed(result) == [["relu", "bn1"]]
        ((entry, refusal),) = result.refusals[result.matches[0].anchor]
        assert (entry, refusal.reason) == (0, "3 nodes")

    def test_what_is_accepted_is_asked_once(self, graphs):
        calls = graphs.traced(lambda self, x: F.relu(self.conv1(x)), **convs(1))
        asked = []
        graphs.sweep(calls, (ops.relu, nn.Conv2d), nn.Conv2d, accept=asked.append)
        assert len(asked) == 1


class TestReasons:
    def test_every_refusal_has_a_sentence(self, graphs):
        def forward(self, x):
            t = self.conv1(x)
            a = torch.add(t, self.conv2(x), alpha=2)
            return torch.flatten(F.relu(t), 1), F.relu(a + a), self.conv3(x) + 1

        patterns = [
            *((ops.relu, nn.Conv2d), (ops.add, nn.Conv2d, ANY), (ops.flatten, ops.relu)),
            (ops.relu, (ops.add, ops.add, ops.add)),
        ]
        result = graphs.sweep(graphs.traced(forward, **convs(1, 2, 3)), *patterns)
        reasons = {no.reason for refused in result.refusals.values() for _, no in refused}
        assert not result.matches
        assert reasons == {
            "conv1 is also used by add",
            "add has alpha=2, which no place of the pattern names",
            "flatten has start_dim=1, which no place of the pattern names",
        }

    def test_the_nearest_miss_is_the_pattern_that_came_furthest(self, graphs):
        calls = graphs.traced(lambda self, x: F.relu(self.bn1(x)), **convs(1))
        patterns = [(ops.relu, nn.Conv2d), CONV_BN_RELU, (F.relu, nn.Linear), nn.Conv2d]
        index = PatternIndex((normalize_nested(each), each) for each in patterns)
        pattern, refusal = nearest_miss(graphs.last_call(calls), calls, index)
        assert pattern == CONV_BN_RELU
        assert refusal.reason == "x (placeholder) is not Conv2d"

    def test_there_is_no_miss_where_no_pattern_ends(self, graphs):
        calls = graphs.traced(lambda self, x: torch.tanh(x))
        index = PatternIndex([(normalize_nested(CONV_BN), None)])
        assert nearest_miss(graphs.last_call(calls), calls, index) is None


def many(count, make):
    """``count`` distinct patterns; ``make`` gets a function of its own for each."""
    return [normalize_nested(make(lambda x, _place=place: x)) for place in range(count)]


FAMILIES = {
    "anchored elsewhere": lambda own: (own, nn.Conv2d),
    "another first operand": lambda own: (ops.relu, own),
    "another operand deep down": lambda own: (ops.relu, (nn.BatchNorm2d, (nn.Conv2d, own))),
    "another operand behind a wildcard": lambda own: (ops.add, ANY, own),
    "alternatives elsewhere": lambda own: (ops.relu, any_of(own, (own, ANY))),
}


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_the_cost_does_not_grow_with_patterns_that_cannot_match(graphs, family):
    def forward(self, x):
        return F.relu(self.bn1(self.conv1(x))) + x

    calls = graphs.traced(forward, **convs(1))
    own = [normalize_nested(each) for each in (CONV_BN_RELU, (ops.add, ops.relu, ANY))]
    results = [
        scan(calls, PatternIndex((each, None) for each in (*own, *many(count, family))))
        for count in (10, 1000)
    ]
    assert {(each.visited, each.tried) for each in results} == {(len(calls.graph.nodes), 1)}
    assert len({str(claimed(each)) for each in results}) == 1


def test_a_chain_of_twenty_thousand_calls_is_swept_without_recursion(graphs):
    graph = fx.Graph()
    node = graph.placeholder("x")
    for place in range(20_000):
        node = graph.call_function((torch.neg, torch.abs)[place % 2], (node,))
    graph.output(node)
    result = graphs.sweep(CallGraph(graph, {}), (torch.abs, torch.neg))
    assert (len(result.matches), result.visited, result.tried) == (10_000, 20_002, 10_000)


def test_candidates_come_larger_ones_first_then_in_the_order_given(graphs):
    calls = graphs.traced(lambda self, x: F.relu(self.bn1(self.conv1(x))), **convs(1))
    patterns = [ops.relu, (F.relu, ANY), CONV_BN_RELU, (ops.relu, nn.Linear), F.relu]
    index = PatternIndex((normalize_nested(each), place) for place, each in enumerate(patterns))
    found = index.candidates(graphs.last_call(calls), calls)
    assert [place for _, place in found] == [2, 0, 4, 1]


@pytest.mark.parametrize("value", [None, True, 2, 0.5, "reflect", (1, 2), torch.float16])
def test_candidates_are_found_by_any_constant(value):
    graph = fx.Graph()
    node = graph.call_function(F.pad, (graph.placeholder("x"), value))
    pattern = Op(Operator("function", F.pad), (ANY(), LiteralValue(value)))
    other = normalize_nested((F.pad, ANY, 7))
    index = PatternIndex([(other, "other"), (pattern, "own")])
    assert index.candidates(node, CallGraph(graph, {})) == [(pattern, "own")]


def test_what_cannot_be_hashed_is_no_constant(graphs):
    calls = graphs.traced(lambda self, x: x[1:2] + 1)
    slicing, _ = (node for node in calls.graph.nodes if node.op == "call_function")
    index = PatternIndex([(normalize_nested((operator.getitem, ANY, 3)), None)])
    assert index.candidates(slicing, calls) == []
