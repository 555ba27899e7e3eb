"""What holds for every pattern: one canonical form, one text, one place in the order."""

from __future__ import annotations

import operator
import pickle

import torch
import torch.nn.functional as F  # noqa: N812
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from fusion_core.configs import BackendPatternConfig
from fusion_core.patterns import (
    MatchAllNode,
    any_of,
    normalize_nested,
    normalize_sequential,
    operator_count,
    operators_in,
    ops,
    precedence,
    render,
)

operators = st.sampled_from(
    [
        *(nn.Conv2d, nn.ReLU, F.relu, F.max_pool2d, torch.relu, operator.add, "relu", "add"),
        *(ops.relu, ops.add, torch.ops.aten.relu.default, torch.ops.aten.add),
    ]
)
leaves = st.one_of(
    operators,
    st.sampled_from([MatchAllNode, MatchAllNode(literals=True), (getattr, "shape")]),
    st.sampled_from([None, True, False, 0, 1, 1.0, -2.5]),
)


def applied(arguments):
    """Nested tuples whose arguments are drawn from ``arguments``; half of them leave some free."""
    heads = operators | st.lists(operators, min_size=1, max_size=3).map(lambda all_: any_of(*all_))
    calls = st.tuples(heads, st.lists(arguments, min_size=1, max_size=3), st.booleans())
    return calls.map(lambda call: (call[0], *call[1], *([...] if call[2] else [])))


def arguments_of(arguments):
    return applied(arguments) | st.lists(arguments, min_size=1, max_size=3).map(
        lambda choices: any_of(*choices)
    )


nested = applied(st.recursive(leaves, arguments_of, max_leaves=8)) | operators
chains = st.lists(operators, min_size=1, max_size=6).map(tuple)


@given(nested)
def test_normalising_twice_changes_nothing(pattern):
    once = normalize_nested(pattern)
    assert normalize_nested(once) == once
    assert normalize_sequential(once) == once


@given(chains)
def test_a_chain_is_the_same_in_both_formats(chain):
    backwards = chain[0]
    for each in chain[1:]:
        backwards = (each, backwards)
    normal = normalize_sequential(chain)
    assert normal == normalize_nested(backwards)
    assert normal == normalize_sequential(normal)
    assert operator_count(normal) == len(chain)
    assert render(normal).count(" -> ") == len(chain) - 1


@given(nested)
def test_patterns_pickle_canonical_and_as_written_in_a_config(pattern):
    for value in (normalize_nested(pattern), BackendPatternConfig(complex_pattern=pattern)):
        assert pickle.loads(pickle.dumps(value)) == value  # noqa: S301  our own bytes


@given(nested, nested)
def test_different_patterns_have_different_texts(one, other):
    first, second = normalize_nested(one), normalize_nested(other)
    assert (render(first) == render(second)) == (first == second)


@given(nested)
def test_a_match_claims_no_more_than_the_pattern_names(pattern):
    normal = normalize_nested(pattern)
    assert 1 <= operator_count(normal) <= len(list(operators_in(normal)))


contributions = st.lists(
    st.tuples(nested, st.integers(-1, 1), st.sampled_from(["acme", "acme.a", "acme.b"])), max_size=6
)


def keys(contributed):
    """The sort key of each contribution: the place counts within its own plugin."""
    seen: dict[str, int] = {}
    made = []
    for pattern, priority, plugin in contributed:
        index = seen[plugin] = seen.get(plugin, -1) + 1
        normal = normalize_nested(pattern)
        made.append((precedence(normal, priority=priority, plugin=plugin, index=index), normal))
    return made


@given(contributions)
def test_precedence_is_a_strict_total_order(contributed):
    found = [key for key, _ in keys(contributed)]
    assert len(set(found)) == len(found)
    assert all((a < b) + (b < a) == (a != b) for a in found for b in found)


@given(contributions, st.permutations(["acme", "acme.a", "acme.b"]))
def test_the_order_of_plugins_never_changes_the_order_of_patterns(contributed, plugins):
    arrived = sorted(contributed, key=lambda each: plugins.index(each[2]))
    by_key = [pattern for _, pattern in sorted(keys(arrived), key=lambda each: each[0])]
    usual = [pattern for _, pattern in sorted(keys(contributed), key=lambda each: each[0])]
    assert by_key == usual
