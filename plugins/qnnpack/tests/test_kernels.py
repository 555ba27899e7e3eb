"""Kernels against the reference model on random layers: they differ by no more than one step."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  the name everyone knows it by
from torch import nn

import fusion_core as core
from fusion_core.kernels import KernelModule

ONE_STEP = 1.001
"""And what float32 loses in saying so."""


class Sum(nn.Module):
    """Two layers, and an operation on both outputs."""

    def __init__(self, operation) -> None:
        super().__init__()
        self.left, self.right = nn.Conv2d(3, 8, 3), nn.Conv2d(3, 8, 3)
        self.operation = operation

    def forward(self, x):
        return self.operation(self.left(x), self.right(x))


class Behind(nn.Module):
    """A convolution, which leaves channels last in memory, pooled, and operations on that."""

    def __init__(self, operations) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, 8, 1)
        self.operations = operations
        self.modules_among_them = nn.ModuleList(o for o in operations if isinstance(o, nn.Module))

    def forward(self, x):
        x = F.max_pool2d(self.layer(x), 2)
        return [operation(x) for operation in self.operations]


def step_of_output(reference) -> float:
    quantizes = [n for n in reference.graph.nodes if n.target is core.qops.quantize_per_tensor]
    return quantizes[-1].args[1]


def largest_difference(model, shape, mapping) -> float:
    """Between kernels and reference, in steps of the output; everything must run in kernels."""
    data = [torch.randn(shape) for _ in range(2)]
    settings = {
        "calibration": data,
        "qconfig_mapping": mapping,
        "adaptive_rounding": False,
        "bias_correction": False,
    }
    reference = core.quantize(model.eval(), "qnnpack", reference=True, **settings)
    lowered = core.lower(reference)
    assert {line.status for line in core.report(lowered).ledger} == {core.Status.INT8}
    assert any(isinstance(module, KernelModule) for module in lowered.modules())
    beyond = [*data, 3 * torch.randn(shape), torch.zeros(shape)]
    pairs = [
        pair for x in beyond for pair in zip(each(lowered, x), each(reference, x), strict=True)
    ]
    return max(float((a - b).abs().max()) for a, b in pairs) / step_of_output(reference)


def each(model, x) -> list[torch.Tensor]:
    result = model(x)
    return result if isinstance(result, list) else [result]


CONVOLUTIONS = {
    "1d": (nn.Conv1d(4, 6, 3, padding=1), (2, 4, 9)),
    "1d strided, grouped": (nn.Conv1d(4, 6, 3, stride=2, groups=2), (2, 4, 9)),
    "2d": (nn.Conv2d(3, 8, 3, padding=1), (2, 3, 9, 8)),
    "2d pointwise": (nn.Conv2d(16, 5, 1), (2, 16, 5, 4)),
    "2d large": (nn.Conv2d(3, 8, 7, stride=2, padding=3), (2, 3, 12, 11)),
    "2d dilated": (nn.Conv2d(3, 8, 3, dilation=2, padding=2), (2, 3, 9, 8)),
    "2d grouped": (nn.Conv2d(6, 4, 3, groups=2), (2, 6, 9, 8)),
    "2d depthwise": (nn.Conv2d(8, 8, 3, padding=1, groups=8), (2, 8, 9, 8)),
    "2d depthwise 5x5": (nn.Conv2d(8, 8, 5, padding=2, stride=2, groups=8), (2, 8, 9, 8)),
    "2d depthwise dilated": (nn.Conv2d(8, 8, 3, dilation=2, groups=8), (2, 8, 9, 8)),
    "2d multiplier": (nn.Conv2d(4, 8, 3, groups=4), (2, 4, 9, 8)),
    "2d same": (nn.Conv2d(3, 8, 4, padding="same"), (2, 3, 9, 8)),
    "2d without bias": (nn.Conv2d(3, 8, 3, bias=False), (2, 3, 9, 8)),
    "3d": (nn.Conv3d(3, 4, 3, padding=1), (2, 3, 5, 6, 4)),
    "3d grouped, strided": (nn.Conv3d(4, 4, 2, stride=2, groups=2), (2, 4, 5, 6, 4)),
    "transposed 1d": (nn.ConvTranspose1d(4, 6, 3, stride=2), (2, 4, 9)),
    "transposed 2d": (nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1), (2, 4, 5, 6)),
    "transposed 2d larger": (
        nn.ConvTranspose2d(4, 6, 3, stride=2, output_padding=1),
        (2, 4, 5, 6),
    ),
    "transposed 2d dilated": (nn.ConvTranspose2d(4, 6, 3, dilation=2), (2, 4, 5, 6)),
    "linear": (nn.Linear(16, 5), (3, 16)),
    "linear batched": (nn.Linear(16, 5), (2, 3, 4, 16)),
    "linear long": (nn.Linear(1000, 3), (2, 1000)),
    "linear of one": (nn.Linear(1, 1), (3, 1)),
    "linear without bias": (nn.Linear(16, 5, bias=False), (3, 16)),
}


@pytest.mark.filterwarnings("ignore:Using padding='same'")
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_a_layer_gives_the_reference_within_one_step(name, dtypes):
    torch.manual_seed(0)
    layer, shape = CONVOLUTIONS[name]

    assert largest_difference(nn.Sequential(layer), shape, dtypes) <= ONE_STEP


@pytest.mark.parametrize("name", ["2d", "transposed 2d", "linear"])
def test_a_qconfig_of_any_kind_gives_the_reference_within_one_step(name, mapping):
    torch.manual_seed(0)
    layer, shape = CONVOLUTIONS[name]

    assert largest_difference(nn.Sequential(layer), shape, mapping) <= ONE_STEP


@pytest.mark.parametrize("name", ["1d", "2d", "2d depthwise", "3d", "transposed 2d", "linear"])
def test_an_empty_batch_gives_an_empty_batch(name):
    layer, shape = CONVOLUTIONS[name]
    lowered = core.quantize(
        nn.Sequential(layer).eval(), "qnnpack", calibration=[torch.randn(shape)]
    )
    empty = torch.randn(0, *shape[1:])

    assert lowered(empty).shape == layer(empty).shape


@pytest.mark.parametrize("activation", [nn.ReLU(), nn.ReLU6(), nn.Hardtanh(-0.3, 0.4)], ids=str)
def test_an_activation_behind_a_layer_gives_the_reference_within_one_step(activation, dtypes):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), activation)

    assert largest_difference(model, (2, 3, 7, 7), dtypes) <= ONE_STEP


@pytest.mark.parametrize(
    "operation",
    [
        torch.add,
        torch.mul,
        lambda a, b: F.relu(a + b),
        lambda a, b: F.relu(a * b),
        lambda a, b: a + b.mean((2, 3), keepdim=True),
        lambda a, b: torch.cat([a, b], 1),
    ],
    ids=["add", "mul", "add relu", "mul relu", "add broadcast", "cat"],
)
def test_two_tensors_give_the_reference_within_two_steps(operation, dtypes):
    # One from each operand, or one from an operand and one of its own.
    assert largest_difference(Sum(operation), (2, 3, 7, 7), dtypes) <= 2 * ONE_STEP


ONE_TENSOR = {
    "relu": F.relu,
    "relu6": F.relu6,
    "hardtanh": lambda x: F.hardtanh(x, -0.2, 0.3),
    "clamp": lambda x: x.clamp(-0.2, 0.3),
    "clamp min": lambda x: x.clamp(min=-0.2),
    "clamp_max": lambda x: torch.clamp_max(x, 0.3),
    "clamp to one value": lambda x: x.clamp(0.3, -0.2),
    "max_pool2d": lambda x: F.max_pool2d(x, 3, 2, 1, ceil_mode=True),
    "max_pool2d of windows of one": lambda x: F.max_pool2d(x, 1, 2),
    "max_pool1d": lambda x: F.max_pool1d(x.flatten(2), 3),
    "avg_pool2d": lambda x: F.avg_pool2d(x, 2, 1),
    "avg_pool2d of windows of one": lambda x: F.avg_pool2d(x, 1),
    "avg_pool2d padded": lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
    "avg_pool2d divided": lambda x: F.avg_pool2d(x, 2, divisor_override=5),
    "avg_pool1d": lambda x: F.avg_pool1d(x.flatten(2), 4),
    "adaptive_avg_pool2d": lambda x: F.adaptive_avg_pool2d(x, (2, None)),
    "adaptive_avg_pool1d": lambda x: F.adaptive_avg_pool1d(x.flatten(2), 3),
    "adaptive_avg_pool3d": lambda x: F.adaptive_avg_pool3d(x.unsqueeze(2), (1, 3, 2)),
    "mean": lambda x: x.mean((2, 3)),
    "mean of one": lambda x: torch.mean(x, -1, keepdim=True),
    "mean of all": lambda x: x.mean(),
    "pad": lambda x: F.pad(x, (1, 2, 0, 1)),
    "flatten": lambda x: x.flatten(1),
    "permute": lambda x: x.permute(0, 2, 3, 1),
    "nn.AvgPool2d": nn.AvgPool2d(2, padding=1),
    "nn.AvgPool1d": lambda x: nn.functional.avg_pool1d(x.flatten(2), 2, stride=3),
    "nn.MaxPool2d": nn.MaxPool2d((3, 1)),
    "nn.AdaptiveAvgPool2d": nn.AdaptiveAvgPool2d(1),
    "nn.ReLU6": nn.ReLU6(),
    "nn.Hardtanh": nn.Hardtanh(-0.2, 0.3),
}


def test_every_operation_on_one_tensor_gives_the_reference_within_two_steps(dtypes):
    # One step from the convolution before it, one of its own.
    torch.manual_seed(0)
    model = Behind([*ONE_TENSOR.values()])

    assert largest_difference(model, (2, 3, 8, 8), dtypes) <= 2 * ONE_STEP
