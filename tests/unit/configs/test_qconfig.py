"""Observer recipes, and which operation gets which."""

from __future__ import annotations

import functools
import json
import pickle
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from pydantic import ValidationError
from torch import nn

from fusion_core.configs import ObserverSpec, QConfig, QConfigMapping, QuantizedType, quantized_type
from fusion_core.nn import (
    FixedQParamsObserver,
    HistogramObserver,
    MinMaxObserver,
    PerChannelMinMaxObserver,
    PlaceholderObserver,
)
from fusion_core.patterns import ops

WEIGHT = ObserverSpec(PerChannelMinMaxObserver, dtype=torch.qint8)


def qconfig(name):
    """Distinct for each name."""
    return QConfig(activation=ObserverSpec(MinMaxObserver, label=name), weight=WEIGHT)


def copied(value):
    return pickle.loads(pickle.dumps(value))  # noqa: S301  our own bytes


class TestObserverSpec:
    def test_it_builds_a_new_observer_with_its_options(self):
        spec = ObserverSpec(MinMaxObserver, dtype=torch.qint8, quant_min=-127)
        first, second = spec(), spec()
        assert first is not second
        assert (first.dtype, first.quant_min) == (torch.qint8, -127)

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            (ObserverSpec(MinMaxObserver, eps=1), ObserverSpec(MinMaxObserver, {"eps": 1})),
            (ObserverSpec(MinMaxObserver, eps=1), ObserverSpec(MinMaxObserver, eps=1.0)),
            (
                ObserverSpec(MinMaxObserver, eps=1, quant_min=0),
                ObserverSpec(MinMaxObserver, quant_min=0, eps=1),
            ),
            (ObserverSpec(MinMaxObserver, bins=[1]), ObserverSpec(MinMaxObserver, bins=[1])),
            (ObserverSpec(MinMaxObserver).with_options(eps=1), ObserverSpec(MinMaxObserver, eps=1)),
        ],
    )
    def test_equal_specs_hash_alike(self, one, other):
        assert one == other
        assert hash(one) == hash(other)

    @pytest.mark.parametrize(
        "other",
        [
            ObserverSpec(HistogramObserver),
            ObserverSpec(MinMaxObserver, eps=1),
            ObserverSpec(MinMaxObserver, dtype=torch.qint8),
        ],
    )
    def test_specs_with_another_type_or_option_differ(self, other):
        assert other != ObserverSpec(MinMaxObserver)

    def test_it_survives_pickle_and_json(self):
        spec = ObserverSpec(MinMaxObserver, dtype=torch.qint8, qscheme=torch.per_tensor_symmetric)
        assert copied(spec) == spec
        assert ObserverSpec.model_validate_json(spec.model_dump_json()) == spec

    def test_an_option_may_be_called_observer(self):
        spec = ObserverSpec(dict, observer=MinMaxObserver, options=1)
        assert spec.options == {"observer": MinMaxObserver, "options": 1}

    def test_options_can_be_replaced_in_a_copy(self):
        spec = ObserverSpec(MinMaxObserver, eps=1, quant_min=0)
        assert spec.with_options(eps=2).options == {"eps": 2, "quant_min": 0}
        assert spec.options == {"eps": 1, "quant_min": 0}

    @pytest.mark.parametrize("observer", [3, "no.such.observer"])
    def test_what_cannot_be_called_is_refused(self, observer):
        with pytest.raises(ValidationError, match="observer"):
            ObserverSpec(observer)


def static(dtype, qscheme, low, high, *, eps=0.5, fixed=None):
    return QuantizedType(dtype, qscheme, low, high, eps, is_dynamic=False, fixed=fixed)


class TestQuantizedType:
    @pytest.mark.parametrize(
        ("factory", "expected"),
        [
            (
                ObserverSpec(MinMaxObserver, eps=0.5),
                static(torch.quint8, torch.per_tensor_affine, 0, 255),
            ),
            (
                functools.partial(PerChannelMinMaxObserver, dtype=torch.qint8, eps=0.5),
                static(torch.qint8, torch.per_channel_affine, -128, 127),
            ),
            (
                ObserverSpec(FixedQParamsObserver, scale=0.25, zero_point=3, eps=0.5),
                static(torch.quint8, torch.per_tensor_affine, 0, 255, fixed=(0.25, 3)),
            ),
            (
                ObserverSpec(PlaceholderObserver, dtype=torch.float16),
                static(torch.float16, None, None, None, eps=None),
            ),
        ],
        ids=["min-max", "per channel", "fixed", "float"],
    )
    def test_our_observers_say_what_they_promise(self, factory, expected):
        assert quantized_type(factory) == expected

    @pytest.mark.parametrize(
        ("name", "options", "expected"),
        [
            ("MinMaxObserver", {}, (torch.quint8, 0, 255, None)),
            ("HistogramObserver", {"reduce_range": True}, (torch.quint8, 0, 127, None)),
            ("PerChannelMinMaxObserver", {"dtype": torch.qint8}, (torch.qint8, -128, 127, None)),
            ("PlaceholderObserver", {"dtype": torch.float16}, (torch.float16, None, None, None)),
            (
                "FixedQParamsObserver",
                {"scale": 0.25, "zero_point": 3},
                (torch.quint8, 0, 255, (0.25, 3)),
            ),
        ],
    )
    def test_observers_of_pytorch_are_understood(self, name, options, expected):
        observers = pytest.importorskip("torch.ao.quantization.observer")
        found = quantized_type(getattr(observers, name).with_args(**options))
        assert (found.dtype, found.quant_min, found.quant_max, found.fixed) == expected

    def test_one_observer_is_built_to_ask(self):
        built = []

        def factory():
            built.append(MinMaxObserver())
            return built[-1]

        assert quantized_type(factory) == quantized_type(factory)
        assert len(built) == 1

    @pytest.mark.parametrize("factory", [nn.Identity, lambda: SimpleNamespace(dtype=torch.qint8)])
    def test_what_is_no_observer_is_refused(self, factory):
        problem = "is not an observer: it needs a dtype and calculate_qparams"
        with pytest.raises(TypeError, match=problem):
            quantized_type(factory)


class TestQConfig:
    def test_input_and_output_default_to_the_activation(self):
        plain = qconfig("plain")
        assert plain.input_observer is plain.output_observer is plain.activation
        split = plain.model_copy(update={"input": WEIGHT})
        assert (split.input_observer, split.output_observer) == (WEIGHT, plain.activation)

    @pytest.mark.parametrize("observer", [MinMaxObserver, functools.partial(MinMaxObserver, eps=1)])
    def test_any_callable_is_an_observer(self, observer):
        assert QConfig(activation=observer, weight=WEIGHT).activation is observer

    def test_it_survives_pickle_and_json(self):
        assert copied(qconfig("a")) == qconfig("a")
        assert QConfig.model_validate_json(qconfig("a").model_dump_json()) == qconfig("a")

    @pytest.mark.parametrize("fields", [{}, {"activation": 3, "weight": WEIGHT}])
    def test_it_needs_two_observers(self, fields):
        with pytest.raises(ValidationError, match="activation"):
            QConfig(**fields)


ORDER = ("block", nn.Linear, 1)
LEVELS = ["order", "name", "parent", "regex", "type", "global"]


def mapping(levels, value):
    """A mapping with a rule at each of ``levels``."""
    setters = {
        "order": lambda to: to.set_module_name_object_type_order(*ORDER, value("order")),
        "name": lambda to: to.set_module_name("block.fc", value("name")),
        "parent": lambda to: to.set_module_name("block", value("parent")),
        "regex": lambda to: to.set_module_name_regex("bl.*fc", value("regex")),
        "type": lambda to: to.set_object_type(nn.Linear, value("type")),
        "global": lambda to: to.set_global(value("global")),
    }
    made = QConfigMapping()
    for level in levels:
        assert setters[level](made) is made
    return made


def resolved(mapping, path="block.fc", scope="block"):
    types = [nn.Linear, "linear"]
    return mapping.resolve(path, types, scope=scope, order=[(nn.Linear, 1), ("linear", 0)])


class TestQConfigMapping:
    @pytest.mark.parametrize("levels", [LEVELS[start:] for start in range(len(LEVELS))])
    def test_the_most_specific_rule_wins_in_any_order_of_setting(self, levels):
        for order in (levels, levels[::-1]):
            assert resolved(mapping(order, qconfig))[0] == qconfig(levels[0])

    @pytest.mark.parametrize("level", LEVELS)
    def test_an_explicit_none_counts_at_every_level(self, level):
        levels = LEVELS[LEVELS.index(level) :]
        made = mapping(levels, lambda name: None if name == level else qconfig(name))
        assert resolved(made)[0] is None

    @pytest.mark.parametrize(
        ("level", "rule"),
        [
            ("order", "module name, type and order"),
            ("name", "module name 'block.fc'"),
            ("parent", "module name 'block'"),
            ("regex", "module name regex 'bl.*fc'"),
            ("type", "operation type torch.nn.modules.linear.Linear"),
            ("global", "global"),
        ],
    )
    def test_the_rule_is_told_in_words(self, level, rule):
        assert resolved(mapping([level], qconfig))[1].startswith(rule)

    def test_without_any_rule_an_operation_stays_in_float(self):
        assert resolved(QConfigMapping()) == (None, "global")

    @pytest.mark.parametrize(("path", "scope"), [("blocks.fc", "blocks"), ("other", ""), ("", "")])
    def test_a_module_name_holds_for_what_is_within_it_only(self, path, scope):
        made = mapping(["order", "name", "parent"], qconfig)
        assert resolved(made, path, scope) == (None, "global")

    def test_the_nearest_enclosing_module_wins(self):
        made = QConfigMapping().set_module_name("a", None).set_module_name("a.b", qconfig("b"))
        assert made.resolve("a.b.c.d", [], scope="a.b.c")[0] == qconfig("b")

    def test_the_first_regex_that_matches_from_the_start_wins(self):
        made = QConfigMapping().set_module_name_regex("fc", None)
        made.set_module_name_regex("block", qconfig("1")).set_module_name_regex(".*", qconfig("2"))
        assert resolved(made)[0] == qconfig("1")

    def test_the_most_specific_type_wins(self):
        made = QConfigMapping().set_object_type("linear", None)
        made.set_object_type(nn.Linear, qconfig("type"))
        assert resolved(made)[0] == qconfig("type")

    @pytest.mark.parametrize(
        "make",
        [
            lambda regex: QConfigMapping(module_name_regex_qconfigs={regex: None}),
            lambda regex: QConfigMapping().set_module_name_regex(regex, None),
        ],
    )
    def test_a_bad_regex_is_refused(self, make):
        with pytest.raises(ValueError, match=r"'\(' is not a regular expression"):
            make("(")

    @pytest.mark.parametrize("level", LEVELS)
    def test_what_is_no_qconfig_is_refused_at_every_level(self, level):
        with pytest.raises(ValidationError, match="instance of QConfig"):
            mapping([level], lambda _: 3)

    @pytest.mark.parametrize(
        ("key", "words"),
        [(nn.Linear(1, 1), "this is an instance; give Linear"), (3, "3 names no operation; give")],
    )
    def test_what_names_no_operation_is_refused(self, key, words):
        for rule in (
            lambda: QConfigMapping().set_object_type(key, None),
            lambda: QConfigMapping().set_module_name_object_type_order("a", key, 0, None),
        ):
            with pytest.raises(ValidationError, match=words):
                rule()

    def test_all_rules_that_speak_of_an_operation_are_told_in_order(self):
        made = mapping(LEVELS, qconfig)
        spoken = made.rules("block.fc", [nn.Linear], scope="block", order=[(nn.Linear, 1)])
        assert [rule.qconfig for rule in spoken] == [qconfig(level) for level in LEVELS]

    def test_every_qconfig_is_told_once(self):
        made = mapping(LEVELS, lambda name: None if name == "regex" else qconfig(name[:1]))
        assert {each.activation.options["label"] for each in made.qconfigs} == set("onptg")
        assert len(made.qconfigs) == len("onptg")

    def test_an_operation_is_a_key_that_pickles_and_has_a_name_in_json(self):
        made = QConfigMapping().set_object_type(ops.relu, None)
        assert copied(made) == made
        assert json.loads(made.model_dump_json())["object_type_qconfigs"] == {
            "fusion_core.ops.relu": None
        }

    def test_it_equals_one_made_of_keywords(self):
        made = QConfigMapping(
            global_qconfig=qconfig("global"), object_type_qconfigs={nn.Linear: qconfig("type")}
        )
        assert made == mapping(["type", "global"], qconfig)
        assert made != mapping(["global"], qconfig)

    def test_it_pickles(self):
        made = mapping(LEVELS, qconfig).set_object_type(F.max_pool2d, None)
        made.set_object_type(torch.ops.aten.relu.default, None)
        assert copied(made) == made

    def test_json_carries_names(self):
        made = mapping(LEVELS, qconfig).set_object_type(torch.relu, None)
        dumped = json.loads(made.model_dump_json())
        assert set(dumped["object_type_qconfigs"]) == {
            "torch.nn.modules.linear.Linear",
            "torch.relu",
        }
        assert dumped["object_type_qconfigs"]["torch.relu"] is None
        assert dumped["global_qconfig"]["weight"]["options"] == {"dtype": "torch.qint8"}

    def test_the_json_schema_describes_every_field(self):
        schema = QConfigMapping.model_json_schema()
        assert set(schema["properties"]) == set(QConfigMapping.model_fields)
        json.dumps(schema)
