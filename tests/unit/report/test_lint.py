"""Mistakes that a valid backend can have, each in a backend of a few lines."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  the name everyone knows it by
from torch import nn

import fusion_core as core
from fusion_core import BackendPatternConfig, DTypeConfig, DTypeWithConstraints, Skip, ops

INT8 = DTypeConfig(input_dtype=torch.quint8, output_dtype=torch.quint8, weight_dtype=torch.qint8)


class Pair(nn.Sequential):
    """A fused module of a plugin's own."""


def never(_node_pattern):
    return Skip("not on Mondays")


@pytest.fixture
def linted():
    """Lints the backend made of these pattern configs, given by the plugin's name."""
    undone = []

    def run(**plugins):
        for name, configs in plugins.items():
            plugin = SimpleNamespace(
                fusion_pattern_configs=core.hookimpl(lambda configs=configs: configs)
            )
            undone.append(core.register_backend(name.replace("__", "."), plugin))
        return core.lint(next(iter(plugins)))

    yield run
    for undo in reversed(undone):
        undo()


def config(pattern, **fields):
    return BackendPatternConfig(pattern, dtype_configs=[INT8], **fields)


def test_a_backend_without_mistakes_has_no_findings(linted):
    found = linted(chip=[config(nn.Linear, root_module=nn.Linear), config(ops.add)])
    assert found.findings == ()
    assert found.text().strip() == "Backend chip: 2 patterns, 0 errors, 0 warnings, 0 notes"


def test_a_pattern_that_another_always_beats_is_dead(linted):
    found = linted(chip=[config(nn.ReLU), config(core.any_of(nn.ReLU, nn.ReLU6), priority=1)])
    (error,) = found.errors
    assert error.entry == "chip (registered at run time 0), ReLU"
    assert error.index == 0
    assert error.message.startswith("it is never used: chip (registered at run time 0), any_of(")


def test_a_pattern_beaten_on_some_of_its_models_is_shadowed(linted):
    found = linted(chip=[config(core.any_of(nn.ReLU, nn.ReLU6)), config(nn.ReLU, priority=1)])
    assert not found.errors
    (warning,) = found.warnings
    assert warning.entry.endswith("any_of(ReLU, ReLU6)")
    assert "ReLU is taken in its place for ReLU" in warning.message


def test_a_winner_that_may_refuse_kills_nothing(linted):
    found = linted(chip=[config(nn.ReLU), config(nn.ReLU, priority=1, constraint=never)])
    assert not found.findings


def test_a_winner_with_a_condition_shadows_where_it_holds(linted):
    sometimes = config(nn.ReLU, priority=1, constraint=lambda _node_pattern: None)
    found = linted(chip=[config(nn.ReLU), sometimes])
    assert not found.errors
    assert "wherever the conditions there hold" in found.warnings[0].message


def test_a_winner_whose_fuser_skips_kills_nothing(linted):
    def skips(_is_qat, _linear, _activation):
        return Skip("not this one")

    either = BackendPatternConfig(
        (nn.Linear, core.any_of(nn.ReLU, nn.ReLU6)), fuser_method=skips, priority=1
    )
    pair = BackendPatternConfig((nn.Linear, nn.ReLU), fuser_method=Pair)
    found = linted(chip=[pair, either, config(Pair)])
    assert not [each for each in found.findings if "never used" in each.message]


def test_a_condition_or_a_fuser_that_raises_is_an_error_with_its_name(linted):
    def broken(*_):
        raise KeyError("scale")

    found = linted(chip=[config(nn.ReLU, constraint=broken)])
    assert "its constraint raised KeyError: 'scale'" in found.errors[0].message
    fuse = BackendPatternConfig((nn.Linear, nn.ReLU), fuser_method=broken)
    found = linted(other=[fuse])
    assert "its fuser method raised KeyError: 'scale'" in found.errors[0].message
    found = linted(third=[config(core.where(nn.ReLU, broken, "is right"))])
    assert "KeyError: 'scale'" in found.findings[0].message


def test_limits_of_weights_count_without_a_root_module_too(linted):
    short = DTypeWithConstraints(
        dtype=torch.qint8, quant_min_lower_bound=-8, quant_max_upper_bound=7
    )
    narrow = INT8.model_copy(update={"weight_dtype": short})
    found = linted(chip=[BackendPatternConfig(nn.Linear, dtype_configs=[narrow])])
    assert "its weight must have codes in [-8, 7]" in found.warnings[0].message


def test_a_config_of_a_fused_module_without_dtypes_quantizes_nothing(linted):
    fuse = BackendPatternConfig((nn.Linear, nn.ReLU), fuser_method=Pair)
    found = linted(chip=[fuse, BackendPatternConfig(Pair)])
    assert "fused into Pair, which no config quantizes" in found.warnings[0].message


def test_patterns_of_two_plugins_that_only_the_order_sets_apart_are_named(linted):
    found = linted(chip=[config(ops.relu)], chip__more=[config(core.any_of(ops.relu, nn.SiLU))])
    unsettled = [each for each in found.warnings if "only the order says" in each.message]
    assert len(unsettled) == 1
    assert "set priority" in unsettled[0].remedy
    assert {"chip (", "chip.more ("} <= {
        unsettled[0].entry.partition("registered")[0],
        unsettled[0].message.partition("registered")[0],
    }


def test_a_priority_settles_an_overlap(linted):
    wide = config(core.any_of(ops.relu, nn.SiLU), priority=-1)
    found = linted(chip=[config(ops.relu)], chip__more=[wide])
    assert not [each for each in found.findings if "only the order says" in each.message]


def test_a_fused_module_that_nothing_quantizes_is_named(linted):
    fuse = BackendPatternConfig((nn.Linear, nn.ReLU), fuser_method=Pair)
    found = linted(chip=[fuse, config(nn.Linear)])
    assert "fused into Pair, which no config quantizes" in found.warnings[0].message
    assert not linted(other=[fuse, config(Pair)]).warnings


def test_a_config_with_neither_fuser_nor_dtypes_is_named(linted):
    found = linted(chip=[BackendPatternConfig(nn.ReLU)])
    assert "so nothing ever uses it" in found.warnings[0].message


def test_dtypes_that_the_default_mapping_never_gives_are_named(linted):
    short = DTypeWithConstraints(dtype=torch.quint8, quant_max_upper_bound=15)
    narrow = DTypeConfig(input_dtype=short, output_dtype=torch.quint8)
    found = linted(chip=[BackendPatternConfig(nn.ReLU, dtype_configs=[narrow])])
    assert "must have codes of at most 15, the qconfig gives [0, 255]" in found.warnings[0].message


def test_weights_without_a_reference_module_are_an_error(linted):
    found = linted(chip=[config(nn.Bilinear, root_module=nn.Bilinear)])
    assert "Bilinear, which no reference module is known for" in found.errors[0].message


def test_a_function_that_nothing_can_be_called_with_is_a_note(linted):
    def unknown(*_, mood):
        raise TypeError(mood)

    found = linted(chip=[config(unknown)])
    assert [each.severity for each in found.findings] == ["note"]
    assert "no model was made" in found.findings[0].message


def test_fbgemm_has_no_errors_and_no_warnings():
    found = core.lint("fbgemm")
    assert [each.message for each in (*found.errors, *found.warnings)] == []
    assert found.checked == len(core.get_backend("fbgemm").entries)


def test_findings_are_values_for_json(linted):
    found = linted(chip=[BackendPatternConfig((nn.Linear, F.relu))])
    data = json.loads(json.dumps(found.to_dict()))
    assert data["backend"] == "chip"
    assert data["findings"][0]["severity"] == "warning"
    assert "Linear -> functional.relu" in found.text(width=200)
