"""The matcher against an oracle that reads the documented rules one by one, on random graphs."""

from __future__ import annotations

import itertools
import zlib
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fusion_core.matcher import Match, NoMatch, PatternIndex, match_at, matches_at, scan
from fusion_core.patterns import Op, Operator, operator_count, wildcard_count

from .oracle import Oracle, Reading, Solution
from .random_patterns import graphs_with_patterns

MANY = 300
"""How many solutions of one pattern at one node are looked at."""


def solution(match):
    return Solution(match.nodes, match.captures, match.node_pattern)


def first(solutions):
    return next(iter(solutions), None)


def indexed(patterns, priorities=None):
    priority = (lambda _: 0) if priorities is None else priorities.__getitem__
    return PatternIndex(((each, place) for place, each in enumerate(patterns)), priority)


def agree(example):
    """``matches_at`` gives the solutions of the oracle, all of them and in order."""
    made, patterns = example
    calls, oracle = made.calls, Oracle(made)
    for pattern, node in itertools.product(patterns, made.graph.nodes):
        wanted = list(itertools.islice(oracle.solutions(pattern, node), MANY))
        found = list(itertools.islice(matches_at(pattern, node, calls, "entry"), MANY))
        assert list(map(solution, found)) == wanted
        assert all(match.entry == "entry" and match.anchor is node for match in found)


@given(graphs_with_patterns())
def test_the_first_match_is_the_first_solution_of_the_rules(example):
    made, patterns = example
    for pattern, node in itertools.product(patterns, made.graph.nodes):
        found = match_at(pattern, node, made.calls, None)
        wanted = first(Oracle(made).solutions(pattern, node))
        assert (solution(found) if isinstance(found, Match) else None) == wanted


@given(graphs_with_patterns())
def test_the_matches_are_all_solutions_in_order(example):
    agree(example)


@pytest.mark.slow
@settings(max_examples=1200)
@given(graphs_with_patterns())
def test_the_matches_are_all_solutions_in_order_in_many_graphs(example):
    agree(example)


@given(graphs_with_patterns())
def test_candidates_leave_out_no_match(example):
    made, patterns = example
    index = indexed(patterns)
    for node in made.graph.nodes:
        places = [place for _, place in index.candidates(node, made.calls)]
        matching = [
            i for i, each in enumerate(patterns) if first(Oracle(made).solutions(each, node))
        ]
        assert len(set(places)) == len(places)
        assert set(matching) <= set(places)


def accepts_all(_place, _solution):
    return True


def accepting(salt):
    """Accepts two of three matches; which ones depends on the salt alone."""

    def accepts(place, found):
        text = f"{salt} {place} {found.nodes}"
        return zlib.crc32(text.encode()) % 3 > 0

    return accepts


def swept(made, index, accepts=accepts_all):
    def accept(match):
        return None if accepts(match.entry, match) else NoMatch("it is not to be had")

    result = scan(made.calls, index, accept)
    return [(match.entry, solution(match)) for match in result.matches]


def agree_on_a_sweep(example, priorities, salt):
    made, patterns = example
    for accepts in (accepts_all, accepting(salt)):
        wanted = Oracle(made).sweep(patterns, priorities.__getitem__, accepts)
        assert swept(made, indexed(patterns, priorities), accepts) == wanted


PRIORITIES = st.lists(st.integers(-1, 1), min_size=6, max_size=6)
FLAT = st.just([0] * 6)


@given(graphs_with_patterns(most=6), FLAT | PRIORITIES, st.integers(0, 99))
def test_a_sweep_takes_the_best_solution_at_each_node(example, priorities, salt):
    agree_on_a_sweep(example, priorities, salt)


@pytest.mark.slow
@settings(max_examples=500)
@given(graphs_with_patterns(most=6), FLAT | PRIORITIES, st.integers(0, 99))
def test_a_sweep_takes_the_best_solution_at_each_node_of_many_graphs(example, priorities, salt):
    agree_on_a_sweep(example, priorities, salt)


@given(graphs_with_patterns(most=6), FLAT | PRIORITIES)
def test_no_node_has_two_owners(example, priorities):
    made, patterns = example
    matches = scan(made.calls, indexed(patterns, priorities)).matches
    owned = [node for match in matches for node in match.nodes]
    assert len(set(owned)) == len(owned)
    assert all(1 <= len(m.nodes) <= operator_count(patterns[m.entry]) for m in matches)


@given(graphs_with_patterns())
def test_every_refusal_has_a_sentence(example):
    made, patterns = example
    for pattern, node in itertools.product(patterns, made.graph.nodes):
        found = match_at(pattern, node, made.calls, None)
        assert isinstance(found, Match) or is_sentence(found.reason)
        assert isinstance(found, Match) or found.remedy.count("{") == 0
    for refusals in scan(made.calls, indexed(patterns)).refusals.values():
        assert all(is_sentence(refusal.reason) for _, refusal in refusals)


def is_sentence(text):
    return len(text.split()) > 2 and "{" not in text


@given(graphs_with_patterns(most=6), FLAT | PRIORITIES, st.randoms(use_true_random=False))
def test_the_order_of_patterns_breaks_ties_and_does_nothing_else(example, priorities, random):
    made, patterns = example
    untied = {
        (priority, wildcard_count(p)): p for p, priority in zip(patterns, priorities, strict=False)
    }
    entries = [(pattern, key) for key, pattern in untied.items()]
    mixed = random.sample(entries, len(entries))
    results = [swept(made, PatternIndex(each, lambda key: key[0])) for each in (entries, mixed)]
    assert results[0] == results[1]


@given(graphs_with_patterns(), st.randoms(use_true_random=False))
def test_patterns_that_match_nowhere_change_nothing(example, random):
    made, patterns = example
    mixed = [*enumerate(patterns)]
    for kind, each in itertools.product((nn.LSTM, nn.GRU), patterns):
        useless = Op(Operator("module", kind), (each,))
        mixed.insert(random.randint(0, len(mixed)), ("useless", useless))
    among = scan(made.calls, PatternIndex((each, place) for place, each in mixed))
    alone = scan(made.calls, indexed(patterns))
    assert [(m.entry, m.nodes) for m in among.matches] == [
        (m.entry, m.nodes) for m in alone.matches
    ]
    assert among.tried == alone.tried


def test_the_random_patterns_are_worth_the_trouble():
    """They match, in several ways, skip steps, repeat names, and fail late."""
    seen = Counter()

    @settings(max_examples=200)
    @given(graphs_with_patterns())
    def count(example):
        made, patterns = example
        for pattern, node in itertools.product(patterns, made.values):
            found = list(itertools.islice(Oracle(made).solutions(pattern, node), MANY))
            seen["tried"] += 1
            seen["matched"] += bool(found)
            seen["ambiguous"] += len(found) > 1
            seen["large"] += any(len(each.nodes) > 2 for each in found)
            seen["several users within"] += any(
                len(n.users) > 1 for each in found for n in each.nodes[1:]
            )
            seen["a step is missing"] += any("(None," in str(each.node_pattern) for each in found)
            seen["a list"] += any("[" in str(each.node_pattern) for each in found)
            readings = any(True for _ in Oracle(made).read(pattern, node, Reading()))
            seen["only the end fails"] += readings and not found

    count()
    assert min(seen.values()) > 2, seen
