"""Kernels without VNNI add two products of codes in 16 bits; fbgemm's limits keep that exact."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import nn

import fusion_core as core
from fusion_core.kernels import OutputCodes, PackedConv, PackedLinear
from fusion_core.kernels.geometry import ConvSettings
from fusion_core.passes import record_of
from fusion_core.passes.record import Stage
from fusion_core.qops import QuantizedTensor

INT16 = 2**15 - 1
COMBINATIONS = [(255, -64, 63), (127, -128, 127)]


def qconfig(quant_max: int, low: int, high: int) -> core.QConfigMapping:
    made = core.catalog.static_qconfig(quant_max=quant_max, weight_min=low, weight_max=high)
    return core.QConfigMapping(global_qconfig=made)


def codes_of_layers(model) -> list[torch.Tensor]:
    return [module.codes for module in model.modules() if hasattr(module, "codes")]


@pytest.mark.parametrize("limits", COMBINATIONS, ids=str)
def test_no_pair_of_products_overflows_whatever_the_input(limits):
    model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 8, 3)).eval()
    data = [10 * torch.randn(4, 3, 10, 10) for _ in range(3)]
    reference = core.quantize(
        model, "fbgemm", calibration=data, qconfig_mapping=qconfig(*limits), reference=True
    )
    quantizes = [n for n in reference.graph.nodes if n.target is core.qops.quantize_per_tensor]
    largest_input = max(node.args[4] for node in quantizes[:-1])

    for codes in codes_of_layers(reference):
        two_largest = codes.flatten(1).int().abs().topk(2).values.sum(1)
        assert int(two_largest.max()) * largest_input <= INT16


def test_the_default_qconfig_keeps_within_the_limits():
    default = core.get_backend("fbgemm").qconfig_mapping.global_qconfig
    activation, weight = default.activation(), default.weight()
    products = itertools.product(
        (activation.quant_min, activation.quant_max), (weight.quant_min, weight.quant_max)
    )

    assert max(abs(2 * left * right) for left, right in products) <= INT16


@pytest.mark.parametrize("layer", [nn.Conv2d(3, 4, 1), nn.Linear(5, 4)], ids=["conv", "linear"])
def test_a_qconfig_with_long_activations_and_weights_is_refused_with_the_reason(layer):
    quantized = core.quantize(
        nn.Sequential(layer).eval(),
        "fbgemm",
        calibration=[torch.randn(2, 3, 5, 5)],
        qconfig_mapping=qconfig(255, -128, 127),
    )
    entry = record_of(quantized, Stage.LOWERED, "the test").ledger["_0"]

    assert entry.status is core.Status.FLOAT
    assert "weight must have codes in [-64, 63], the qconfig gives [-128, 127]" in entry.reason


def adversarial(rows: int, columns: int, low: int, high: int) -> torch.Tensor:
    """Codes at both ends: alike, alternating by one, alternating by two, and random."""
    signs = torch.tensor([[1] * 4, [-1] * 4, [1, -1, 1, -1], [1, 1, -1, -1]]).repeat(
        1, columns // 4
    )
    ends = torch.where(signs > 0, high, low)
    return torch.cat([ends, torch.randint(low, high + 1, (rows - 4, columns))])


@pytest.mark.parametrize("zero_point", [0, 100])
@pytest.mark.parametrize(("largest", "low", "high"), COMBINATIONS)
def test_a_linear_kernel_sums_extreme_codes_as_32_bit_integers_do(largest, low, high, zero_point):
    weights = adversarial(8, 64, low, high)
    inputs = adversarial(8, 64, 0, largest)
    sums = (inputs.long() - zero_point) @ weights.long().T
    scale = float(sums.abs().max()) / 120
    kernel = PackedLinear(
        "fbgemm",
        QuantizedTensor(weights.to(torch.int8), torch.ones(1), torch.zeros(1, dtype=torch.int32)),
        None,
        OutputCodes(scale, 128, 0, 255),
    )
    given = torch._make_per_tensor_quantized_tensor(inputs.to(torch.uint8), 1.0, zero_point)
    wanted = (torch.round(sums / scale) + 128).clamp(0, 255)

    assert (kernel(given).int_repr() - wanted).abs().max() <= 1


@pytest.mark.parametrize("groups", [1, 8], ids=["dense", "depthwise"])
@pytest.mark.parametrize(("largest", "low", "high"), COMBINATIONS)
def test_a_convolution_sums_extreme_codes_as_32_bit_integers_do(largest, low, high, groups):
    weights = adversarial(8, 72 // groups // 4 * 4 + 4, low, high)[:, : 72 // groups]
    weights = weights.reshape(8, 8 // groups, 3, 3)
    inputs = adversarial(8, 64, 0, largest).reshape(1, 8, 8, 8)
    sums = nn.functional.conv2d(inputs.double(), weights.double(), padding=1, groups=groups)
    scale = float(sums.abs().max()) / 120
    kernel = PackedConv(
        "fbgemm",
        QuantizedTensor(weights.to(torch.int8), torch.ones(1), torch.zeros(1, dtype=torch.int32)),
        None,
        OutputCodes(scale, 128, 0, 255),
        ConvSettings((1, 1), (1, 1), (1, 1), groups),
    )
    given = torch._make_per_tensor_quantized_tensor(inputs.to(torch.uint8), 1.0, 0)
    wanted = (torch.round(sums / scale) + 128).clamp(0, 255)

    assert (kernel(given).int_repr() - wanted).abs().max() <= 1


def test_codes_beyond_the_limits_would_saturate_in_16_bits():
    """What the limits are for, by arithmetic: this machine's kernels need not show it."""
    assert INT16 < 2 * 255 * 127
    assert all(2 * largest * max(-low, high) <= INT16 for largest, low, high in COMBINATIONS)
