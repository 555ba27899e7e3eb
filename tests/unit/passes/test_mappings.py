"""Of all that can be said about qconfigs, one mapping counts, or it is said why none can."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch
from torch import nn

import fusion_core as core
from fusion_core.catalog.presets import PRESETS, preset
from fusion_core.configs import Mode, mode_of, quantized_type
from fusion_core.errors import QConfigError, UnknownPresetError, UnsupportedModeError
from fusion_core.passes.dtypes import choose_dtype_config
from fusion_core.passes.mappings import mapping_for, mode_mapping, modes_of, presets_of
from fusion_core.registry import Registry

STATIC = core.DTypeConfig(
    input_dtype=torch.quint8, output_dtype=torch.quint8, weight_dtype=torch.qint8
)
SHORT = core.DTypeWithConstraints(
    dtype=torch.qint8, quant_min_lower_bound=-64, quant_max_upper_bound=63
)
DYNAMIC = core.DTypeConfig(
    input_dtype=core.DTypeWithConstraints(
        dtype=torch.quint8, quant_min_lower_bound=0, quant_max_upper_bound=127
    ),
    output_dtype=torch.float32,
    weight_dtype=SHORT,
    is_dynamic=True,
)


def by_weight(dtype):
    return core.DTypeConfig(
        input_dtype=torch.float32, output_dtype=torch.float32, weight_dtype=dtype
    )


HALF, ROWS = by_weight(torch.float16), by_weight(torch.quint8)
DEFAULT = core.QConfigMapping(global_qconfig=core.catalog.static_qconfig(weight_min=-127))
LOW = core.catalog.static_qconfig(quant_max=127)


def config(kind, *dtypes, **fields):
    return core.BackendPatternConfig(kind, dtype_configs=list(dtypes), **fields)


def weighted(kind, *dtypes):
    return config(kind, *dtypes, root_module=kind)


@pytest.fixture
def chip():
    """A backend of pattern configs, and what it answers besides."""

    def chip(*configs, **answers):
        plugin = ModuleType("chip_plugin")
        for name, answer in {"pattern_configs": list(configs), **answers}.items():
            setattr(plugin, f"fusion_{name}", core.hookimpl(lambda answer=answer: answer))
        registry = Registry()
        registry.register_backend("chip", plugin)
        return registry.get_backend("chip")

    return chip


@pytest.fixture
def plain(chip):
    return chip(weighted(nn.Linear, STATIC), default_qconfig_mapping=DEFAULT)


class TestChoice:
    def test_without_a_word_the_backends_own_counts(self, plain, chip):
        assert mapping_for(plain) == mapping_for(plain, mode="static") == DEFAULT
        fallback = core.QConfigMapping(global_qconfig=core.catalog.static_qconfig())
        assert mapping_for(chip()) == fallback

    def test_a_mapping_or_a_qconfig_is_taken_as_given(self, plain):
        given = core.QConfigMapping(global_qconfig=LOW)
        assert mapping_for(plain, given=given) == mapping_for(plain, preset=LOW) == given
        assert mapping_for(plain, given=LOW) == given

    def test_those_of_pytorch_are_taken_too(self, plain):
        torch_qconfig = pytest.importorskip("torch.ao.quantization.qconfig").default_qconfig
        alone = mapping_for(plain, preset=torch_qconfig)
        assert alone == mapping_for(plain, given=torch_qconfig)
        assert quantized_type(alone.global_qconfig.activation).quant_max == 127

    def test_a_preset_changes_the_mapping_of_the_mode(self, plain):
        assert mapping_for(plain, preset="min_max") == preset(DEFAULT, "min_max")
        trained = mapping_for(plain, mode="qat", preset="min_max")
        assert trained == preset(core.catalog.qat_qconfig_mapping(DEFAULT), "min_max")

    def test_a_backends_own_preset_goes_before_cores(self, chip):
        own = core.QConfigMapping(global_qconfig=LOW)
        backend = chip(qconfig_mappings={"min_max": own, "low": own, "qat": own})
        assert mapping_for(backend, preset="min_max") == mapping_for(backend, preset="low") == own
        assert presets_of(backend) == ("low", "min_max", *(p for p in PRESETS if p != "min_max"))

    def test_what_was_returned_may_be_changed(self, plain):
        mapping_for(plain).set_object_type(nn.Linear, None)
        assert mapping_for(plain) == DEFAULT

    def test_what_is_given_for_training_is_rounded_too(self, plain):
        assert mapping_for(plain, mode="qat", given=DEFAULT) == core.catalog.qat_qconfig_mapping(
            DEFAULT
        )
        assert mapping_for(plain, mode="qat", preset=LOW) == core.catalog.qat_qconfig_mapping(
            core.QConfigMapping(global_qconfig=LOW)
        )

    @pytest.mark.parametrize(
        ("asked", "words"),
        [
            ({"preset": "min_max", "given": DEFAULT}, "both a qconfig and a qconfig mapping"),
            ({"mode": "dynamc"}, "no mode 'dynamc'; there are static, dynamic, weight_only, qat"),
            ({"preset": "dynamic"}, "'dynamic' is a mode, not a preset; pass it as mode='dynamic'"),
            ({"mode": "dynamic", "given": DEFAULT}, "mode='dynamic' .* what is given is static"),
            ({"mode": "static", "preset": core.catalog.float16_qconfig()}, "given is weight only"),
            ({"mode": "static", "given": core.QConfigMapping()}, "is nothing but float"),
        ],
    )
    def test_a_contradiction_is_refused(self, plain, asked, words):
        with pytest.raises(QConfigError, match=words):
            mapping_for(plain, **asked)

    def test_an_unknown_preset_is_told_the_backends_own_and_cores(self, chip):
        backend = chip(qconfig_mappings={"low": DEFAULT})
        with pytest.raises(UnknownPresetError, match=r"'lo'.* mean 'low'.* low, per_channel"):
            mapping_for(backend, preset="lo")


class TestModes:
    @pytest.mark.parametrize("mode", ["dynamic", "weight_only", "qat"])
    def test_the_backends_own_mapping_of_a_mode_counts(self, chip, mode):
        own = core.QConfigMapping(global_qconfig=LOW)
        backend = chip(qconfig_mappings={mode: own})
        assert mode_mapping(backend, mode) == own
        assert mode in modes_of(backend)

    def test_a_mode_may_be_given_as_one(self, chip):
        backend = chip(qconfig_mappings={"weight_only": DEFAULT})
        assert mode_mapping(backend, Mode.WEIGHT_ONLY) == DEFAULT

    @pytest.mark.parametrize(
        ("dtypes", "mode", "observed"),
        [
            (DYNAMIC, Mode.DYNAMIC, (torch.quint8, 127, torch.qint8, -64)),
            (HALF, Mode.WEIGHT_ONLY, (torch.float32, None, torch.float16, None)),
            (ROWS, Mode.WEIGHT_ONLY, (torch.float32, None, torch.quint8, 0)),
            (by_weight(torch.quint4x2), Mode.WEIGHT_ONLY, (torch.float32, None, torch.quint4x2, 0)),
            (by_weight(torch.qint8), Mode.WEIGHT_ONLY, (torch.float32, None, torch.qint8, -127)),
        ],
        ids=["dynamic", "float16", "8 bits", "4 bits", "its own weights"],
    )
    def test_what_a_backend_does_not_give_is_made_to_fit_its_dtypes(
        self, chip, dtypes, mode, observed
    ):
        backend = chip(weighted(nn.LSTM, STATIC, dtypes), default_qconfig_mapping=DEFAULT)
        made = mode_mapping(backend, mode)
        (qconfig,) = made.object_type_qconfigs.values()
        given, weight = quantized_type(qconfig.activation), quantized_type(qconfig.weight)
        assert (given.dtype, given.quant_max, weight.dtype, weight.quant_min) == observed
        assert mode_of(qconfig) is mode
        assert choose_dtype_config([dtypes], qconfig, weighted=True) == (dtypes, "")
        assert (made.global_qconfig, set(made.object_type_qconfigs)) == (None, {nn.LSTM})

    def test_a_function_goes_with_the_module_that_it_becomes(self, chip):
        made = mode_mapping(chip(weighted(nn.Linear, DYNAMIC)), "dynamic")
        assert set(made.object_type_qconfigs) == {nn.Linear, nn.functional.linear}

    def test_a_function_with_a_weight_is_named_itself(self, chip):
        embedding = config(nn.functional.embedding, ROWS, input_type_to_index={"weight": 1})
        backend = chip(embedding, config(nn.ReLU, DYNAMIC))
        assert set(mode_mapping(backend, "weight_only").object_type_qconfigs) == {
            nn.functional.embedding
        }

    def test_a_mode_without_a_kernel_is_refused_with_those_there_are(self, chip):
        backend = chip(weighted(nn.Linear, STATIC, HALF))
        assert modes_of(backend) == ("static", "weight_only", "qat")
        words = "'chip' has nothing for the mode 'dynamic': none .* dynamic.* static, weight_only"
        with pytest.raises(UnsupportedModeError, match=words) as caught:
            mapping_for(backend, mode="dynamic")
        assert caught.value.supported == modes_of(backend)

    def test_dtypes_that_no_qconfig_fits_make_no_mode(self, chip):
        odd = core.DTypeConfig(input_dtype=torch.qint32, weight_dtype=torch.qint8, is_dynamic=True)
        assert "dynamic" not in modes_of(chip(weighted(nn.Linear, odd)))

    def test_training_rounds_what_the_default_measures(self, plain):
        assert mode_mapping(plain, "qat") == core.catalog.qat_qconfig_mapping(DEFAULT)
