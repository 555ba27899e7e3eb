"""The part of the grammar that PyTorch's own matcher has means what it means there, but for these."""

# ruff: noqa: ARG005  a forward takes self, used or not

from __future__ import annotations

import itertools
import operator
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import fx, nn

from fusion_core.matcher import CallGraph, Match, match_at, matches_at
from fusion_core.patterns import (
    LiteralValue,
    MatchAllNode,
    normalize_nested,
    normalize_sequential,
)

from .random_patterns import legacy_graphs_with_patterns


@pytest.fixture
def upstream():
    """PyTorch's own matcher of one pattern at one node."""
    matching = pytest.importorskip("torch.ao.quantization.fx.match_utils")

    wildcard = pytest.importorskip("torch.ao.quantization.utils").MatchAllNode

    def is_match(pattern, node, modules):
        return matching._is_match(modules, node, spelled(pattern, wildcard), sys.maxsize)

    return is_match


def spelled(pattern, wildcard=MatchAllNode):
    """A canonical pattern in tuples."""
    if isinstance(pattern, MatchAllNode):
        return wildcard
    if isinstance(pattern, LiteralValue):
        return pattern.value
    if pattern.operator.kind == "getattr":
        return (getattr, pattern.operator.target)
    if pattern.inputs is None:
        return pattern.operator.target
    return (pattern.operator.target, *(spelled(each, wildcard) for each in pattern.inputs))


def is_match(pattern, node, calls):
    """Whether there is a match whose inner nodes have one user, the only ones PyTorch's matcher knows."""
    matches = matches_at(pattern, node, calls, None)
    return any(all(len(each.users) == 1 for each in match.nodes[1:]) for match in matches)


def test_tuples_mean_what_they_mean_upstream(upstream):
    matched = []

    @settings(max_examples=300)
    @given(legacy_graphs_with_patterns())
    def agree(example):
        made, patterns = example
        calls = made.calls
        patterns = [each for each in patterns if hasattr(each, "inputs")]
        for pattern, node in itertools.product(patterns, made.graph.nodes):
            ours = is_match(
                normalize_nested(spelled(pattern, MatchAllNode(literals=True))), node, calls
            )
            assert ours == upstream(pattern, node, made.modules)
            matched.extend([pattern] if ours else [])

    agree()
    assert sum(each.inputs is not None for each in matched) > 50


LAYERS = {
    nn.Conv2d: lambda: nn.Conv2d(1, 1, 1),
    nn.BatchNorm2d: lambda: nn.BatchNorm2d(1),
    nn.ReLU: nn.ReLU,
}
OPERATORS = st.sampled_from([*LAYERS, torch.neg, torch.relu, torch.sigmoid, "relu"])
CHAINS = st.lists(OPERATORS, min_size=2, max_size=3).map(tuple)


def traced(forward, **modules):
    model = type("Model", (nn.Module,), {"forward": forward})()
    for name, module in modules.items():
        model.add_module(name, module)
    graph = fx.symbolic_trace(model).graph
    return graph, dict(model.named_modules(remove_duplicate=False))


def test_flat_tuples_mean_what_they_mean_upstream_backwards(upstream):
    matched = []

    @given(CHAINS, st.data(), st.booleans())
    def agree(chain, data, is_read_twice):
        pattern = data.draw(st.sampled_from([chain, chain[:2], chain[-2:]]) | CHAINS)

        def forward(_self, x):
            results = [x]
            for each, layer in zip(chain, layers, strict=True):
                results.append(
                    getattr(results[-1], each)() if layer is None else layer(results[-1])
                )
            return results[-1], results[1] if is_read_twice else None

        # A layer of its own for each call: one that is called twice is one of the differences.
        layers = [LAYERS[each]() if each in LAYERS else each for each in chain]
        layers = [None if isinstance(each, str) else each for each in layers]
        named = {f"layer{i}": e for i, e in enumerate(layers) if isinstance(e, nn.Module)}
        graph, modules = traced(forward, **named)
        normal = normalize_sequential(pattern)
        for node in graph.nodes:
            ours = isinstance(match_at(normal, node, CallGraph(graph, modules), None), Match)
            assert ours == upstream(normal, node, modules)
            matched.append(ours)

    agree()
    assert sum(matched) > 20


def hooked_conv():
    conv = nn.Conv2d(1, 1, 1)
    conv.register_forward_hook(lambda *_: None)
    return conv


def conv_used_twice_within(self, x):
    y = self.conv(x)
    return torch.add(torch.relu(y), torch.neg(y))


ADD_CONV = (torch.add, MatchAllNode, nn.Conv2d)
DIFFERENCES = {
    "operands by keyword are operands": (
        *(ADD_CONV, lambda self, x: torch.add(x, other=self.conv(x)), nn.Conv2d(1, 1, 1)),
        True,
    ),
    "a module's input by keyword is its input": (
        *((nn.ReLU, nn.Conv2d), lambda self, x: self.act(input=self.conv(x)), nn.Conv2d(1, 1, 1)),
        True,
    ),
    "alpha changes what is computed": (
        *(ADD_CONV, lambda self, x: torch.add(x, self.conv(x), alpha=2), nn.Conv2d(1, 1, 1)),
        False,
    ),
    "a keyword-only argument counts for a bare operator too": (
        *(torch.add, lambda self, x: torch.add(x, self.conv(x), alpha=2), nn.Conv2d(1, 1, 1)),
        False,
    ),
    "a keyword argument counts like a positional one": (
        *((torch.flatten, MatchAllNode), lambda self, x: torch.flatten(x, start_dim=1), nn.ReLU()),
        False,
    ),
    "an argument that is its default counts for nothing": (
        *((torch.flatten, MatchAllNode), lambda self, x: torch.flatten(x, 0), nn.ReLU()),
        True,
    ),
    "the wildcard stands for a value of the graph": (
        *((operator.add, nn.Conv2d, MatchAllNode), lambda self, x: self.conv(x) + 1),
        *(nn.Conv2d(1, 1, 1), False),
    ),
    "a node stands in one place": (
        *((operator.add, nn.Conv2d, nn.Conv2d), lambda self, x: (y := self.conv(x)) + y),
        *(nn.Conv2d(1, 1, 1), False),
    ),
    "an inner node may be read again within the match": (
        *((torch.add, (torch.relu, nn.Conv2d), torch.neg), conv_used_twice_within),
        *(nn.Conv2d(1, 1, 1), True),
    ),
    "True is not 1": (
        *((operator.add, MatchAllNode, 1), lambda self, x: x + True, nn.ReLU()),
        False,
    ),
    "forward hooks are not lost": (nn.Conv2d, lambda self, x: self.conv(x), hooked_conv(), False),
    "a module called from two places is left alone": (
        *(nn.Conv2d, lambda self, x: self.conv(self.conv(x)), nn.Conv2d(1, 1, 1)),
        False,
    ),
}


@pytest.mark.parametrize(
    ("pattern", "forward", "conv", "ours"), DIFFERENCES.values(), ids=DIFFERENCES
)
def test_the_differences_from_upstream_are_these(upstream, pattern, forward, conv, ours):
    graph, modules = traced(forward, conv=conv, act=nn.ReLU())
    node = list(graph.nodes)[-2]
    normal = normalize_nested(pattern)
    found = match_at(normal, node, CallGraph(graph, modules), None)
    assert isinstance(found, Match) == ours
    assert upstream(normal, node, modules) != ours
