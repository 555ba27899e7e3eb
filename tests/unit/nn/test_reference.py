from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from fusion_core.nn.reference import REFERENCE_OF
from fusion_core.qops import QuantizedTensor

LAYERS = [
    (nn.Linear(6, 4), (3, 6)),
    (nn.Conv1d(6, 4, 3, padding=1, groups=2), (2, 6, 9)),
    (nn.Conv2d(6, 4, 3, stride=2, padding="valid", bias=False), (2, 6, 9, 9)),
    (nn.Conv2d(6, 4, 3, padding=1, padding_mode="reflect", dilation=1), (2, 6, 9, 9)),
    (nn.Conv3d(6, 4, 2), (1, 6, 4, 4, 4)),
]


def quantized(weight: torch.Tensor) -> QuantizedTensor:
    scale = weight.detach().flatten(1).abs().amax(1) / 127
    zero = torch.zeros(len(scale), dtype=torch.int32)
    limits = {"quant_min": -128, "quant_max": 127, "dtype": torch.int8}
    return QuantizedTensor.from_float(weight, scale, zero, axis=0, **limits)


@pytest.fixture(params=LAYERS, ids=lambda case: type(case[0]).__name__)
def case(request):
    layer, shape = request.param
    codes = quantized(layer.weight)
    return layer, REFERENCE_OF[type(layer)].from_float(copy.deepcopy(layer), codes), shape


def test_it_computes_what_the_float_module_does_on_the_dequantized_weight(case):
    layer, reference, shape = case
    exact = copy.deepcopy(layer)
    exact.weight = nn.Parameter(reference.quantized_weight.dequantize())
    x = torch.randn(shape)

    assert torch.equal(reference(x), exact(x))
    assert torch.equal(reference(input=x), exact(x))


def test_it_keeps_codes_and_no_float_weight(case):
    _, reference, _ = case
    sizes = {name: tensor.numel() for name, tensor in reference.state_dict().items()}

    assert reference.codes.dtype is torch.int8
    assert sizes["float_module.weight"] == 0


def test_a_state_dict_restores_it(case):
    layer, reference, shape = case
    other = type(reference).from_float(copy.deepcopy(layer), quantized(layer.weight * 0 + 1))
    x = torch.randn(shape)
    other.load_state_dict(reference.state_dict())

    assert torch.equal(other(x), reference(x))
