"""Transposed convolutions of two rows, as U-Nets have them, are right on every engine."""

from __future__ import annotations

import itertools
import pickle

import pytest
import torch
from torch import nn

import fusion_core as core

GEOMETRIES = [
    {"kernel_size": kernel, "stride": stride}
    for kernel, stride in itertools.product([2, (2, 3), 3, (1, 2)], [1, 2, (2, 1)])
]
GEOMETRIES += [
    {"kernel_size": kernel, "stride": stride}
    for kernel, stride in [((2, 1), 1), ((2, 3), (1, 2)), ((2, 4), (2, 1))]
]


@pytest.mark.parametrize("backend", ["fbgemm", "qnnpack"])
@pytest.mark.parametrize("geometry", GEOMETRIES, ids=str)
def test_a_transposed_convolution_gives_the_reference_each_time(backend, geometry):
    torch.manual_seed(0)
    up = nn.ConvTranspose2d(16, 8, **geometry)
    model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), up).eval()
    x = torch.randn(2, 3, 9, 7)
    options = {"calibration": [x], "adaptive_rounding": False}
    lowered = core.quantize(model, backend, **options)
    wanted = core.quantize(model, backend, reference=True, **options)(x)

    assert {line.status for line in core.report(lowered).ledger} == {core.Status.INT8}
    loaded = pickle.loads(pickle.dumps(lowered))  # noqa: S301  our own
    step = float((wanted.max() - wanted.min()) / 255)
    assert lowered(x).shape == model(x).shape
    assert torch.equal(lowered(x), lowered(x))
    for _ in range(3):
        torch.testing.assert_close(lowered(x), wanted, atol=1.01 * step, rtol=0)
        torch.testing.assert_close(loaded(x), wanted, atol=1.01 * step, rtol=0)
