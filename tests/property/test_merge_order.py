"""The merged backend is the same for every order in which its plugins arrive."""

from __future__ import annotations

import operator

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from fusion_core.configs import BackendPatternConfig, DTypeConfig, LoweringRule, QConfigMapping
from fusion_core.errors import PatternConflictError
from fusion_core.patterns import MatchAllNode
from fusion_core.registry import PluginOrigin
from fusion_core.registry.contribution import Contribution
from fusion_core.registry.merging import merge

PATTERNS = [
    {"pattern": nn.Conv2d},
    {"pattern": nn.Linear},
    {"pattern": (nn.Conv2d, nn.ReLU)},
    {"complex_pattern": (nn.ReLU, nn.Conv2d)},
    {"complex_pattern": (operator.add, MatchAllNode, nn.Conv2d)},
]

fields = st.fixed_dictionaries(
    {
        "priority": st.integers(-1, 1),
        "dtype_configs": st.sampled_from([(), (DTypeConfig(input_dtype=torch.quint8),)]),
    }
)
configs = st.builds(
    lambda pattern, rest: BackendPatternConfig(**pattern, **rest), st.sampled_from(PATTERNS), fields
)
rules = st.builds(
    lambda pattern, priority, lower: LoweringRule(**pattern, priority=priority, lower=lower),
    st.sampled_from(PATTERNS),
    st.integers(0, 1),
    st.sampled_from([max, min]),
)


@st.composite
def contributions(draw):
    """One to four plugins of one backend; about half of the sets contradict themselves."""
    names = ["acme", *draw(st.lists(st.sampled_from(["a", "b", "c"]), unique=True))]
    return [
        Contribution(
            PluginOrigin("acme", name if name == "acme" else f"acme.{name}", f"dist-{name}", "1.0"),
            configs=tuple(draw(st.lists(configs, max_size=3))),
            rules=tuple(draw(st.lists(rules, max_size=2))),
            qconfig_mapping=draw(st.none() | st.builds(QConfigMapping)),
        )
        for name in names
    ]


def outcome(plugins):
    """All that can be seen of the merged backend, or the message of its refusal."""
    try:
        backend = merge(plugins, core_version="0")
    except PatternConflictError as error:
        return str(error)
    return backend.identity, backend.entries, backend.lowering, backend.qconfig_mapping


@given(contributions(), st.randoms(use_true_random=False))
def test_any_permutation_of_plugins_merges_to_the_same(plugins, random):
    shuffled = random.sample(plugins, len(plugins))
    assert outcome(shuffled) == outcome(plugins)


@given(contributions())
def test_no_pattern_is_left_twice_at_one_priority(plugins):
    merged = outcome(plugins)
    if isinstance(merged, str):
        return
    places = [(entry.pattern, entry.priority) for entry in merged[1]]
    assert len(set(places)) == len(places)


@given(contributions())
def test_giving_everything_once_more_changes_no_entry(plugins):
    doubled = [
        Contribution(each.origin, configs=each.configs * 2, rules=each.rules * 2)
        for each in plugins
    ]
    once = [Contribution(each.origin, configs=each.configs, rules=each.rules) for each in plugins]
    first, second = outcome(once), outcome(doubled)
    if isinstance(first, str):
        assert isinstance(second, str)
    else:
        assert first == second
