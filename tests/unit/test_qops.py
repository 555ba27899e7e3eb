"""The quantize and dequantize operations of a reference graph."""

from __future__ import annotations

import pytest
import torch
from torch import fx

from fusion_core.qops import (
    QuantizedTensor,
    dequantize_per_tensor,
    quantize_per_tensor,
    storage_dtype,
)

X = torch.tensor([-1.0, -0.25, -0.2, 0.0, 0.25, 0.75, 1.25, 100.0])


def quantized(x=X, dtype=torch.uint8, low=0, high=255):
    return quantize_per_tensor(x, 0.5, 10, low, high, dtype)


@pytest.mark.parametrize(
    ("dtype", "storage"),
    [
        (torch.quint8, torch.uint8),
        (torch.qint8, torch.int8),
        (torch.qint32, torch.int32),
        (torch.uint8, torch.uint8),
        (torch.int8, torch.int8),
        (torch.int32, torch.int32),
    ],
)
def test_quantized_dtypes_are_stored_as_plain_integers(dtype, storage):
    assert storage_dtype(dtype) is storage


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.complex64, torch.int64])
def test_a_dtype_without_storage_is_refused_with_the_known_ones(dtype):
    with pytest.raises(ValueError, match=f"{dtype} has no integer storage; known are torch.quint8"):
        storage_dtype(dtype)


def test_halves_are_rounded_to_even_before_the_zero_point():
    assert quantized().tolist() == [8, 10, 10, 10, 10, 12, 12, 210]


def test_codes_are_clamped_to_the_given_range():
    assert quantized(torch.tensor([-99.0, 99.0]), low=3, high=127).tolist() == [3, 127]


@pytest.mark.parametrize("shape", [(), (0,), (2, 3), (1, 2, 3, 4)])
def test_shapes_are_kept(shape):
    codes = quantized(torch.ones(shape))
    assert (codes.shape, codes.dtype) == (shape, torch.uint8)
    values = dequantize_per_tensor(codes, 0.5, 10)
    assert (values.shape, values.dtype) == (shape, torch.float32)


@pytest.mark.parametrize(("dtype", "low", "high"), [(torch.uint8, 0, 255), (torch.int8, -128, 127)])
def test_every_code_survives_the_round_trip(dtype, low, high):
    codes = torch.arange(low, high + 1).to(dtype)
    for scale in (1e-4, 0.1, 0.5, 3.0):
        values = dequantize_per_tensor(codes, scale, 3)
        assert torch.equal(quantize_per_tensor(values, scale, 3, low, high, dtype), codes)


def test_the_error_is_at_most_half_a_step_within_the_range():
    x = torch.linspace(-5.0, 122.5, 1000)
    assert (dequantize_per_tensor(quantized(x), 0.5, 10) - x).abs().max() <= 0.25


def test_codes_are_those_of_the_native_kernels():
    x = torch.randn(10_000)
    native = torch.quantize_per_tensor(x, 0.037, 121, torch.quint8).int_repr()
    assert torch.equal(quantize_per_tensor(x, 0.037, 121, 0, 255, torch.uint8), native)


def test_both_are_leaves_of_fx_tracing():
    def round_trip(x):
        codes = quantize_per_tensor(x, 0.5, 10, 0, 255, torch.uint8)
        return dequantize_per_tensor(codes, 0.5, 10)

    traced = fx.symbolic_trace(round_trip)
    targets = [node.target for node in traced.graph.nodes if node.op == "call_function"]
    assert targets == [quantize_per_tensor, dequantize_per_tensor]
    assert torch.equal(traced(X), round_trip(X))


@pytest.mark.parametrize(
    ("axis", "shape", "channels"),
    [(None, (2, 3), 1), (None, (), 1), (0, (2, 3), 2), (1, (2, 3), 3), (1, (2, 3, 4, 5), 3)],
)
def test_each_channel_has_a_scale_and_zero_point_of_its_own(axis, shape, channels):
    x = torch.randn(shape) * 5
    scale, zero_point = torch.rand(channels) + 0.1, torch.arange(channels)
    limits = {"quant_min": -100, "quant_max": 100, "dtype": torch.int8}
    whole = QuantizedTensor.from_float(x, scale, zero_point, axis=axis, **limits)
    assert (whole.codes.shape, whole.codes.dtype) == (shape, torch.int8)
    parts = [x] if axis is None else x.unbind(axis)
    found = [whole.dequantize()] if axis is None else whole.dequantize().unbind(axis)
    for place, part in enumerate(parts):
        s, z = scale[place], zero_point[place]
        codes = (torch.round(part / s) + z).clamp(-100, 100)
        assert torch.equal(found[place], (codes - z) * s)


def test_quantizing_a_parameter_needs_no_gradient():
    weight = torch.nn.Parameter(torch.ones(2, 2, dtype=torch.float64))
    scale, zero_point = torch.ones(1), torch.zeros(1, dtype=torch.int32)
    made = QuantizedTensor.from_float(
        weight, scale, zero_point, axis=None, quant_min=-127, quant_max=127, dtype=torch.int8
    )
    assert not made.dequantize().requires_grad
