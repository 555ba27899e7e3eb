"""A backend's description has all it supports, in words, with where each comes from."""

from __future__ import annotations

import json
from types import ModuleType

import pytest
import torch
from torch import nn

import fusion_core as core
from fusion_core import DTypeConfig, DTypeWithConstraints, ObserverSpec, QConfig, QConfigMapping
from fusion_core.nn import HistogramObserver, PerChannelMinMaxObserver
from fusion_core.report.wording import dtypes_in_words, qconfigs_in_words

UNSIGNED = DTypeConfig(input_dtype=torch.quint8, output_dtype=torch.quint8)


def words(text):
    return " ".join(text.split())


def test_each_pattern_and_rule_is_there_in_order_of_precedence():
    backend, found = core.get_backend("fbgemm"), core.describe("fbgemm")
    assert len(found.patterns) == len(backend.entries)
    assert [each.name for each in found.lowering_rules] == [
        each.rule.label for each in backend.lowering
    ]
    for each, entry in zip(found.patterns, backend.entries, strict=True):
        assert each.stage == ("quantize" if entry.config.fuser_method is None else "fuse")
        assert each.plugin == str(backend.origins[0])
        assert len(each.dtypes) == len(entry.config.dtype_configs)
    assert found.fingerprint == backend.fingerprint


def test_everything_is_shown():
    found = core.describe("fbgemm")
    text = words(found.text(4000))
    for each in (*found.patterns, *found.lowering_rules):
        assert words(each.pattern) in text
    for each in found.patterns:
        assert all(name in text for name in each.functions.values())
    assert found.fingerprint in text
    assert found.summary in text


@pytest.fixture
def acme():
    def narrow(node):
        del node
        return core.Skip("never")

    plugin = ModuleType("acme_plugin")
    config = core.BackendPatternConfig(
        nn.ReLU, dtype_configs=[UNSIGNED], constraint=narrow, priority=7
    )
    answers = {
        "pattern_configs": [config],
        "backend_info": core.BackendInfo(
            summary="the Acme chip", torch=">=2.0", gaps={"conv*": "it has no multipliers"}
        ),
        "default_qconfig_mapping": QConfigMapping(global_qconfig=core.catalog.static_qconfig()),
        "qconfig_mappings": {"cautious": QConfigMapping().set_object_type("matmul", None)},
    }
    for name, answer in answers.items():
        setattr(plugin, f"fusion_{name}", core.hookimpl(lambda answer=answer: answer))
    undo = core.register_backend("acme", plugin)
    yield core.describe("acme")
    undo()


def test_gaps_constraints_and_a_lack_of_kernels_are_told(acme):
    text = words(acme.text(200))
    assert "conv* it has no multipliers" in text
    assert "quantize relu 7 quint8 gives quint8" in text.replace("ReLU", "relu")
    assert "constraint: acme.<locals>.narrow" in text
    assert "No kernels: what it quantizes runs in the reference form." in text
    assert "torch >=2.0" in text


def test_named_mappings_are_told_with_their_rules(acme):
    assert acme.presets == {
        "cautious": {"everything else": "float", "operation type matmul": "float"}
    }
    assert "Qconfig mapping cautious" in words(acme.text(200))


def test_it_is_ready_for_json(acme):
    shown = json.loads(json.dumps(acme.to_dict()))
    assert shown["gaps"] == {"conv*": "it has no multipliers"}
    assert shown["plugins"] == [
        {"name": "acme", "distribution": "registered at run time", "version": "0"}
    ]
    assert shown["patterns"][0]["dtypes"] == ["quint8 gives quint8"]


@pytest.mark.parametrize(
    ("config", "text"),
    [
        (UNSIGNED, "quint8 gives quint8"),
        (DTypeConfig(), "any dtype gives any dtype"),
        (
            DTypeConfig(
                input_dtype=DTypeWithConstraints(
                    dtype=torch.quint8, quant_min_lower_bound=0, quant_max_upper_bound=127
                ),
                output_dtype=torch.float32,
                weight_dtype=torch.qint8,
                bias_dtype=torch.float32,
                is_dynamic=True,
            ),
            "quint8 [0, 127] with weight qint8 with bias float32 gives float32, dynamic",
        ),
        (
            DTypeConfig(
                output_dtype=DTypeWithConstraints(
                    dtype=torch.quint8, scale_exact_match=1 / 256, zero_point_exact_match=0
                )
            ),
            "any dtype gives quint8 of scale 0.00390625 of zero point 0",
        ),
        (
            DTypeConfig(
                input_dtype=DTypeWithConstraints(
                    quant_max_upper_bound=7, scale_min_lower_bound=0.5, scale_max_upper_bound=2.0
                )
            ),
            "any dtype [, 7] of scale 0.5 at least of scale 2 at most gives any dtype",
        ),
    ],
)
def test_dtypes_are_put_in_words(config, text):
    assert dtypes_in_words(config) == text


def test_each_rule_of_a_qconfig_mapping_is_put_in_words():
    weight = ObserverSpec(PerChannelMinMaxObserver, dtype=torch.qint8, quant_min=-8, quant_max=7)
    activation = ObserverSpec(HistogramObserver, dtype=torch.quint8)
    mapping = (
        QConfigMapping(global_qconfig=QConfig(activation=activation, weight=weight))
        .set_object_type(nn.ReLU, None)
        .set_module_name_regex("head.*", None)
        .set_module_name("stem", None)
        .set_module_name_object_type_order("stem", torch.relu, 1, None)
    )
    said = dict(qconfigs_in_words(mapping))
    general = said.pop("everything else")
    assert "by HistogramObserver; weight qint8 [-8, 7]" in general
    assert general.endswith("by PerChannelMinMaxObserver")
    assert said == {
        "operation type ReLU": "float",
        "module name regex head.*": "float",
        "module name stem": "float",
        "module name, type and index stem, relu, 1": "float",
    }
