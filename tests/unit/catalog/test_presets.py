"""A preset replaces what its name says; what a backend's kernels need stays."""

from __future__ import annotations

import functools

import pytest
import torch
from torch import nn

import fusion_core as core
from fusion_core.catalog.presets import PRESETS, preset, with_qconfigs
from fusion_core.configs import INTEGER_DTYPES, quantized_type
from fusion_core.errors import UnknownPresetError
from fusion_core.nn.fake_quantize import FakeQuantize

NARROW = core.catalog.static_qconfig(quant_max=127, weight_min=-64, weight_max=63, eps=2**-12)
COARSE = core.catalog.static_qconfig(per_channel=False, weight_min=-64, weight_max=63)
DYNAMIC = core.catalog.dynamic_qconfig()
TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)


def everywhere(qconfig):
    return core.QConfigMapping(global_qconfig=qconfig)


def limits(factory):
    promised = quantized_type(factory)
    return promised.dtype, promised.quant_min, promised.quant_max, promised.eps


def kind(factory):
    return factory.options["observer"] if factory.observer is FakeQuantize else factory.observer


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("qconfig", [NARROW, COARSE], ids=["narrow", "coarse"])
@pytest.mark.parametrize("training", [False, True])
def test_ranges_and_smallest_scales_stay(name, qconfig, training):
    mapping = everywhere(qconfig)
    mapping = core.catalog.qat_qconfig_mapping(mapping) if training else mapping
    made = preset(mapping, name).global_qconfig
    assert limits(made.activation) == limits(qconfig.activation)
    assert limits(made.weight) == limits(qconfig.weight)
    assert (made.activation.observer is FakeQuantize) is training


@pytest.mark.parametrize(
    ("name", "observer"),
    [
        ("histogram", core.nn.HistogramObserver),
        ("min_max", core.nn.MinMaxObserver),
        ("moving_average", core.nn.MovingAverageMinMaxObserver),
    ],
)
def test_activations_are_measured_by_what_is_named_and_weights_are_left_alone(name, observer):
    for mapping in (everywhere(NARROW), core.catalog.qat_qconfig_mapping(everywhere(NARROW))):
        made = preset(mapping, name).global_qconfig
        assert kind(made.activation) is observer
        assert made.weight == mapping.global_qconfig.weight


@pytest.mark.parametrize(
    ("name", "scheme"),
    [("affine", torch.per_tensor_affine), ("symmetric", torch.per_tensor_symmetric)],
)
def test_activations_have_the_scheme_that_is_named(name, scheme):
    made = preset(everywhere(NARROW), name).global_qconfig
    assert quantized_type(made.activation).qscheme is scheme
    assert made.weight == NARROW.weight


@pytest.mark.parametrize("training", [False, True])
def test_weights_have_a_scale_for_each_channel_or_one(training):
    fine, coarse = everywhere(NARROW), everywhere(COARSE)
    if training:
        fine, coarse = (
            core.catalog.qat_qconfig_mapping(fine),
            core.catalog.qat_qconfig_mapping(coarse),
        )
    per_channel = preset(coarse, "per_channel").global_qconfig.weight
    per_tensor = preset(fine, "per_tensor").global_qconfig.weight
    assert quantized_type(per_channel).qscheme is torch.per_channel_symmetric
    assert quantized_type(per_tensor).qscheme is torch.per_tensor_symmetric
    assert preset(fine, "per_channel").global_qconfig == fine.global_qconfig
    assert preset(coarse, "per_tensor").global_qconfig == coarse.global_qconfig


def test_a_weight_in_training_still_follows_the_present_tensor():
    made = preset(
        core.catalog.qat_qconfig_mapping(everywhere(COARSE)), "per_channel"
    ).global_qconfig.weight
    assert kind(made) is core.nn.MovingAveragePerChannelMinMaxObserver
    assert made.options["averaging_constant"] == 1.0


def test_transposed_convolutions_get_their_own_channels():
    made = preset(everywhere(COARSE), "per_channel")
    assert set(made.object_type_qconfigs) == set(TRANSPOSED)
    for qconfig in made.object_type_qconfigs.values():
        assert qconfig.weight().ch_axis == 1
    assert made.global_qconfig.weight().ch_axis == 0


@pytest.mark.parametrize("own", [COARSE, None])
def test_what_a_mapping_says_of_transposed_convolutions_stays(own):
    mapping = everywhere(COARSE).set_object_type(nn.ConvTranspose2d, own)
    assert preset(mapping, "per_channel").object_type_qconfigs[nn.ConvTranspose2d] == own


@pytest.mark.parametrize("name", PRESETS)
def test_what_measures_nothing_stays(name):
    fixed = core.ObserverSpec(core.nn.FixedQParamsObserver, scale=1 / 256, zero_point=0)
    for qconfig in (
        DYNAMIC.model_copy(update={"weight": core.catalog.float16_qconfig().weight}),
        core.catalog.float16_qconfig(),
    ):
        assert preset(everywhere(qconfig), name).global_qconfig == qconfig
    output = NARROW.model_copy(update={"output": fixed})
    assert preset(everywhere(output), name).global_qconfig.output == fixed


def test_weights_with_float_parameters_keep_their_scheme():
    rows = core.catalog.weight_only_qconfig()
    for name in ("per_channel", "per_tensor"):
        assert preset(everywhere(rows), name).global_qconfig == rows


def test_an_observer_that_is_no_recipe_is_replaced_by_what_it_promises():
    bound = functools.partial(core.nn.HistogramObserver, quant_max=127, eps=0.5)
    mapping = everywhere(core.QConfig(activation=bound, weight=NARROW.weight))
    made = preset(mapping, "min_max").global_qconfig.activation
    assert made.observer is core.nn.MinMaxObserver
    assert limits(made) == limits(bound)


def test_every_rule_is_replaced_and_none_is_lost():
    mapping = core.QConfigMapping(
        object_type_qconfigs={nn.Linear: NARROW, nn.Conv2d: None},
        module_name_regex_qconfigs={"a.*": NARROW, "b": None},
        module_name_qconfigs={"c": NARROW, "d": None},
        module_name_object_type_order_qconfigs={("e", nn.Linear, 0): NARROW},
    )
    made = with_qconfigs(mapping, lambda qconfig, _key: COARSE if qconfig == NARROW else qconfig)
    for field in type(mapping).model_fields:
        before, after = getattr(mapping, field), getattr(made, field)
        if before is not None:
            swapped = {NARROW.weight.observer: COARSE}
            assert list(after) == list(before)
            assert [*after.values()] == [
                each and swapped[each.weight.observer] for each in before.values()
            ]
    assert mapping.object_type_qconfigs[nn.Linear] == NARROW


def test_training_rounds_what_is_measured_and_leaves_floats_alone():
    made = core.catalog.qat_qconfig_mapping(everywhere(NARROW)).global_qconfig
    assert made.activation.observer is made.weight.observer is FakeQuantize
    assert core.catalog.qat_qconfig_mapping(everywhere(made)).global_qconfig == made
    half = core.catalog.float16_qconfig()
    assert core.catalog.qat_qconfig_mapping(everywhere(half)).global_qconfig == half
    assert quantized_type(half.activation).dtype not in INTEGER_DTYPES


def test_an_unknown_name_is_told_the_known_ones():
    with pytest.raises(UnknownPresetError, match=r"'per_chanel'.* mean 'per_channel'.* symmetric"):
        preset(everywhere(NARROW), "per_chanel")
