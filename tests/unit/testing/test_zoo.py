"""The models that backends are judged on, and the numbers they are judged by."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from fusion_core.configs import CAPABILITIES, DTypeConfig, DTypeWithConstraints, quantized_type
from fusion_core.testing.measures import equal, sqnr
from fusion_core.testing.models import MODELS
from fusion_core.testing.qconfigs import fitting_qconfig, outside
from fusion_core.testing.special import SPECIAL
from fusion_core.testing.zoo import CASES, PRODUCERS


def test_every_capability_has_models_or_a_judge_of_its_own():
    assert {*CASES, *SPECIAL} == set(CAPABILITIES)
    assert not {*CASES} & {*SPECIAL}
    assert all(CASES.values())


@pytest.mark.parametrize("name", CASES)
def test_a_case_runs_is_the_same_each_time_and_leaves_the_random_state_alone(name):
    state = torch.get_rng_state()
    for case in CASES[name]:
        producer = PRODUCERS[0] if case.is_behind else None
        one, other = (
            case.model(producer)(*(each.clone() for each in case.inputs(1)[0])) for _ in range(2)
        )

        assert equal(one, other)
    assert torch.equal(torch.get_rng_state(), state)


def test_all_producers_give_images_of_the_shape_they_take():
    (case,) = CASES["cat"]
    images = case.inputs(1)[0][0]

    assert all(each.build()(images).shape == images.shape for each in PRODUCERS)


@pytest.mark.parametrize("name", MODELS)
def test_a_whole_model_runs_on_any_batch(name):
    model = MODELS[name].model()
    (inputs,) = MODELS[name].inputs(1, batch=3)

    with torch.no_grad():
        assert equal(model(*inputs), MODELS[name].model()(*inputs))


def test_batch_norms_of_the_zoo_change_what_goes_through():
    norm = next(
        each for each in MODELS["residual"].model().modules() if type(each) is nn.BatchNorm2d
    )
    x = torch.randn(2, 8, 3, 3)

    assert not torch.allclose(norm(x), x, atol=0.01)


def test_signal_over_noise_is_that_of_the_worst_output():
    want = {"a": torch.ones(4), "b": (torch.ones(4),)}
    have = {"a": torch.ones(4), "b": (torch.full((4,), 0.9),)}

    assert sqnr(want, have) == pytest.approx(20, abs=0.01)
    assert sqnr(want, want) == math.inf
    assert sqnr(torch.ones(4), torch.ones(2, 2)) == -math.inf


LIMITED = DTypeConfig(
    input_dtype=DTypeWithConstraints(dtype=torch.qint8, scale_min_lower_bound=2**-12),
    output_dtype=DTypeWithConstraints(
        dtype=torch.quint8, scale_exact_match=1 / 256, zero_point_exact_match=0
    ),
    weight_dtype=DTypeWithConstraints(dtype=torch.qint8, quant_min_lower_bound=-127),
)


def test_a_fitting_qconfig_stays_within_all_limits():
    qconfig = fitting_qconfig(LIMITED, per_channel=True)
    read, given, weight = map(
        quantized_type, (qconfig.input_observer, qconfig.output_observer, qconfig.weight)
    )

    assert (read.dtype, read.eps) == (torch.qint8, 2**-12)
    assert given.fixed == (1 / 256, 0)
    assert (weight.quant_min, weight.quant_max) == (-127, 127)
    assert weight.qscheme is torch.per_channel_symmetric


def test_each_limit_has_a_qconfig_that_exceeds_it_alone():
    found = dict(outside(LIMITED, fitting_qconfig(LIMITED), is_weighted=True))

    assert list(found) == [
        "inputs of torch.quint8",
        "input scales half as large",
        "weight codes in [-128, 127]",
    ]
    assert quantized_type(found["input scales half as large"].input_observer).eps == 2**-13
    assert quantized_type(found["weight codes in [-128, 127]"].weight).quant_min == -128
