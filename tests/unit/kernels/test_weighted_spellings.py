"""Weighted operations however a model writes them: in a kernel with the right numbers, or refused with the reason."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  the name everyone knows it by
from torch import nn

import fusion_core as core
from fusion_core.qops import dequantize_per_tensor

ONE_STEP = 1.001
LEAST_SQNR = 25.0
KERNEL = core.Status.INT8, None
BACKENDS = ["fbgemm", pytest.param("qnnpack", marks=pytest.mark.slow)]


class Calls(nn.Module):
    """``call(self, x)``, with parameters and layers by name."""

    def __init__(self, call, **parts) -> None:
        super().__init__()
        self.call = call
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x):
        return self.call(self, x)


def parameter(*shape):
    return nn.Parameter(torch.randn(shape, generator=torch.Generator().manual_seed(1)) / 3)


def image_parts(*shape):
    return {"weight": parameter(*shape), "bias": parameter(shape[0])}


IMAGES, SIGNALS, VOLUMES, ROWS = (2, 4, 7, 6), (2, 4, 9), (2, 4, 3, 5, 4), (3, 8)
USUAL = image_parts(6, 4, 3, 3)
GROUPED = image_parts(6, 2, 3, 3)
EVEN = image_parts(6, 4, 4, 2)
BATCH_NORM = {
    **USUAL,
    "mean": parameter(6),
    "variance": nn.Parameter(torch.rand(6) + 0.5),
    "factor": parameter(6),
    "shift": parameter(6),
}

RUN = {
    "same": (lambda m, x: F.conv2d(x, m.weight, m.bias, 1, "same"), USUAL, IMAGES),
    "same, even": (lambda m, x: F.conv2d(x, m.weight, m.bias, 1, "same"), EVEN, IMAGES),
    "valid": (lambda m, x: F.conv2d(x, m.weight, padding="valid"), USUAL, IMAGES),
    "int": (lambda m, x: F.conv2d(x, m.weight, m.bias, 2), USUAL, IMAGES),
    "tuple": (lambda m, x: F.conv2d(x, m.weight, m.bias, (2, 1), (1, 0)), USUAL, IMAGES),
    "lists of one": (lambda m, x: F.conv2d(x, m.weight, stride=[2], padding=[1]), USUAL, IMAGES),
    "groups": (lambda m, x: F.conv2d(x, m.weight, m.bias, groups=2), GROUPED, IMAGES),
    "by name": (
        lambda m, x: F.conv2d(bias=m.bias, groups=2, weight=m.weight, padding=1, input=x),
        GROUPED,
        IMAGES,
    ),
    "torch.conv2d": (lambda m, x: torch.conv2d(x, m.weight, m.bias, 1, 1, 1, 1), USUAL, IMAGES),
    "conv1d": (lambda m, x: F.conv1d(x, m.weight, m.bias, (2,), 1), image_parts(6, 4, 3), SIGNALS),
    "conv3d": (lambda m, x: F.conv3d(x, m.weight, m.bias), image_parts(6, 4, 3, 3, 2), VOLUMES),
    "transposed": (
        lambda m, x: F.conv_transpose2d(x, m.weight, m.bias, 2, 1, 1),
        {"weight": parameter(4, 6, 3, 3), "bias": parameter(6)},
        IMAGES,
    ),
    "transposed by name": (
        lambda m, x: F.conv_transpose1d(weight=m.weight, stride=2, input=x, dilation=2),
        {"weight": parameter(4, 6, 3)},
        SIGNALS,
    ),
    "relu behind": (lambda m, x: F.conv2d(x, m.weight, m.bias).relu_(), USUAL, IMAGES),
    "clamp behind": (
        lambda m, x: torch.clamp(F.conv2d(x, m.weight), -0.5, float("inf")),
        USUAL,
        IMAGES,
    ),
    "batch norm behind": (
        lambda m, x: F.relu(
            F.batch_norm(
                F.conv2d(x, m.weight, m.bias), m.mean, m.variance, m.factor, m.shift, training=False
            )
        ),
        BATCH_NORM,
        IMAGES,
    ),
    "linear": (lambda m, x: F.linear(weight=m.weight, input=x), {"weight": parameter(5, 8)}, ROWS),
    "linear with bias": (
        lambda m, x: F.linear(x, bias=m.bias, weight=m.weight),
        image_parts(5, 8),
        (2, 3, 8),
    ),
    "x @ w": (lambda m, x: x @ m.weight, {"weight": parameter(8, 5)}, ROWS),
    "matmul and bias": (
        lambda m, x: torch.matmul(x, m.weight) + m.bias,
        {"weight": parameter(8, 5), "bias": parameter(5)},
        ROWS,
    ),
    "torch.mm": (lambda m, x: torch.mm(x, m.weight), {"weight": parameter(8, 5)}, ROWS),
    "parametrized": (
        lambda m, x: m.layer(x),
        {"layer": nn.utils.parametrizations.weight_norm(nn.Conv2d(4, 6, 3))},
        IMAGES,
    ),
}

NO_PATTERN = "no pattern of {} matches"
FLOAT, REFERENCE = core.Status.FLOAT, core.Status.REFERENCE
PADS = "the kernel pads with zeros, not in mode"
REFUSED = {
    "computed weight": (
        lambda m, x: F.conv2d(x, m.weight * m.mask, m.bias),
        {**USUAL, "mask": parameter(6, 4, 3, 3)},
        IMAGES,
        (FLOAT, NO_PATTERN),
    ),
    "computed bias": (
        lambda m, x: F.conv2d(x, m.weight, m.bias * 2),
        USUAL,
        IMAGES,
        (FLOAT, NO_PATTERN),
    ),
    "transposed weight": (
        lambda m, x: F.linear(x, m.weight.t()),
        {"weight": parameter(8, 5)},
        ROWS,
        (FLOAT, NO_PATTERN),
    ),
    "addmm": (
        lambda m, x: torch.addmm(m.bias, x, m.weight, alpha=2),
        {"weight": parameter(8, 5), "bias": parameter(5)},
        ROWS,
        (FLOAT, NO_PATTERN),
    ),
    "no batch": (
        lambda m, x: F.conv2d(x, m.weight, m.bias),
        USUAL,
        IMAGES[1:],
        (REFERENCE, "inputs of 4 dimensions with a batch, not of 3"),
    ),
    "one vector": (
        lambda m, x: F.linear(x, m.weight),
        {"weight": parameter(5, 8)},
        ROWS[1:],
        (REFERENCE, "inputs of at least 2 dimensions, not of 1"),
    ),
    "output size": (
        lambda m, x: m.layer(x, output_size=(14, 12)),
        {"layer": nn.ConvTranspose2d(4, 6, 3, 2, 1)},
        IMAGES,
        (REFERENCE, "output_size=(14, 12)"),
    ),
    **{
        mode: (
            lambda m, x: m.layer(x),
            {"layer": nn.Conv2d(4, 6, 3, padding=(1, 2), padding_mode=mode)},
            IMAGES,
            (REFERENCE, PADS),
        )
        for mode in ("reflect", "replicate", "circular")
    },
}


def quantized(call, parts, shape, backend):
    """Inputs, the float model, its reference form and the lowered one."""
    torch.manual_seed(0)
    inputs = [torch.randn(shape) + 0.3 for _ in range(2)]
    model = Calls(call, **parts).eval()
    reference = core.quantize(
        model,
        backend,
        calibration=inputs,
        reference=True,
        adaptive_rounding=False,
        bias_correction=False,
        progress=False,
    )
    return inputs, model, reference, core.lower(reference)


def assert_right(inputs, model, reference, lowered):
    """Like float within noise, and like the reference within one step of the output."""
    node = reference.graph.output_node().args[0]
    with torch.no_grad():
        for x in (*inputs, 3 * inputs[0], torch.zeros_like(inputs[0])):
            one, other = reference(x), lowered(x)
            is_quantized = node.target is dequantize_per_tensor
            step = node.args[1] if is_quantized else float(one.max() - one.min()) / 255 + 1e-6
            assert float((one - other).abs().max()) <= ONE_STEP * step
        want, have = model(inputs[0]), lowered(inputs[0])
    noise = float((want - have).square().sum())
    assert noise * 10 ** (LEAST_SQNR / 10) <= float(want.square().sum())


@pytest.mark.filterwarnings("ignore:Using padding='same'")
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("call", "parts", "shape"), RUN.values(), ids=RUN)
def test_every_spelling_on_own_parameters_runs_in_a_kernel(call, parts, shape, backend):
    found = quantized(call, parts, shape, backend)
    lines = core.report(found[-1]).ledger

    assert {(line.status, line.reason) for line in lines} == {KERNEL}
    assert_right(*found)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("call", "parts", "shape", "expected"), REFUSED.values(), ids=REFUSED)
def test_what_no_kernel_computes_is_refused_with_the_reason(call, parts, shape, expected, backend):
    *found, lowered = quantized(call, parts, shape, backend)
    status, reason = expected
    *_, line = core.report(lowered).ledger

    assert line.status is status
    assert reason.format(backend) in line.reason
    assert_right(*found, lowered)
