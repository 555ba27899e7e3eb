from __future__ import annotations

import pytest
import torch
from torch import nn

import fusion_core as core
from fusion_core.errors import CalibrationError, ModelStateError

SEEDED = torch.Generator().manual_seed(0)
MIX = torch.randn(32, 32, generator=SEEDED)
DATA = [torch.randn(64, 32, generator=SEEDED) @ MIX + 1 for _ in range(4)]


@pytest.fixture
def pair(backend, linear, prepared):
    """A prepared model and its reference, with weights of four bits."""
    qconfig = core.catalog.static_qconfig(weight_min=-8, weight_max=7)
    toy = backend(linear, qconfig=qconfig)
    made = prepared(nn.Sequential(nn.Linear(32, 24), nn.Linear(24, 16)), toy, DATA[0])
    core.calibrate(made, DATA)
    return made, core.convert(made)


@torch.no_grad()
def error(one, other):
    return sum(float((one(x) - other(x)).square().sum()) for x in DATA)


@torch.no_grad()
def bias(one, other):
    return float((one(torch.cat(DATA)) - other(torch.cat(DATA))).mean(0).abs().sum())


def test_adaptive_rounding_lowers_the_error_of_the_output(pair):
    prepared, converted = pair
    corrected = core.refine(converted, prepared, DATA, adaptive_rounding=False)
    refined = core.refine(converted, prepared, DATA)

    assert error(refined, prepared) < 0.8 * error(corrected, prepared)


def test_bias_correction_lowers_the_error_of_the_mean_and_keeps_the_codes(pair):
    prepared, converted = pair
    refined = core.refine(converted, prepared, DATA, adaptive_rounding=False)

    assert bias(refined, prepared) < 0.7 * bias(converted, prepared)
    assert torch.equal(refined.get_submodule("0").codes, converted.get_submodule("0").codes)


def test_codes_stay_within_the_range_of_the_qconfig(pair):
    prepared, converted = pair
    codes = core.refine(converted, prepared, DATA).get_submodule("1").codes

    assert codes.min() >= -8
    assert codes.max() <= 7


def test_the_reference_it_was_given_stays_as_it_was(pair):
    prepared, converted = pair
    before = converted(DATA[0])
    core.refine(converted, prepared, DATA)

    assert torch.equal(converted(DATA[0]), before)


def test_without_data_it_is_refused(pair):
    with pytest.raises(CalibrationError, match="no data to refine the model on"):
        core.refine(pair[1], pair[0], [])


def test_a_model_that_was_not_converted_is_refused(pair):
    with pytest.raises(ModelStateError, match="refine needs a converted model"):
        core.refine(pair[0], pair[0], DATA)
