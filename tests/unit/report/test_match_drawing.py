"""match finds a pattern in a graph and draws what it looks for, what it found, and what came near."""

from __future__ import annotations

import io
import operator

import pytest
import torch
from rich.console import Console
from torch import fx, nn

import fusion_core as core
from fusion_core.errors import NotAGraphError, PatternError
from fusion_core.matcher import Match
from fusion_core.patterns import (
    any_order,
    call,
    capture,
    chain,
    list_of,
    normalize_nested,
    optional,
    where,
)
from fusion_core.report.drawing import pattern_tree


class Residual(nn.Module):
    """Twice a convolution and relu; then a sum that is scaled, and one that is not."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 3, 3, padding=1)
        self.second = nn.Conv2d(3, 3, 3, padding=1)
        self.relu = nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.first(x)) + x
        return self.relu(torch.add(y, self.second(y), alpha=2))


@pytest.fixture
def graph():
    return fx.symbolic_trace(Residual())


def drawn(pattern) -> str:
    console = Console(file=io.StringIO(), width=100, color_system=None)
    with console.capture() as printed:
        console.print(pattern_tree(normalize_nested(pattern)))
    return "\n".join(line.rstrip() for line in printed.get().strip().splitlines())


def test_matches_are_a_sequence_in_the_order_of_the_graph(graph) -> None:
    found = core.match(nn.Conv2d, graph)
    assert len(found) == 2
    assert all(isinstance(each, Match) for each in found)
    assert [each.anchor.name for each in found] == ["first", "second"]
    assert found[-1].node_pattern is found[1].anchor
    assert found[:1] == (found[0],)


def test_a_tuple_is_sequential_unless_it_is_said_to_be_nested(graph) -> None:
    assert [each.name for each in core.match((nn.Conv2d, torch.relu), graph)[0].nodes] == [
        *("relu", "first")
    ]
    (match,) = core.match((torch.relu, nn.Conv2d), graph, nested=True)
    assert match.anchor.name == "relu"
    assert len(core.match((torch.relu, nn.Conv2d), graph)) == 0


def test_a_pattern_that_was_read_from_text_is_taken_as_it_is(graph) -> None:
    (match,) = core.match(core.parse("add($act:relu, $skip)"), graph)
    assert {name: value.name for name, value in match.captures.items()} == {
        "act": "relu",
        "skip": "x",
    }


def test_a_match_is_drawn_with_the_names_of_its_nodes_and_captures(graph) -> None:
    pattern = (operator.add, (torch.relu, capture("conv", nn.Conv2d)), core.MatchAllNode)
    text = str(core.match(pattern, graph, nested=True))
    assert text.splitlines() == [
        "operator.add($conv:Conv2d -> torch.relu, *)",
        "operator.add",
        "├── torch.relu",
        "│   └── $conv: Conv2d",
        "└── * (any value)",
        "",
        "1 match",
        "",
        "add = operator.add",
        "├── relu = torch.relu",
        "│   └── $conv: first = Conv2d",
        "└── x (any value)",
    ]


def test_everything_that_a_pattern_can_say_is_drawn() -> None:
    small = where(nn.Conv2d, lambda _node, conv: conv.groups == 1, reason="one group only")
    pattern = chain(
        any_order(core.ops.add, small, capture("x")),
        optional(core.any_of(nn.BatchNorm2d, nn.InstanceNorm2d)),
        core.any_of(nn.ReLU, nn.ReLU6),
    )
    assert drawn(pattern).splitlines() == [
        "ReLU or ReLU6",
        "└── BatchNorm2d or InstanceNorm2d (optional)",
        "    └── add, any order",
        "        ├── Conv2d  where one group only",
        "        └── $x: * (any value)",
    ]
    choice = core.any_of((nn.ReLU, nn.Conv2d), call(core.ops.flatten, start_dim=1))
    assert drawn((torch.cat, list_of(choice, ...), 1)).splitlines() == [
        "torch.cat",
        "├── a list",
        "│   ├── any_of",
        "│   │   ├── ReLU",
        "│   │   │   └── Conv2d",
        "│   │   └── flatten(start_dim=1)",
        "│   └── ... (any further items)",
        "└── 1",
    ]
    free = (core.ops.clamp, core.MatchAllNode(literals=True), ...)
    assert drawn(free).splitlines() == [
        "clamp",
        "├── *literal (any value or constant)",
        "└── ... (any further arguments)",
    ]


def test_an_optional_step_that_is_missing_is_drawn_as_missing(graph) -> None:
    text = str(core.match((nn.Conv2d, optional(nn.BatchNorm2d), torch.relu), graph))
    assert "relu = torch.relu\n└── an optional step is missing\n    └── first = Conv2d" in text


def test_a_pattern_of_many_operators_is_drawn() -> None:
    assert drawn((nn.ReLU, (nn.ReLU6, nn.Conv2d))).count("\n") == 2
    deep = pattern_tree(normalize_nested(chain(nn.Conv2d, *[nn.ReLU] * 199)))
    for _ in range(199):
        (deep,) = deep.children
    assert str(deep.label) == "Conv2d"


def test_the_nearest_miss_says_what_stopped_it_where_and_what_would_help(graph) -> None:
    found = core.match(core.parse("add(*, Conv2d) -> relu"), graph)
    assert len(found) == 0
    miss = found.misses[0]
    assert miss.node.name == "relu_1"
    assert miss.stopped_at == "argument 'alpha' of add_1"
    assert miss.reason == "add_1 has alpha=2, which no place of the pattern names"
    text = " ".join(str(found).split())
    assert "no matches" in text
    assert f"nearest, ending in relu_1 argument 'alpha' of add_1: {miss.reason}" in text
    assert f"to match: {miss.remedy}" in text


def test_an_operand_is_named_by_its_parameter(graph) -> None:
    pattern = (nn.ReLU, call(torch.add, nn.ReLU, core.MatchAllNode, alpha=2))
    found = core.match(pattern, graph, nested=True)
    assert found.misses[0].stopped_at == "operand 'input' of add_1"
    assert found.misses[0].reason == "add (operator.add) is not ReLU"


def test_misses_beyond_a_few_are_counted() -> None:
    graph = fx.symbolic_trace(nn.Sequential(*(nn.ReLU() for _ in range(6))))
    text = str(core.match((nn.Conv2d, nn.ReLU), graph))
    assert text.count("nearest, ending in") == 3
    assert text.endswith("and 3 more")


def test_a_graph_without_the_last_operator_says_so(graph) -> None:
    text = str(core.match((nn.Conv2d, core.any_of(nn.SiLU, nn.GELU)), graph))
    assert "no node of the graph is SiLU or GELU, in which the pattern ends" in text


def test_nodes_that_another_match_took_are_no_misses(graph) -> None:
    found = core.match((nn.Conv2d, torch.relu), graph)
    assert found.misses == ()


def test_a_module_that_is_no_graph_is_refused_with_what_to_do() -> None:
    with pytest.raises(NotAGraphError, match=r"Residual is none; trace it first, with core\.trace"):
        core.match(nn.Conv2d, Residual())
    with pytest.raises(TypeError):
        core.match(nn.Conv2d, "a graph")


def test_what_is_no_pattern_is_refused(graph) -> None:
    with pytest.raises(PatternError):
        core.match((), graph)


def test_the_graph_of_core_trace_will_do(small, data) -> None:
    traced = core.trace(small, data[0])
    (match,) = core.match((nn.Conv2d, nn.BatchNorm2d, nn.ReLU), traced)
    assert [node.name for node in match.nodes] == ["stem_2", "stem_1", "stem_0"]


def test_the_right_operator_with_a_wrong_argument_is_nearer_than_another_operator() -> None:
    class Clamped(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.clamp(torch.sigmoid(x), 0.0, 1.0)

    pattern = (torch.sigmoid, core.any_of(nn.ReLU, torch.relu, torch.clamp))
    (miss,) = core.match(pattern, fx.symbolic_trace(Clamped())).misses
    assert miss.reason == "clamp has min=0.0, which no place of the pattern names"
    assert miss.stopped_at == "argument 'min' of clamp"
