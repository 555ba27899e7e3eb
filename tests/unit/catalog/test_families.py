"""Families of the catalog, through a backend that uses them."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch
from torch import nn

import fusion_core as core
from fusion_core.registry import Registry

INT8 = core.DTypeConfig(
    input_dtype=torch.quint8, output_dtype=torch.quint8, weight_dtype=torch.qint8
)
KINDS = {
    1: (nn.ConvTranspose1d, nn.BatchNorm1d, (2, 4, 7)),
    2: (nn.ConvTranspose2d, nn.BatchNorm2d, (2, 4, 7, 6)),
    3: (nn.ConvTranspose3d, nn.BatchNorm3d, (2, 4, 4, 3, 5)),
}


@pytest.fixture(scope="module")
def backend():
    """A backend that was registered at run time and has the whole native table."""
    plugin = ModuleType("deconvolving")
    mapping = core.QConfigMapping(global_qconfig=core.catalog.static_qconfig())
    configs = core.catalog.native([INT8], [INT8])
    plugin.fusion_pattern_configs = core.hookimpl(lambda: configs)
    plugin.fusion_default_qconfig_mapping = core.hookimpl(lambda: mapping)
    registry = Registry()
    registry.register_backend("deconvolving", plugin)
    return registry.get_backend("deconvolving")


def seen(norm):
    """A batch norm that has seen something."""
    nn.init.uniform_(norm.running_mean, -1, 1)
    nn.init.uniform_(norm.running_var, 0.1, 2)
    if norm.affine:
        nn.init.uniform_(norm.weight, -1, 1)
        nn.init.uniform_(norm.bias, -1, 1)
    return norm


def modules_called(model):
    calls = [node for node in model.graph.nodes if node.op == "call_module"]
    return [type(model.get_submodule(node.target)) for node in calls]


# F7
@pytest.mark.parametrize("dim", KINDS)
@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("bias", [False, True], ids=["", "bias"])
@pytest.mark.parametrize(
    ("settings", "norm"),
    [
        ({}, {}),
        ({"stride": 2, "output_padding": 1}, {"affine": False}),
        ({"stride": 3, "padding": 1, "dilation": 2}, {"eps": 0.7}),
    ],
    ids=["default", "output padding, not affine", "dilation, large eps"],
)
def test_batch_norm_folds_exactly_into_a_transposed_convolution(
    backend, dim, groups, bias, settings, norm
):
    kind, norm_kind, shape = KINDS[dim]
    layer = kind(4, 8, 3, groups=groups, bias=bias, **settings)
    model = nn.Sequential(layer, seen(norm_kind(8, **norm))).eval()
    before = layer.weight.detach().clone()
    x = torch.randn(shape)
    fused = core.fuse(core.trace(model, x, backend=backend), backend)

    assert modules_called(fused) == [kind]
    assert torch.equal(layer.weight, before)
    with torch.no_grad():
        assert (fused(x) - model(x)).abs().max() <= 1e-5


def test_a_norm_of_other_channels_than_the_transposed_convolution_gives_is_left():
    layer, norm = nn.ConvTranspose2d(4, 8, 3, groups=2), nn.BatchNorm2d(4).eval()
    answer = core.catalog.fuse_batch_norm(False, layer, norm)  # noqa: FBT003

    assert answer == core.Skip("the batch norm has 4 channels, the layer before it 8")


def test_the_weight_of_a_transposed_convolution_is_quantized_in_the_reference_model(backend):
    model = nn.Sequential(nn.ConvTranspose2d(4, 8, 3, groups=2), seen(nn.BatchNorm2d(8))).eval()
    data = [torch.randn(2, 4, 6, 6) for _ in range(4)]
    reference = core.quantize(model, backend, calibration=data, reference=True)
    with torch.no_grad():
        want, have = model(data[0]), reference(data[0])

    assert core.nn.reference.ConvTranspose2d in modules_called(reference)
    assert 10 * torch.log10(want.square().mean() / (want - have).square().mean()) > 30


@pytest.mark.parametrize("relu", [nn.ReLU(), torch.relu], ids=["module", "function"])
def test_a_batch_norm_that_nothing_takes_up_keeps_its_relu(backend, relu):
    class PreActivation(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.conv = seen(nn.BatchNorm2d(4)), nn.Conv2d(4, 4, 1)
            self.relu = relu

        def forward(self, x):
            return self.conv(self.relu(self.norm(x)))

    model, x = PreActivation().eval(), torch.randn(2, 4, 5, 5)
    fused = core.fuse(core.trace(model, x, backend=backend), backend)

    assert modules_called(fused) == [core.nn.fused.BatchNormReLU2d, nn.Conv2d]
    with torch.no_grad():
        assert (fused(x) - model(x)).abs().max() <= 1e-6


def test_each_family_holds_the_dtypes_it_was_given():
    without = core.catalog.sizes()
    configs = core.catalog.native([INT8], [INT8], embedding=[INT8], recurrent=[INT8])

    fixed = core.catalog.fixed_range([INT8])

    assert all(each.dtype_configs == (INT8,) for each in configs if each not in (*without, *fixed))
    for config in fixed:  # which adds the one scale and zero point that the output may have
        assert config in configs
        (given,) = config.dtype_configs
        assert given.model_copy(update={"output_dtype": INT8.output_dtype}) == INT8
        assert given.constraints("output").dtype is INT8.constraints("output").dtype
    assert not any(each.dtype_configs for each in without)


@pytest.mark.parametrize("family", [core.catalog.conv, core.catalog.conv_transpose])
def test_functions_are_in_a_family_only_where_asked_for(family):
    modules, both = family([INT8], dims=[2]), family([INT8], dims=[2], functional=True)

    assert both[: len(modules)] == modules
    assert len(both) == len(modules) + 1
    assert both[-1].input_type_to_index == {"weight": 1, "bias": 2}
