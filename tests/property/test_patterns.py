"""What holds for every pattern: one canonical form, one text, one place in the order."""

from __future__ import annotations

import operator
import pickle
from contextlib import suppress

import torch
import torch.nn.functional as F  # noqa: N812
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from fusion_core.configs import BackendPatternConfig
from fusion_core.errors import PatternError
from fusion_core.patterns import (
    MatchAllNode,
    Op,
    any_of,
    any_order,
    call,
    capture,
    chain,
    list_of,
    literal,
    normalize_nested,
    normalize_sequential,
    operator_count,
    operators_in,
    ops,
    optional,
    parse,
    parts_of,
    precedence,
    render,
    where,
)

operators = st.sampled_from(
    [
        *(nn.Conv2d, nn.ReLU, F.relu, F.max_pool2d, torch.relu, operator.add, "relu", "add"),
        *(ops.relu, ops.add, torch.ops.aten.relu.default, torch.ops.aten.add, torch.Tensor.relu),
    ]
)
commutative = st.sampled_from([ops.add, ops.mul, operator.add, torch.mul, "mul"])
numbers = st.integers() | st.floats(allow_nan=False).map(lambda number: number + 0.0)  # not -0.0
constants = st.one_of(
    st.sampled_from([None, True, False, torch.float32, torch.quint8, torch.channels_last]),
    numbers,
    st.complex_numbers(allow_nan=False).map(lambda number: number + 0.0),
)
values = st.recursive(
    constants | st.text(max_size=5),
    lambda each: st.lists(each, max_size=3).map(tuple),
    max_leaves=4,
)
leaves = st.one_of(
    operators,
    st.sampled_from([MatchAllNode, MatchAllNode(literals=True), (getattr, "shape")]),
    constants,
    values.map(literal),
    st.sampled_from(["x", "y"]).map(capture),
)
names = st.sampled_from(["alpha", "dim", "inplace", "of", "not a name"])
constraints = st.one_of(
    values,
    st.just(MatchAllNode(literals=True)),
    st.lists(values, min_size=1, max_size=3).map(lambda each: any_of(*each)),
)


def is_small(node, module): ...


def conditioned(patterns):
    """``patterns`` under a condition, or with a name that hardly any other has."""
    reasons = st.sampled_from(["", "small", "it's", 'a "b", c)\n'])
    conditions = st.builds(lambda each, reason: where(each, is_small, reason), patterns, reasons)
    labels = st.integers(0, 999).map("v{}".format)
    return conditions | st.builds(capture, labels, patterns)


constrained = st.builds(
    lambda head, dots, options: call(head, *dots, **options),
    operators,
    st.sampled_from([(), (...,)]),
    st.dictionaries(names, constraints, max_size=2),
)
plain_heads = operators | constrained
single_heads = plain_heads | conditioned(plain_heads)
heads = single_heads | st.lists(single_heads, min_size=1, max_size=3).map(
    lambda all_: any_of(*all_)
)
steps = heads | heads.map(optional)


def applied(arguments):
    """Nested tuples whose arguments are drawn from ``arguments``; half of them leave some free."""
    calls = st.tuples(heads, st.lists(arguments, min_size=1, max_size=3), st.booleans())
    return calls.map(lambda call: (call[0], *call[1], *([...] if call[2] else [])))


def in_any_order(arguments):
    operands = st.lists(arguments, min_size=2, max_size=4)
    return st.builds(lambda head, each: any_order(head, *each), commutative, operands)


def chained(arguments):
    """Chains that begin with one of ``arguments``; their steps may be missing."""
    firsts = arguments.filter(lambda each: not is_tuple(each) or is_pattern(each)).map(in_chain)
    others = st.lists(steps, min_size=1, max_size=3)
    return st.builds(lambda first, others: chain(first, *others), firsts, others)


def is_tuple(value):
    return isinstance(value, tuple) and value[0] is not getattr


def in_chain(value):
    """What may begin a chain: a nested tuple has no place there, a number must be marked."""
    if is_tuple(value):
        return normalize_nested(value)
    is_constant = value is None or isinstance(value, (int, float, complex, torch.dtype))
    return literal(value) if is_constant or isinstance(value, torch.memory_format) else value


def lists(arguments):
    return st.builds(
        lambda items, dots: list_of(*items, *dots),
        st.lists(arguments, max_size=3),
        st.sampled_from([(), (...,)]),
    )


def anchored(arguments):
    """What an operator runs last of."""
    whole = applied(arguments) | in_any_order(arguments) | chained(arguments)
    return whole | conditioned(whole)


def arguments_of(arguments):
    whole = anchored(arguments) | lists(arguments)
    return whole | st.lists(whole | arguments, min_size=1, max_size=3).map(
        lambda choices: any_of(*choices)
    )


def is_pattern(value):
    """Chance may ask for what is refused: an optional step behind nothing, one name for two patterns."""
    try:
        normalize_nested(value)
    except PatternError:
        return False
    return True


written = anchored(st.recursive(leaves, arguments_of, max_leaves=4)) | operators
nested = written.filter(is_pattern)
chains = st.lists(operators, min_size=1, max_size=6).map(tuple)


@given(nested)
def test_normalising_twice_changes_nothing(pattern):
    once = normalize_nested(pattern)
    assert normalize_nested(once) == once
    assert normalize_sequential(once) == once


@given(nested)
def test_text_is_read_back_as_the_pattern_it_shows(pattern):
    normal = normalize_nested(pattern)
    assert parse(render(normal)) == normal
    assert render(parse(render(normal))) == render(normal)


@given(nested)
def test_equal_patterns_have_equal_hashes(pattern):
    normal = normalize_nested(pattern)
    for again in (normalize_nested(pattern), pickle.loads(pickle.dumps(normal))):  # noqa: S301
        assert again == normal
        assert hash(again) == hash(normal)


@given(st.text(alphabet=" Conv2d->?.*$:x(,)[]='1aβ\n", max_size=30) | st.text(max_size=10))
def test_any_text_is_a_pattern_or_is_refused_as_none(text):
    with suppress(PatternError):  # and with nothing else
        pattern = parse(text)
        assert parse(render(pattern)) == pattern


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


def times_named(pattern):
    """How often ``pattern`` names an operator, the same one twice if it stands in two places."""
    return isinstance(pattern, Op) + sum(map(times_named, parts_of(pattern)))


@given(nested)
def test_a_match_claims_no_more_than_the_pattern_names(pattern):
    normal = normalize_nested(pattern)
    assert len(set(operators_in(normal))) >= 1
    assert 1 <= operator_count(normal) <= times_named(normal)


small = (applied(leaves) | in_any_order(leaves) | operators).filter(is_pattern)
contributions = st.lists(
    st.tuples(small, st.integers(-1, 1), st.sampled_from(["acme", "acme.a", "acme.b"])), max_size=6
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
