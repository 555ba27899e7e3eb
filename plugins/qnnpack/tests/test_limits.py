"""What QNNPACK's kernels cannot do is refused with the reason, and never wrong in silence."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  the name everyone knows it by
from torch import nn

import fusion_core as core

FLOOR = 2.0**-12


def quantized(model, shape, qconfig=None, **options):
    mapping = None if qconfig is None else core.catalog.static_qconfig_mapping(qconfig)
    options = {"adaptive_rounding": False, "bias_correction": False, **options}
    data = [torch.randn(shape) for _ in range(2)]
    return core.quantize(
        model.eval(), "qnnpack", calibration=data, qconfig_mapping=mapping, **options
    )


def refusal(lowered) -> tuple[core.Status, str]:
    """Status and reason of the first operation that is not int8."""
    lines = [line for line in core.report(lowered).ledger if line.status is not core.Status.INT8]
    return lines[0].status, lines[0].reason


def signed(**options):
    return core.catalog.static_qconfig(
        **{"dtype": torch.qint8, "symmetric": True, "weight_min": -127, "eps": FLOOR, **options}
    )


@pytest.mark.parametrize(
    ("qconfig", "problem"),
    [
        (signed(eps=None), "its input must have a scale of at least 0.000244140625"),
        (signed(weight_eps=FLOOR / 2), "its weight must have a scale of at least 0.000244140625"),
        (signed(weight_min=-128), "its weight must have codes in [-127, 127]"),
    ],
    ids=["scale of activations", "scale of weights", "codes of weights"],
)
def test_a_qconfig_beyond_the_limits_of_signed_activations_leaves_the_layer_float(qconfig, problem):
    status, reason = refusal(quantized(nn.Sequential(nn.Conv2d(3, 4, 3)), (2, 3, 6, 6), qconfig))

    assert status is core.Status.FLOAT
    assert problem in reason


def test_no_scale_of_a_signed_model_is_below_the_floor():
    tiny = nn.Conv2d(3, 4, 3)
    with torch.no_grad():
        tiny.weight.mul_(1e-6)
        tiny.bias.mul_(1e-6)
    model = nn.Sequential(nn.Conv2d(3, 3, 1), tiny, nn.ReLU())
    reference = quantized(model, (2, 3, 6, 6), signed(), reference=True)
    scales = [
        node.args[1]
        for node in reference.graph.nodes
        if node.target is core.qops.quantize_per_tensor
    ]
    weights = [m.weight_scale for m in reference.modules() if hasattr(m, "weight_scale")]

    assert min(scales) == FLOOR
    assert min(float(each.min()) for each in weights) == FLOOR


class Dead(nn.Module):
    """A layer whose weight is all but nothing, so that its scale is, with a bias that counts."""

    def __init__(self, layer: nn.Module, bias: float) -> None:
        super().__init__()
        self.layer = layer
        with torch.no_grad():
            layer.weight.mul_(1e-9)
            layer.bias.fill_(bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


LAYERS = {
    "conv": (lambda: nn.Conv2d(3, 4, 1), (2, 3, 6, 6)),
    "linear": (lambda: nn.Linear(6, 4), (2, 6)),
    "transposed conv": (lambda: nn.ConvTranspose2d(3, 4, 1), (2, 3, 6, 6)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_bias_that_does_not_fit_in_32_bits_keeps_the_reference_form(name):
    build, shape = LAYERS[name]
    lowered = quantized(Dead(build(), 50.0), shape)
    status, reason = refusal(lowered)

    assert status is core.Status.REFERENCE
    assert "the kernel keeps its bias in 32 bits, and it would be" in reason
    assert (lowered(torch.randn(shape)) - 50).abs().max() < 0.5


@pytest.mark.parametrize("name", LAYERS)
def test_an_eps_of_weights_lets_the_same_layer_run_in_the_kernel(name):
    build, shape = LAYERS[name]
    qconfig = core.catalog.static_qconfig(weight_eps=2.0**-16)
    lowered = quantized(Dead(build(), 50.0), shape, qconfig)

    assert {line.status for line in core.report(lowered).ledger} == {core.Status.INT8}
    assert (lowered(torch.randn(shape)) - 50).abs().max() < 0.5


def test_sums_that_could_leave_32_bits_in_steps_of_the_output_keep_the_reference_form():
    layer = nn.Linear(16, 4, bias=False)
    data = [torch.zeros(2, 16)]
    model = nn.Sequential(nn.Linear(16, 16, bias=False), layer).eval()
    qconfig = core.catalog.static_qconfig(eps=1e-30, weight_eps=1e-7)
    mapping = core.QConfigMapping(global_qconfig=core.catalog.static_qconfig())
    tiny = core.QConfig(
        activation=mapping.global_qconfig.activation,
        weight=qconfig.weight,
        output=qconfig.activation,
    )
    mapping.set_module_name("1", tiny)
    lowered = core.quantize(model, "qnnpack", calibration=data, qconfig_mapping=mapping)
    _, reason = refusal(lowered)

    assert "the kernel counts in 32 bits, and the sums of 16 products could reach" in reason


class Pooled(nn.Module):
    """A convolution and an operation on its output."""

    def __init__(self, layer: nn.Module, operation) -> None:
        super().__init__()
        self.layer, self.operation = layer, operation

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.operation(self.layer(x))


def test_transposed_convolutions_in_three_dimensions_stay_float():
    status, reason = refusal(quantized(nn.Sequential(nn.ConvTranspose3d(3, 4, 2)), (2, 3, 4, 4, 4)))

    assert status is core.Status.FLOAT
    assert reason


@pytest.mark.parametrize(
    ("layer", "shape", "problem"),
    [
        (nn.ConvTranspose2d(4, 4, 3, groups=2), (2, 4, 5, 5), "one scale for the whole weight"),
        (nn.Conv2d(3, 4, 3), (3, 5, 5), "4 dimensions with a batch, not of 3"),
        (nn.Conv2d(3, 4, 3, padding=1, padding_mode="reflect"), (2, 3, 5, 5), "pads with zeros"),
        (nn.Linear(4, 3), (4,), "at least 2 dimensions, not of 1"),
        (Pooled(nn.Conv3d(3, 4, 1), lambda x: F.max_pool3d(x, 2)), (2, 3, 4, 4, 4), "qnnpack is"),
    ],
    ids=["groups", "no batch", "padding mode", "vector", "max_pool3d"],
)
def test_what_has_no_kernel_keeps_the_reference_form_and_runs(layer, shape, problem):
    torch.manual_seed(0)
    reference = quantized(nn.Sequential(layer), shape, reference=True)
    torch.manual_seed(0)
    lowered = quantized(nn.Sequential(layer), shape)
    status, reason = refusal(lowered)
    x = torch.randn(shape)

    assert status is core.Status.REFERENCE
    assert problem in reason
    assert (lowered(x) - reference(x)).abs().max() < 0.05  # a step or two


def test_transposed_convolutions_in_groups_run_with_one_scale_for_the_weight():
    qconfig = core.catalog.static_qconfig(per_channel=False)
    lowered = quantized(nn.Sequential(nn.ConvTranspose2d(4, 4, 3, groups=2)), (2, 4, 5, 5), qconfig)

    assert {line.status for line in core.report(lowered).ledger} == {core.Status.INT8}
