"""A qconfig outside of what a native backend's kernels take: the layer stays float, and the reason names the limit."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  the name everyone knows it by
from torch import nn

import fusion_core as core

FLOOR = 2.0**-12
SIGNED = core.catalog.static_qconfig(dtype=torch.qint8, weight_min=-127, eps=FLOOR)
FITTING = {"fbgemm": core.get_backend("fbgemm").qconfig_mapping.global_qconfig, "qnnpack": SIGNED}


class Function(nn.Module):
    """A function of an input and parameters of its own."""

    def __init__(self, function, *shape) -> None:
        super().__init__()
        self.function, self.weight = function, nn.Parameter(torch.randn(shape))

    def forward(self, x):
        return self.function(x, self.weight)


IMAGES, ROWS = (2, 3, 5, 5), (4, 6)
LAYERS = {
    "nn.Conv2d": (lambda: nn.Conv2d(3, 4, 3), IMAGES),
    "F.conv2d": (lambda: Function(F.conv2d, 4, 3, 3, 3), IMAGES),
    "nn.ConvTranspose2d": (lambda: nn.ConvTranspose2d(3, 4, 3), IMAGES),
    "F.conv_transpose2d": (lambda: Function(F.conv_transpose2d, 3, 4, 3, 3), IMAGES),
    "nn.Linear": (lambda: nn.Linear(6, 4), ROWS),
    "F.linear": (lambda: Function(F.linear, 4, 6), ROWS),
}


def with_options(qconfig, place, **options):
    """``qconfig`` with other options of the observer in one place."""
    observer = getattr(qconfig, place) or qconfig.activation
    return qconfig.model_copy(update={place: observer.with_options(**options)})


BEYOND = [
    ("fbgemm", "input", {"dtype": torch.qint8, "quant_min": -128, "quant_max": 127}),
    ("fbgemm", "output", {"dtype": torch.qint8, "quant_min": -128, "quant_max": 127}),
    ("fbgemm", "weight", {"dtype": torch.quint8, "quant_min": 0, "quant_max": 127}),
    ("fbgemm", "weight", {"quant_min": -128}),
    ("fbgemm", "weight", {"quant_max": 127}),
    ("qnnpack", "input", {"dtype": torch.quint8, "quant_min": 0, "quant_max": 255}),
    ("qnnpack", "output", {"dtype": torch.quint8, "quant_min": 0, "quant_max": 255}),
    ("qnnpack", "weight", {"dtype": torch.quint8, "quant_min": 0, "quant_max": 255}),
    ("qnnpack", "weight", {"quant_min": -128}),
    ("qnnpack", "weight", {"eps": FLOOR / 2}),
    ("qnnpack", "input", {"eps": FLOOR / 2}),
    ("qnnpack", "output", {"eps": FLOOR / 2}),
]


def line_of(layer, backend, qconfig):
    """The ledger's line on a layer that is quantized with ``qconfig``, whatever it is."""
    build, shape = LAYERS[layer]
    torch.manual_seed(0)
    mapping = core.catalog.static_qconfig_mapping(qconfig)
    quantized = core.quantize(
        nn.Sequential(build()).eval(),
        backend,
        calibration=[torch.randn(shape)],
        qconfig_mapping=mapping,
        adaptive_rounding=False,
        bias_correction=False,
        progress=False,
    )
    (line,) = core.report(quantized).ledger
    return line


@pytest.mark.parametrize("backend", FITTING)
@pytest.mark.parametrize("layer", LAYERS)
def test_a_qconfig_within_the_limits_is_taken(layer, backend):
    line = line_of(layer, backend, FITTING[backend])

    assert line.status in {core.Status.INT8, core.Status.REFERENCE}


@pytest.mark.parametrize(("backend", "place", "options"), BEYOND, ids=str)
def test_one_beyond_a_limit_leaves_the_layer_float_with_the_limit(backend, place, options):
    qconfig = with_options(FITTING[backend], place, **options)
    limit = "must be torch" if "dtype" in options else "must have"
    lines = {layer: line_of(layer, backend, qconfig) for layer in LAYERS}

    assert {line.status for line in lines.values()} == {core.Status.FLOAT}
    # What stands first in the list of a type's dtypes is what a reason speaks of; it is the same for all.
    assert len({line.reason for line in lines.values()}) == 1
    assert f"its {place} {limit}" in lines["F.conv2d"].reason


@pytest.mark.parametrize(
    "operation",
    [lambda x: x + x, torch.sigmoid, nn.Hardswish(), F.hardswish, nn.BatchNorm2d(3), nn.Softmax(1)],
    ids=["+", "torch.sigmoid", "nn.Hardswish", "F.hardswish", "nn.BatchNorm2d", "nn.Softmax"],
)
def test_signed_activations_are_refused_alike_without_a_weight(operation):
    class Applies(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.operation = operation

        def forward(self, x):
            return self.operation(x)

    x = torch.randn(IMAGES)
    quantized = core.quantize(
        Applies().eval(),
        "fbgemm",
        calibration=[x],
        qconfig_mapping=core.QConfigMapping(global_qconfig=SIGNED),
        progress=False,
    )
    (line,) = core.report(quantized).ledger

    assert line.status is core.Status.FLOAT
    assert "its input must be torch.quint8, the qconfig gives torch.qint8" in line.reason
