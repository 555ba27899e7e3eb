"""Limits of kernels that count in 32 bits, from the layer that is to run in them."""

from __future__ import annotations

import torch
from torch import Tensor

from fusion_core.configs import Skip
from fusion_core.kernels.codes import HIGHEST_CODE
from fusion_core.qops import QuantizedTensor

_BEYOND = 2.0**31


def beyond_32_bits(
    weight: QuantizedTensor,
    bias: Tensor | None,
    *,
    channels: int,
    input_scale: float,
    output_scale: float,
) -> Skip | None:
    """Refuse a layer whose bias or sums, whatever the input, might not fit in 32 bits.

    The engine would not notice: it would give the largest code for the smallest, or another.

    Args:
        weight: Codes in the layout of the layer.
        bias: Float32 of shape [out], or None.
        channels: Which dimension of the weight is the output's channel.
        input_scale: Of the layer's input.
        output_scale: Of the layer's output.
    """
    steps = weight.scale.double() * input_scale
    biases = torch.zeros(1).double() if bias is None else bias.detach().double().abs()
    largest_bias = float((biases / steps).max())
    if largest_bias >= _BEYOND:
        smallest = float(weight.scale.min())
        return Skip(
            f"the kernel keeps its bias in 32 bits, and it would be {largest_bias:.3g} steps of "
            f"{input_scale:.3g} (input) times {smallest:.3g} (weight); an observer of weights with "
            "a larger eps keeps the step from being so small"
        )
    others = [dim for dim in range(weight.codes.dim()) if dim != channels]
    # Codes of weights with a zero point lie up to 255 from it; those without one, up to 128.
    offset = float(weight.zero_point.abs().max())
    taps = weight.codes.double().abs().add(offset).sum(others)
    largest = HIGHEST_CODE * float(taps.max())
    in_output = (largest * float(steps.max()) + float(biases.max())) / output_scale
    if max(largest + largest_bias, in_output) < _BEYOND:
        return None
    return Skip(
        f"the kernel counts in 32 bits, and the sums of {weight.codes.numel() // taps.numel()} "
        f"products could reach {in_output:.3g} steps of its output, {output_scale:.3g} each; an "
        "observer of activations with a larger eps keeps the step from being so small"
    )
