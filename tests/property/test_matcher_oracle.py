"""The matcher against an oracle that reads the documented rules one by one, on random graphs."""

# ruff: noqa: ARG005  a forward takes self, used or not

from __future__ import annotations

import operator
import sys
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from hypothesis import given
from hypothesis import strategies as st
from torch import fx, nn

from fusion_core.matcher import CallGraph, Match, PatternIndex, match_at, scan
from fusion_core.patterns import (
    AnyOf,
    LiteralValue,
    MatchAllNode,
    Op,
    Operator,
    normalize_nested,
    operator_count,
    precedence,
)

RELU, ADD, FLATTEN = (Operator("operation", name) for name in ("relu", "add", "flatten"))


@dataclass
class Call:
    """What a node of a random graph means, noted down when it was made."""

    operators: tuple[Operator, ...]
    arguments: tuple[Any, ...]
    defaults: tuple[Any, ...] = ()
    is_plain: bool = True
    """Without keyword-only arguments that say anything."""


@dataclass
class RandomGraph:
    graph: fx.Graph = field(default_factory=fx.Graph)
    modules: dict[str, nn.Module] = field(default_factory=dict)
    truth: dict[fx.Node, Call] = field(default_factory=dict)
    values: list[fx.Node] = field(default_factory=list)

    @property
    def calls(self):
        return CallGraph(self.graph, self.modules)

    def add(self, node, operators, arguments, **more):
        self.truth[node] = Call(operators, arguments, **more)
        self.values.append(node)


MODULES = {
    "conv": (lambda: nn.Conv2d(1, 1, 1), (Operator("module", nn.Conv2d),)),
    "bn": (lambda: nn.BatchNorm2d(1), (Operator("module", nn.BatchNorm2d),)),
    "act": (nn.ReLU, (Operator("module", nn.ReLU), RELU)),
}
UNARY = {
    F.relu: (Operator("function", F.relu), RELU),
    torch.relu: (Operator("function", torch.relu), RELU),
    torch.neg: (Operator("function", torch.neg),),
}


def add_module(made, draw, x, *, legacy):
    name = draw(st.sampled_from(sorted(MODULES)))
    build, operators = MODULES[name]
    again = not legacy and draw(st.integers(0, 9)) == 9
    path = name if again else f"{name}{len(made.values)}"
    if path not in made.modules:
        made.modules[path] = build()
        if not legacy and draw(st.integers(0, 9)) == 9:
            made.modules[path].register_forward_hook(lambda *_: None)
    by_name = not legacy and draw(st.booleans())
    args, kwargs = ((), {"input": x}) if by_name else ((x,), {})
    made.add(made.graph.call_module(path, args, kwargs), operators, (x,))


def add_unary(made, draw, x, *, legacy):
    target = draw(st.sampled_from([*UNARY, "relu"]))
    if target == "relu":
        made.add(made.graph.call_method("relu", (x,)), (Operator("method", "relu"), RELU), (x,))
        return
    by_name = not legacy and draw(st.booleans())
    args, kwargs = ((), {"input": x}) if by_name else ((x,), {})
    made.add(made.graph.call_function(target, args, kwargs), UNARY[target], (x,))


def add_binary(made, draw, x, *, legacy):
    others = made.values[-4:] if not legacy else [each for each in made.values if each is not x]
    y = draw(st.sampled_from([*others, *([] if legacy and others else [1, 2.5])]))
    if draw(st.booleans()):
        node = made.graph.call_function(operator.add, (x, y))
        made.add(node, (Operator("function", operator.add), ADD), (x, y))
        return
    alpha = None if legacy else draw(st.sampled_from([None, 1, 2]))
    kwargs = {} if alpha is None else {"alpha": alpha}
    if not legacy and draw(st.booleans()):
        args, kwargs = (x,), {"other": y, **kwargs}
    else:
        args = (x, y)
    if draw(st.booleans()):
        node, exact = made.graph.call_method("add", args, kwargs), Operator("method", "add")
    else:
        node = made.graph.call_function(torch.add, args, kwargs)
        exact = Operator("function", torch.add)
    made.add(node, (exact, ADD), (x, y), is_plain=alpha != 2)


def add_flatten(made, draw, x, *, legacy):
    dims = () if legacy else draw(st.sampled_from([(), (0,), (1,), (0, -1), (0, 2)]))
    kwargs = {}
    if draw(st.booleans()):
        kwargs = dict(zip(("start_dim", "end_dim"), dims, strict=False))
    node = made.graph.call_function(torch.flatten, (x,) if kwargs else (x, *dims), kwargs)
    operators = (Operator("function", torch.flatten), FLATTEN)
    made.add(node, operators, (x, *dims), defaults=(None, 0, -1))


@st.composite
def random_graphs(draw, *, legacy=False):
    """Graphs of a dozen calls; ``legacy`` ones have only what PyTorch's matcher sees alike."""
    made = RandomGraph()
    made.values.append(made.graph.placeholder("x"))
    for _ in range(draw(st.integers(2, 12))):
        x = draw(st.sampled_from([*made.values[-3:], *made.values[-1:] * 4]))
        add = draw(st.sampled_from([add_module, add_module, add_unary, add_binary, add_flatten]))
        add(made, draw, x, legacy=legacy)
    escaping = draw(st.lists(st.sampled_from(made.values), max_size=1))
    made.graph.output((made.values[-1], *escaping))
    return made


def patterns_near(draw, made, value, depth, *, legacy=False):
    """A pattern that matches ``value`` more often than not."""
    if not isinstance(value, fx.Node):
        near = [LiteralValue(value), LiteralValue(2)]
        near += [] if legacy else [MatchAllNode(literals=True), MatchAllNode()]
        return draw(st.sampled_from(near))
    call = made.truth.get(value)
    if call is None or depth == 0:
        return MatchAllNode()
    if depth < 4 and draw(st.integers(0, 6)) == 6:
        return MatchAllNode()
    operators = call.operators[:1] if legacy else call.operators
    head = draw(st.sampled_from(operators))
    if draw(st.integers(0, 14)) == 14:
        head = draw(st.sampled_from([Operator("module", nn.Conv2d), Operator("method", "relu")]))
    most = len(call.arguments)
    count = draw(st.sampled_from([most, most, most, max(most - 1, 1), 0]))
    inputs = tuple(
        patterns_near(draw, made, each, depth - 1, legacy=legacy) for each in call.arguments[:count]
    )
    is_open = not legacy and draw(st.booleans())
    pattern = Op(head, inputs, is_open) if inputs else Op(head)
    if not legacy and draw(st.integers(0, 4)) == 4:
        other = patterns_near(draw, made, draw(st.sampled_from(made.values)), depth - 1)
        pattern = AnyOf((other, pattern) if draw(st.booleans()) else (pattern, other))
    return pattern


@st.composite
def graphs_with_patterns(draw, *, legacy=False):
    made = draw(random_graphs(legacy=legacy))
    patterns = []
    for anchor in draw(st.lists(st.sampled_from(made.values[1:]), min_size=1, max_size=5)):
        pattern = patterns_near(draw, made, anchor, 4, legacy=legacy)
        choices = pattern.choices if isinstance(pattern, AnyOf) else (pattern,)
        if all(isinstance(each, Op) for each in choices):
            patterns.append(pattern)
    return made, patterns


@dataclass
class Oracle:
    """The rules of ``match_at``, each a line; knows nothing of call sites, indices or reasons."""

    made: RandomGraph
    claimed: list[fx.Node] = field(default_factory=list)
    free: list[Any] = field(default_factory=list)

    def matches(self, pattern, value, *, inner=False):
        if isinstance(pattern, MatchAllNode):
            self.free.append(value)
            return pattern.literals or isinstance(value, fx.Node)
        if isinstance(pattern, LiteralValue):
            return type(value) is type(pattern.value) and value == pattern.value
        if isinstance(pattern, AnyOf):
            return any(self.attempt(choice, value, inner=inner) for choice in pattern.choices)
        return self.calls(pattern, value, inner=inner)

    def calls(self, pattern, value, *, inner):
        call = self.made.truth.get(value) if isinstance(value, fx.Node) else None
        if call is None or pattern.operator not in call.operators:
            return False
        if (inner and len(value.users) != 1) or value in self.claimed or not self.is_sound(value):
            return False
        self.claimed.append(value)
        if pattern.inputs is None:
            return True
        count = len(pattern.inputs)
        named, rest = call.arguments[:count], call.arguments[count:]
        self.free.extend(rest)
        return (
            len(named) == count
            and (pattern.open or rest == call.defaults[count : len(call.arguments)])
            and all(map(lambda *each: self.matches(*each, inner=True), pattern.inputs, named))
        )

    def attempt(self, pattern, value, *, inner):
        """As :meth:`matches`, but what was claimed is given back after a failure."""
        before = list(self.claimed), list(self.free)
        found = self.matches(pattern, value, inner=inner)
        if not found:
            self.claimed, self.free = before
        return found

    def is_sound(self, node):
        """No argument of the call, and nothing about the module, is left out of account."""
        if node.op != "call_module":
            return self.made.truth[node].is_plain
        module = self.made.modules[node.target]
        calls = [each for each in self.made.graph.nodes if each.target == node.target]
        return not module._forward_hooks and (len(calls) == 1 or not module.state_dict())

    @classmethod
    def claims(cls, pattern, node, made):
        """The nodes of the match at ``node``, anchor first, or None."""
        oracle = cls(made)
        found = oracle.matches(pattern, node)
        return oracle.claimed if found and not set(oracle.claimed) & set(oracle.free) else None


def claims(pattern, node, made):
    found = match_at(pattern, node, made.calls, None)
    return list(found.nodes) if isinstance(found, Match) else None


@given(graphs_with_patterns())
def test_a_match_is_what_the_rules_say(example):
    made, patterns = example
    for pattern in patterns:
        for node in made.graph.nodes:
            assert claims(pattern, node, made) == Oracle.claims(pattern, node, made)


@given(graphs_with_patterns())
def test_candidates_leave_out_no_match_and_keep_the_order(example):
    made, patterns = example
    index = PatternIndex((pattern, place) for place, pattern in enumerate(patterns))
    for node in made.graph.nodes:
        places = [place for _, place in index.candidates(node, made.calls)]
        matching = [i for i, each in enumerate(patterns) if Oracle.claims(each, node, made)]
        assert places == sorted(places)
        assert set(matching) <= set(places)


@given(graphs_with_patterns())
def test_a_sweep_is_a_linear_search_over_the_patterns_in_order(example):
    made, patterns = example
    expected, taken = [], set()
    for node in reversed(made.graph.nodes):
        for place, pattern in enumerate(patterns):
            found = None if node in taken else Oracle.claims(pattern, node, made)
            if found:
                expected.append((place, found))
                taken.update(found)
                break
    result = scan(made.calls, PatternIndex((each, i) for i, each in enumerate(patterns)))
    assert [(match.entry, list(match.nodes)) for match in result.matches] == expected


@given(graphs_with_patterns())
def test_no_node_has_two_owners_and_every_refusal_a_sentence(example):
    made, patterns = example
    result = scan(made.calls, PatternIndex((each, each) for each in patterns))
    owned = [node for match in result.matches for node in match.nodes]
    assert len(set(owned)) == len(owned)
    assert all(len(m.nodes) >= operator_count(m.entry) for m in result.matches)
    for refusals in result.refusals.values():
        assert all(len(refusal.reason.split()) > 2 for _, refusal in refusals)


@given(graphs_with_patterns(), st.randoms(use_true_random=False))
def test_the_order_of_registration_changes_no_match(example, random):
    made, patterns = example
    contributed = [
        (precedence(each, priority=0, plugin=f"plugin{place}", index=0), each)
        for place, each in enumerate(patterns)
    ]
    results = []
    for arrived in (contributed, random.sample(contributed, len(contributed))):
        ordered = sorted(arrived, key=lambda each: each[0])
        result = scan(made.calls, PatternIndex((each, key) for key, each in ordered))
        results.append([(match.entry, match.nodes) for match in result.matches])
    assert results[0] == results[1]


@given(graphs_with_patterns(), st.randoms(use_true_random=False))
def test_patterns_that_match_nowhere_change_nothing(example, random):
    made, patterns = example
    useless = [
        Op(Operator("module", kind), (each,)) for kind in (nn.LSTM, nn.GRU) for each in patterns
    ]
    mixed = [*patterns]
    for each in useless:
        mixed.insert(random.randint(0, len(mixed)), each)
    alone = scan(made.calls, PatternIndex((each, each) for each in patterns))
    among = scan(made.calls, PatternIndex((each, each) for each in mixed))
    assert [m.node_pattern for m in among.matches] == [m.node_pattern for m in alone.matches]
    assert among.tried == alone.tried


@pytest.fixture
def upstream():
    """PyTorch's own matcher of one pattern at one node."""
    matching = pytest.importorskip("torch.ao.quantization.fx.match_utils")

    def is_match(pattern, node, modules):
        return matching._is_match(modules, node, spelled(pattern), sys.maxsize)

    return is_match


def spelled(pattern):
    """A canonical pattern in the tuples of PyTorch."""
    if isinstance(pattern, MatchAllNode):
        return pytest.importorskip("torch.ao.quantization.utils").MatchAllNode
    if isinstance(pattern, LiteralValue):
        return pattern.value
    if pattern.inputs is None:
        return pattern.operator.target
    return (pattern.operator.target, *map(spelled, pattern.inputs))


def test_the_legacy_subset_means_what_it_means_upstream(upstream):
    @given(graphs_with_patterns(legacy=True))
    def agree(example):
        made, patterns = example
        for pattern in patterns:
            for node in made.graph.nodes:
                ours = isinstance(match_at(pattern, node, made.calls, None), Match)
                assert ours == upstream(pattern, node, made.modules)

    agree()


def hooked_conv():
    conv = nn.Conv2d(1, 1, 1)
    conv.register_forward_hook(lambda *_: None)
    return conv


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
    model = type("Model", (nn.Module,), {"forward": forward})()
    model.conv, model.act = conv, nn.ReLU()
    traced = fx.symbolic_trace(model)
    modules = dict(traced.named_modules(remove_duplicate=False))
    node = list(traced.graph.nodes)[-2]
    normal = normalize_nested(pattern)
    found = match_at(normal, node, CallGraph(traced.graph, modules), None)
    assert isinstance(found, Match) == ours
    assert upstream(normal, node, modules) != ours
