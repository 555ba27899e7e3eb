"""What several contributions make together, and when they contradict each other."""

from __future__ import annotations

import operator
import re

import pytest
import torch
from torch import nn

from fusion_core.configs import BackendPatternConfig, DTypeConfig, LoweringRule, QConfigMapping
from fusion_core.errors import PatternConflictError, PluginError
from fusion_core.patterns import MatchAllNode, normalize_sequential

INT8 = DTypeConfig(input_dtype=torch.quint8)
CONV_RELU = (nn.Conv2d, nn.ReLU)
RESIDUAL = (nn.ReLU, (operator.add, MatchAllNode, nn.Conv2d))


def fuse_two(is_qat, first, second):  # noqa: ARG001
    return nn.Sequential(first, second)


def fuse_two_differently(is_qat, first, second):  # noqa: ARG001
    return nn.Sequential(second, first)


def last_input(*_):
    return None


def labels(backend):
    return [entry.label for entry in backend.entries]


def test_entries_are_sorted_by_priority_nodes_wildcards_plugin_and_place(merged, plugin):
    backend = merged(
        acme=plugin(
            pattern_configs=[
                BackendPatternConfig(nn.Conv2d),
                BackendPatternConfig(complex_pattern=(operator.add, MatchAllNode, nn.Linear)),
                BackendPatternConfig(nn.Linear),
                BackendPatternConfig(CONV_RELU),
            ]
        ),
        acme__fast=plugin(
            pattern_configs=[
                BackendPatternConfig(nn.ReLU, priority=1),
                BackendPatternConfig(nn.Hardtanh),
            ]
        ),
    )
    assert labels(backend) == [
        "acme.fast: ReLU",
        "acme: Conv2d -> ReLU",
        "acme: operator.add(*, Linear)",
        "acme: Conv2d",
        "acme: Linear",
        "acme.fast: Hardtanh",
    ]
    assert [entry.index for entry in backend.entries] == [0, 3, 1, 0, 2, 1]


def test_identical_contributions_are_one(merged, plugin):
    config = BackendPatternConfig(CONV_RELU, fuser_method=fuse_two)
    chip = plugin(pattern_configs=[config, config])
    backend = merged(acme=chip, acme__copy=plugin(pattern_configs=[config]))
    assert labels(backend) == ["acme: Conv2d -> ReLU"]


def test_both_formats_of_one_pattern_are_the_same_contribution(merged, plugin):
    backend = merged(
        acme=plugin(
            pattern_configs=[
                BackendPatternConfig(CONV_RELU),
                BackendPatternConfig(complex_pattern=(nn.ReLU, nn.Conv2d)),
            ]
        )
    )
    assert len(backend.entries) == 1


def test_two_plugins_that_differ_on_a_pattern_are_both_named(merged, plugin):
    with pytest.raises(PatternConflictError) as caught:
        merged(
            acme=plugin(pattern_configs=[BackendPatternConfig(nn.Linear)]),
            acme__fast=plugin(
                pattern_configs=[BackendPatternConfig(nn.Linear, dtype_configs=(INT8,))]
            ),
        )
    assert str(caught.value) == (
        "acme (registered at run time 0) and acme.fast (registered at run time 0) both give "
        "Linear at priority 0, with different dtype_configs; set priority on one of them to say "
        "which goes first (higher does)"
    )


def test_a_priority_settles_who_goes_first(merged, plugin):
    fast = BackendPatternConfig(nn.Linear, dtype_configs=(INT8,), priority=1)
    backend = merged(
        acme=plugin(pattern_configs=[BackendPatternConfig(nn.Linear)]),
        acme__fast=plugin(pattern_configs=[fast]),
    )
    assert labels(backend) == ["acme.fast: Linear", "acme: Linear"]


def test_a_plugin_cannot_contradict_itself(merged, plugin):
    configs = [BackendPatternConfig(nn.Linear, dtype_configs=each) for each in ((), (), (INT8,))]
    with pytest.raises(PatternConflictError, match="Linear at priority 0 twice, as items 0 and 2"):
        merged(acme=plugin(pattern_configs=configs))


def test_the_order_of_what_a_fuser_method_is_given_is_part_of_the_content(merged, plugin):
    configs = [
        BackendPatternConfig(CONV_RELU, fuser_method=fuse_two),
        BackendPatternConfig(complex_pattern=(nn.ReLU, nn.Conv2d), fuser_method=fuse_two),
    ]
    with pytest.raises(PatternConflictError, match="with different order of the pattern's elem"):
        merged(acme=plugin(pattern_configs=configs))


def test_rules_of_one_plugin_for_one_pattern_are_tried_in_its_order(merged, plugin):
    first, third = (LoweringRule(pattern=nn.Linear, lower=f, name=f.__name__) for f in (max, min))
    second = LoweringRule(pattern=nn.Conv2d, lower=max)
    backend = merged(acme=plugin(pattern_configs=[], lowering_rules=[first, second, third, first]))
    assert [entry.label for entry in backend.lowering] == ["acme: max", "acme: Conv2d", "acme: min"]


def test_rules_of_two_plugins_for_one_pattern_need_a_priority(merged, plugin):
    first, second = (LoweringRule(pattern=nn.Linear, lower=each) for each in (max, min))
    with pytest.raises(PatternConflictError, match=r"both give Linear .* different lower; set"):
        merged(
            acme=plugin(pattern_configs=[], lowering_rules=[first]),
            acme__fast=plugin(lowering_rules=[second]),
        )


def test_the_backends_own_default_mapping_goes_before_an_extensions(merged, plugin):
    theirs = QConfigMapping().set_module_name("head", None)
    extension = plugin(default_qconfig_mapping=theirs)
    alone = merged(acme=plugin(pattern_configs=[]), acme__fast=extension)
    assert alone.qconfig_mapping == theirs
    own = plugin(pattern_configs=[], default_qconfig_mapping=QConfigMapping())
    assert merged(other=own, other__fast=extension).qconfig_mapping == QConfigMapping()


def test_named_mappings_of_all_plugins_are_put_together(merged, plugin):
    extension = plugin(qconfig_mappings={"coarse": QConfigMapping()})
    own = plugin(pattern_configs=[], qconfig_mappings={"qat": QConfigMapping()})
    backend = merged(acme=own, acme__fast=extension)
    assert backend.qconfig_mappings == {"coarse": QConfigMapping(), "qat": QConfigMapping()}


def test_two_plugins_cannot_give_mappings_of_one_name(merged, plugin):
    given = {"qconfig_mappings": {"coarse": QConfigMapping()}}
    with pytest.raises(PluginError, match=r"^backend 'acme.fast'.*'coarse', which acme \(.* gives"):
        merged(acme=plugin(pattern_configs=[], **given), acme__fast=plugin(**given))


@pytest.mark.parametrize("key", [CONV_RELU, (nn.ReLU, nn.Conv2d), normalize_sequential(CONV_RELU)])
def test_a_hook_fills_a_config_whatever_the_spelling_of_the_key(merged, plugin, key):
    chip = plugin(pattern_configs=[BackendPatternConfig(CONV_RELU)], fuser_methods={key: fuse_two})
    assert merged(acme=chip).entries[0].config.fuser_method is fuse_two


def test_all_three_callables_come_through_hooks_also_for_another_plugins_pattern(merged, plugin):
    backend = merged(
        acme=plugin(pattern_configs=[BackendPatternConfig(complex_pattern=RESIDUAL)]),
        acme__fast=plugin(
            fuser_methods={RESIDUAL: fuse_two},
            root_node_getters={RESIDUAL: last_input},
            extra_inputs_getters={RESIDUAL: last_input},
        ),
    )
    config = backend.entries[0].config
    assert config.fuser_method is fuse_two
    assert config.root_node_getter is config.extra_inputs_getter is last_input


def test_a_hook_leaves_the_plugins_own_config_as_it_was(merged, plugin):
    config = BackendPatternConfig(CONV_RELU)
    merged(acme=plugin(pattern_configs=[config], fuser_methods={CONV_RELU: fuse_two}))
    assert config.fuser_method is None


def test_a_configs_own_callable_wins(merged, plugin):
    config = BackendPatternConfig(CONV_RELU, fuser_method=fuse_two)
    chip = plugin(pattern_configs=[config], fuser_methods={CONV_RELU: fuse_two_differently})
    assert merged(acme=chip).entries[0].config.fuser_method is fuse_two


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ((nn.Conv2d, nn.SiLU), fuse_two, "reads Conv2d -> SiLU or SiLU -> Conv2d"),
        (3.5, fuse_two, "the key 3.5 is not a pattern in either format"),
        (CONV_RELU, lambda is_qat, conv: conv, "is called with is_qat and the modules"),  # noqa: ARG005
    ],
)
def test_a_hook_that_fits_no_pattern_is_refused(merged, plugin, key, value, words):
    chip = plugin(pattern_configs=[BackendPatternConfig(CONV_RELU)], fuser_methods={key: value})
    with pytest.raises(PluginError, match=re.escape(words)) as caught:
        merged(acme=chip)
    assert caught.value.hook == "fusion_fuser_methods"


def test_a_key_with_two_meanings_is_refused(merged, plugin):
    configs = [BackendPatternConfig(CONV_RELU), BackendPatternConfig(CONV_RELU[::-1])]
    chip = plugin(pattern_configs=configs, fuser_methods={CONV_RELU: fuse_two})
    with pytest.raises(PluginError, match="may mean Conv2d -> ReLU and ReLU -> Conv2d; put"):
        merged(acme=chip)


def test_two_plugins_that_give_different_callables_are_both_named(merged, plugin):
    words = "acme .* and acme.fast .* give different callables for Conv2d -> ReLU"
    with pytest.raises(PatternConflictError, match=words):
        merged(
            acme=plugin(
                pattern_configs=[BackendPatternConfig(CONV_RELU)],
                fuser_methods={CONV_RELU: fuse_two},
            ),
            acme__fast=plugin(fuser_methods={CONV_RELU: fuse_two_differently}),
        )


def test_one_hook_cannot_contradict_itself(merged, plugin):
    table = {CONV_RELU: fuse_two, CONV_RELU[::-1]: fuse_two_differently}
    chip = plugin(pattern_configs=[BackendPatternConfig(CONV_RELU)], fuser_methods=table)
    with pytest.raises(PatternConflictError, match="two different callables for Conv2d -> ReLU"):
        merged(acme=chip)


def test_the_same_callable_from_two_plugins_is_no_conflict(merged, plugin):
    table = {CONV_RELU: fuse_two}
    backend = merged(
        acme=plugin(pattern_configs=[BackendPatternConfig(CONV_RELU)], fuser_methods=table),
        acme__fast=plugin(fuser_methods=table),
    )
    assert backend.entries[0].config.fuser_method is fuse_two


@pytest.mark.parametrize(
    "change",
    [
        {"pattern": nn.Conv2d},
        {"priority": 1},
        {"dtype_configs": (INT8,)},
    ],
)
def test_the_fingerprint_tells_backends_apart(merged, plugin, change):
    plain = merged(acme=plugin(pattern_configs=[BackendPatternConfig(nn.Linear)]))
    fields = {"pattern": nn.Linear} | change
    other = merged(other=plugin(pattern_configs=[BackendPatternConfig(**fields)]))
    assert plain.fingerprint != other.fingerprint
