"""PyTorch's own qconfigs are taken as they are, and mean here what they say there."""

from __future__ import annotations

import functools
import pickle

import pytest
import torch
from pydantic import ValidationError
from torch import nn

from fusion_core.configs import (
    Mode,
    ObserverSpec,
    QConfig,
    QConfigMapping,
    as_qconfig,
    as_qconfig_mapping,
    mode_of,
    quantized_type,
)
from fusion_core.nn import (
    FixedQParamsObserver,
    HistogramObserver,
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    PerChannelMinMaxObserver,
    PlaceholderObserver,
)
from fusion_core.nn.fake_quantize import FakeQuantize

quantization = pytest.importorskip("torch.ao.quantization")
stock = pytest.importorskip("torch.ao.quantization.qconfig")
observers = pytest.importorskip("torch.ao.quantization.observer")
mappings = pytest.importorskip("torch.ao.quantization.qconfig_mapping")

STOCK = sorted(name for name in dir(stock) if isinstance(getattr(stock, name), stock.QConfig))
HISTOGRAM = ObserverSpec(HistogramObserver)
FLOAT = ObserverSpec(PlaceholderObserver, dtype=torch.float32)
UNIT = ObserverSpec(
    FixedQParamsObserver,
    scale=1 / 256,
    zero_point=0,
    dtype=torch.quint8,
    quant_min=0,
    quant_max=255,
)


class Own(observers.MinMaxObserver):
    """An observer of a user's own, which nothing is known of."""


def translated(observer):
    return QConfig(activation=observer, weight=observer).activation


def copied(value):
    return pickle.loads(pickle.dumps(value))  # noqa: S301  our own bytes


@pytest.mark.parametrize("name", [name for name in STOCK if name != "default_debug_qconfig"])
def test_every_stock_qconfig_promises_what_its_own_observers_do(name):
    given = getattr(stock, name)
    made = as_qconfig(given)
    assert copied(made) == made == as_qconfig(given)
    for place in ("activation", "weight"):
        factory = getattr(given, place)
        if factory is None or factory is nn.Identity or _is_float16_input(given, place):
            assert getattr(made, place) == FLOAT
            continue
        theirs, ours = factory(), quantized_type(getattr(made, place))
        if type(theirs).__name__ == "ReuseInputObserver":
            assert getattr(made, place) == HISTOGRAM
            continue
        assert ours.dtype == theirs.dtype
        if ours.quant_min is not None and theirs.quant_min is not None:
            limits = _codes(theirs)
            assert (ours.quant_min, ours.quant_max) == limits
        if ours.qscheme is not None and theirs.qscheme is not None:
            assert ours.qscheme == theirs.qscheme
        assert ours.is_dynamic == bool(theirs.is_dynamic)


def _is_float16_input(given, place):
    return given is stock.float16_dynamic_qconfig and place == "activation"


def _codes(observer):
    inner = getattr(observer, "activation_post_process", observer)
    return inner.quant_min, inner.quant_max


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("default_qconfig", Mode.STATIC),
        ("default_dynamic_qconfig", Mode.DYNAMIC),
        ("per_channel_dynamic_qconfig", Mode.DYNAMIC),
        ("float16_dynamic_qconfig", Mode.WEIGHT_ONLY),
        ("float_qparams_weight_only_qconfig", Mode.WEIGHT_ONLY),
        ("float_qparams_weight_only_qconfig_4bit", Mode.WEIGHT_ONLY),
        ("default_weight_only_qconfig", Mode.WEIGHT_ONLY),
        ("default_symmetric_qnnpack_qconfig", Mode.STATIC),
    ],
)
def test_a_stock_qconfig_is_of_the_mode_it_is_for(name, mode):
    assert mode_of(as_qconfig(getattr(stock, name))) is mode


@pytest.mark.parametrize(
    ("observer", "expected"),
    [
        (observers.HistogramObserver, HISTOGRAM),
        (observers.MinMaxObserver.with_args(eps=0.5), ObserverSpec(MinMaxObserver, eps=0.5)),
        (
            observers.MinMaxObserver.with_args(dtype=torch.qint8, eps=1.0).with_args(eps=0.5),
            ObserverSpec(MinMaxObserver, dtype=torch.qint8, eps=0.5),
        ),
        (
            functools.partial(observers.MovingAverageMinMaxObserver, 0.5, torch.qint8),
            ObserverSpec(MovingAverageMinMaxObserver, averaging_constant=0.5, dtype=torch.qint8),
        ),
        (
            observers.MinMaxObserver.with_callable_args(factory_kwargs=dict),
            ObserverSpec(MinMaxObserver),
        ),
        (nn.Identity, FLOAT),
        (observers.NoopObserver, ObserverSpec(PlaceholderObserver, dtype=torch.float16)),
        (
            quantization.FakeQuantize.with_args(observer=observers.MinMaxObserver, quant_max=7),
            ObserverSpec(FakeQuantize, {"observer": MinMaxObserver, "quant_max": 7}),
        ),
        (
            quantization.FakeQuantize.with_args(
                observer=observers.MinMaxObserver.with_args(dtype=torch.qint8), reduce_range=True
            ),
            ObserverSpec(
                FakeQuantize,
                {
                    "observer": MinMaxObserver,
                    "dtype": torch.qint8,
                    "quant_min": -64,
                    "quant_max": 63,
                },
            ),
        ),
        (
            quantization.FakeQuantize,
            ObserverSpec(FakeQuantize, {"observer": MovingAverageMinMaxObserver}),
        ),
    ],
    ids=[
        *("type", "partial", "nested", "positional", "callable", "identity", "noop"),
        *("fake", "fake nested", "fake type"),
    ],
)
def test_an_observer_of_pytorch_becomes_a_recipe_for_ours(observer, expected):
    assert translated(observer) == expected


@pytest.mark.parametrize(
    ("options", "limits"),
    [
        ({}, (0, 127)),
        ({"dtype": torch.quint8}, (0, 127)),
        ({"dtype": torch.qint8}, (-64, 63)),
        ({"quant_min": 0, "quant_max": 63}, (0, 31)),
    ],
)
def test_a_reduced_range_is_half_of_the_codes(options, limits):
    theirs = observers.MinMaxObserver.with_args(reduce_range=True, **options)
    promised = quantized_type(translated(theirs))
    assert (promised.quant_min, promised.quant_max) == limits == _codes(theirs())


def test_an_older_spelling_of_dynamic_is_understood():
    old = observers.PlaceholderObserver.with_args(dtype=torch.quint8, compute_dtype=torch.quint8)
    assert translated(old) == ObserverSpec(PlaceholderObserver, dtype=torch.quint8, is_dynamic=True)


def test_an_observer_of_a_users_own_stays_what_it_is():
    assert translated(Own) is Own
    spec = translated(Own.with_args(eps=0.5))
    assert spec == ObserverSpec(Own, eps=0.5)
    assert copied(spec) == spec
    bound = functools.partial(Own, eps=0.5)
    assert translated(bound) is bound
    fake = quantization.FakeQuantize.with_args(observer=Own)
    assert translated(fake) is fake


def test_an_observer_already_built_is_refused():
    with pytest.raises(ValidationError, match="MinMaxObserver is an observer already built; give"):
        translated(observers.MinMaxObserver())


def test_an_observer_that_chooses_no_scale_is_refused():
    with pytest.raises(
        ValidationError, match=r"RecordingObserver keeps every tensor .* HistogramO"
    ):
        as_qconfig(stock.default_debug_qconfig)


class TestMapping:
    @pytest.mark.filterwarnings("ignore:Default qconfig of oneDNN")
    @pytest.mark.parametrize("backend", ["x86", "fbgemm", "qnnpack", "onednn"])
    @pytest.mark.parametrize("training", [False, True])
    def test_every_rule_of_a_default_mapping_is_there(self, backend, training):
        named = f"get_default_{'qat_' * training}qconfig_mapping"
        theirs = getattr(quantization, named)(backend)
        ours = as_qconfig_mapping(theirs)
        assert list(ours.object_type_qconfigs) == list(theirs.object_type_qconfigs)
        assert copied(ours) == ours == as_qconfig_mapping(theirs)
        kinds = {each.activation.observer for each in ours.qconfigs}
        assert (FakeQuantize in kinds) is training

    @pytest.mark.parametrize(("backend", "highest"), [("fbgemm", 127), ("qnnpack", 255)])
    def test_codes_are_those_of_the_backend(self, backend, highest):
        made = as_qconfig_mapping(quantization.get_default_qconfig_mapping(backend))
        promised = quantized_type(made.global_qconfig.activation)
        assert (promised.quant_min, promised.quant_max) == (0, highest)
        per_channel = quantized_type(made.global_qconfig.weight).qscheme
        assert (per_channel is torch.per_channel_symmetric) == (backend == "fbgemm")

    def test_the_mapping_for_symmetric_codes_keeps_smallest_scales(self):
        # The function has no public name, and is what mobile users are told to take.
        theirs = mappings._get_symmetric_qnnpack_qconfig_mapping()
        made = as_qconfig_mapping(theirs).global_qconfig
        assert quantized_type(made.activation).eps == quantized_type(made.weight).eps == 2**-12
        assert quantized_type(made.weight).quant_min == -127

    def test_a_fixed_range_is_that_of_the_output_alone(self):
        made = as_qconfig_mapping(quantization.get_default_qconfig_mapping("fbgemm"))
        sigmoid = made.object_type_qconfigs[nn.Sigmoid]
        assert sigmoid.output == UNIT
        assert sigmoid.activation == made.global_qconfig.activation

    def test_a_fixed_range_without_a_static_rule_for_all_is_still_measured_at_the_input(self):
        theirs = mappings.QConfigMapping().set_global(stock.default_dynamic_qconfig)
        default = quantization.get_default_qconfig_mapping("qnnpack")
        theirs.set_object_type(nn.Sigmoid, default.object_type_qconfigs[nn.Sigmoid])
        sigmoid = as_qconfig_mapping(theirs).object_type_qconfigs[nn.Sigmoid]
        assert (sigmoid.activation, sigmoid.output) == (HISTOGRAM, UNIT)

    def test_in_training_a_fixed_range_is_rounded_and_its_input_measured_by_what_rounds(self):
        theirs = quantization.get_default_qat_qconfig_mapping("fbgemm")
        theirs.set_global(None)
        sigmoid = as_qconfig_mapping(theirs).object_type_qconfigs[nn.Sigmoid]
        assert sigmoid.activation.observer is FakeQuantize
        assert quantized_type(sigmoid.output).fixed == (1 / 256, 0)

    def test_reusing_the_input_takes_the_observer_of_everything_else(self):
        made = as_qconfig_mapping(quantization.get_default_qconfig_mapping("fbgemm"))
        reshape = made.object_type_qconfigs["reshape"]
        assert reshape.activation == made.global_qconfig.activation

    def test_all_levels_come_over(self):
        theirs = mappings.QConfigMapping().set_global(stock.default_qconfig)
        theirs.set_object_type(nn.Linear, None).set_module_name_regex("a.*", None)
        theirs.set_module_name("b", stock.default_qconfig)
        theirs.set_module_name_object_type_order("c", nn.Linear, 1, None)
        default = as_qconfig(stock.default_qconfig)
        assert as_qconfig_mapping(theirs) == QConfigMapping(
            global_qconfig=default,
            object_type_qconfigs={nn.Linear: None},
            module_name_regex_qconfigs={"a.*": None},
            module_name_qconfigs={"b": default},
            module_name_object_type_order_qconfigs={("c", nn.Linear, 1): None},
        )

    def test_the_dict_of_lists_of_older_releases_is_understood(self):
        made = as_qconfig_mapping(
            {
                "": stock.default_qconfig,
                "object_type": [(nn.Linear, None)],
                "module_name": [("head", None)],
                "module_name_object_type_order": [("c", nn.Linear, 1, None)],
            }
        )
        default = QConfigMapping(global_qconfig=as_qconfig(stock.default_qconfig))
        default.set_object_type(nn.Linear, None).set_module_name("head", None)
        assert made == default.set_module_name_object_type_order("c", nn.Linear, 1, None)

    def test_a_qconfig_alone_is_for_everything(self):
        default = as_qconfig(stock.default_qconfig)
        for given in (default, stock.default_qconfig):
            assert as_qconfig_mapping(given) == QConfigMapping(global_qconfig=default)

    def test_ours_is_taken_as_it_is(self):
        ours = QConfigMapping(global_qconfig=as_qconfig(stock.default_qconfig))
        assert as_qconfig_mapping(ours) is ours
        assert as_qconfig(ours.global_qconfig) is ours.global_qconfig

    @pytest.mark.parametrize("given", [3, "fbgemm", {"globl": None}])
    def test_what_is_no_mapping_is_refused(self, given):
        with pytest.raises(ValidationError, match="QConfigMapping"):
            as_qconfig_mapping(given)

    def test_a_qconfig_of_pytorch_may_stand_in_our_mapping(self):
        made = QConfigMapping().set_object_type(nn.Linear, stock.default_dynamic_qconfig)
        made.set_global(stock.default_qconfig)
        expected = as_qconfig(stock.default_dynamic_qconfig)
        assert made.object_type_qconfigs == {nn.Linear: expected}
        assert made.global_qconfig.weight == ObserverSpec(
            MinMaxObserver, dtype=torch.qint8, qscheme=torch.per_tensor_symmetric
        )


def test_weights_per_row_keep_their_float_parameters():
    weight = as_qconfig(stock.float_qparams_weight_only_qconfig_4bit).weight
    assert weight == ObserverSpec(
        PerChannelMinMaxObserver,
        dtype=torch.quint4x2,
        qscheme=torch.per_channel_affine_float_qparams,
        ch_axis=0,
    )


def test_a_recipe_for_training_survives_json():
    made = as_qconfig(stock.default_qat_qconfig)
    assert QConfig.model_validate_json(made.model_dump_json()) == made
