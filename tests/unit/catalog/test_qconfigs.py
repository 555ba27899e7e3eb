"""Ready-made qconfigs say what a vendor asks for, and no more."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch
from torch import nn

import fusion_core as core
from fusion_core.registry import Registry

static_qconfig = core.catalog.static_qconfig


def test_signed_symmetric_activations_have_their_zero_point_at_zero():
    observer = static_qconfig(dtype=torch.qint8, symmetric=True).activation()
    observer(torch.tensor([0.5, 3.0]))
    _, zero_point = observer.calculate_qparams()

    assert (observer.quant_min, observer.quant_max) == (-128, 127)
    assert zero_point.tolist() == [0]


@pytest.mark.parametrize("per_channel", [True, False])
def test_no_scale_is_below_its_eps(per_channel):
    qconfig = static_qconfig(eps=2.0**-12, weight_eps=2.0**-10, per_channel=per_channel)
    activation, weight = qconfig.activation(), qconfig.weight()
    activation(torch.full((3, 4), 1e-9))
    weight(torch.full((3, 4), 1e-9))

    assert activation.calculate_qparams()[0].tolist() == [2.0**-12]
    assert set(weight.calculate_qparams()[0].tolist()) == {2.0**-10}
    assert weight.calculate_qparams()[0].numel() == (3 if per_channel else 1)


def test_without_keywords_the_observers_keep_their_own_eps():
    assert "eps" not in static_qconfig().activation.options
    assert "eps" not in static_qconfig().weight.options


@pytest.fixture
def backend():
    """A backend with convolutions, transposed or not, and the mapping under test."""
    codes = {"input_dtype": torch.quint8, "output_dtype": torch.quint8}
    dtypes = [core.DTypeConfig(**codes, weight_dtype=torch.qint8)]
    configs = core.catalog.conv(dtypes) + core.catalog.conv_transpose(dtypes)
    plugin = ModuleType("toy_plugin")
    plugin.fusion_pattern_configs = core.hookimpl(lambda: configs)
    plugin.fusion_default_qconfig_mapping = core.hookimpl(
        lambda: core.catalog.static_qconfig_mapping(static_qconfig())
    )
    registry = Registry()
    registry.register_backend("toy", plugin)
    return registry.get_backend("toy")


@pytest.mark.parametrize(
    ("layers", "shape", "axis"),
    [
        ([nn.Conv2d(3, 4, 2)], (2, 3, 5, 5), 0),
        ([nn.ConvTranspose1d(3, 4, 2)], (2, 3, 5), 1),
        ([nn.ConvTranspose2d(3, 4, 2)], (2, 3, 5, 5), 1),
        ([nn.ConvTranspose3d(3, 4, 2)], (2, 3, 4, 4, 4), 1),
        ([nn.ConvTranspose2d(3, 4, 2), nn.BatchNorm2d(4)], (2, 3, 5, 5), 1),
    ],
    ids=["conv", "transposed 1d", "transposed 2d", "transposed 3d", "with batch norm"],
)
def test_the_mapping_gives_a_weight_a_scale_for_each_output_channel(layers, shape, axis, backend):
    model = nn.Sequential(*layers).eval()
    reference = core.quantize(model, backend, calibration=[torch.randn(shape)], reference=True)
    (layer,) = (module for module in reference.modules() if hasattr(module, "weight_scale"))

    assert layer.axis == axis
    assert layer.weight_scale.numel() == 4


def test_a_weight_observer_without_a_channel_is_used_everywhere():
    mapping = core.catalog.static_qconfig_mapping(static_qconfig(per_channel=False))

    assert mapping == core.QConfigMapping(global_qconfig=static_qconfig(per_channel=False))
