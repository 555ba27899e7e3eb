"""core.quantize on every operation fbgemm supports, alone and in small nets, in all its spellings."""

from __future__ import annotations

import copy
import operator

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  the name everyone knows it by
from torch import nn

import fusion_core as core


class Behind(nn.Module):
    """A convolution and one operation on its output."""

    def __init__(self, operation, layer=None) -> None:
        super().__init__()
        self.layer = layer or nn.Conv2d(3, 4, 1)
        self.operation = operation

    def forward(self, x):
        return self.operation(self.layer(x))


class Between(Behind):
    """The same, with a pooling in between, so that no kernel can take the operation along."""

    def forward(self, x):
        return self.operation(F.max_pool2d(self.layer(x), 2))


class TwoBranches(nn.Module):
    """Two convolutions and one operation on both outputs."""

    def __init__(self, operation) -> None:
        super().__init__()
        self.left, self.right = nn.Conv2d(3, 4, 1), nn.Conv2d(3, 4, 1)
        self.operation = operation

    def forward(self, x):
        return self.operation(self.left(x), self.right(x))


class ActivatedSum(TwoBranches):
    """The sum of two convolutions, and an activation."""

    def forward(self, x):
        return self.operation(self.left(x) + self.right(x))


class Functional(nn.Module):
    """A function of the input, a weight and a bias."""

    def __init__(self, function, *weight: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(*weight) / 4)
        self.bias = nn.Parameter(torch.randn(weight[0]) / 4)
        self.function = function

    def forward(self, x):
        return self.function(x, self.weight, self.bias)


ONE_STEP = 1.001
"""And what float32 loses in saying so."""


def in_words(cases):
    """Parameters named by the first element of each case."""
    return [pytest.param(*rest, id=name) for name, *rest in cases]


ACTIVATIONS = [
    ("nn.ReLU", nn.ReLU()),
    ("nn.ReLU inplace", nn.ReLU(inplace=True)),
    ("F.relu", F.relu),
    ("F.relu inplace", lambda x: F.relu(x, inplace=True)),
    ("F.relu keyword", lambda x: F.relu(input=x)),
    ("F.relu_", F.relu_),
    ("torch.relu", torch.relu),
    ("torch.relu_", torch.relu_),
    (".relu", lambda x: x.relu()),
    (".relu_", lambda x: x.relu_()),
    ("aten.relu", torch.ops.aten.relu.default),
    ("nn.ReLU6", nn.ReLU6()),
    ("F.relu6", F.relu6),
    ("F.relu6 inplace", lambda x: F.relu6(x, inplace=True)),
    ("nn.Hardtanh", nn.Hardtanh(-0.4, 0.7)),
    ("F.hardtanh", lambda x: F.hardtanh(x, -0.4, 0.7)),
    ("F.hardtanh keywords", lambda x: F.hardtanh(x, max_val=0.7, min_val=-0.4)),
    ("F.hardtanh default", F.hardtanh),
    ("F.hardtanh_", lambda x: F.hardtanh_(x, -0.4, 0.7)),
    ("torch.clamp", lambda x: torch.clamp(x, -0.4, 0.7)),
    ("torch.clamp keywords", lambda x: torch.clamp(x, max=0.7, min=-0.4)),
    ("torch.clip", lambda x: torch.clip(x, 0, 1)),
    ("torch.clamp_", lambda x: torch.clamp_(x, 0.0, 0.7)),
    (".clamp", lambda x: x.clamp(-0.4, 0.7)),
    (".clamp_", lambda x: x.clamp_(-0.4, 0.7)),
    (".clip", lambda x: x.clip(0, 1)),
    (".clamp from 0", lambda x: x.clamp(min=0)),
    (".clamp up to", lambda x: x.clamp(max=0.7)),
    (".clamp from", lambda x: x.clamp(0.2)),
    ("torch.clamp_min", lambda x: torch.clamp_min(x, 0.0)),
    (".clamp_min", lambda x: x.clamp_min(-0.2)),
    ("torch.clamp_max", lambda x: torch.clamp_max(x, 0.3)),
    (".clamp_max", lambda x: x.clamp_max(0.3)),
]


@pytest.mark.parametrize("around", [Behind, Between])
@pytest.mark.parametrize("activation", in_words(ACTIVATIONS))
def test_an_activation_runs_in_int8_within_one_step(quantized, images, around, activation):
    outcome = quantized(around(activation), images())

    assert outcome.left_in_float() == []
    assert outcome.steps_apart() <= ONE_STEP
    assert outcome.sqnr > 30


@pytest.mark.parametrize("activation", in_words(ACTIVATIONS))
def test_an_activation_behind_a_linear_layer_runs_in_int8(quantized, images, activation):
    outcome = quantized(Behind(activation, nn.Linear(10, 6)), images(4, 10))

    assert outcome.left_in_float() == []
    assert outcome.steps_apart() <= ONE_STEP
    assert outcome.sqnr > 30


@pytest.mark.parametrize(
    "activation", in_words(each for each in ACTIVATIONS if "from" not in each[0])
)
def test_an_activation_behind_an_addition_runs_in_int8(quantized, images, activation):
    outcome = quantized(ActivatedSum(activation), images())

    assert outcome.left_in_float() == []
    assert outcome.steps_apart() <= ONE_STEP
    assert outcome.sqnr > 28


ADDITIONS = [
    ("+", operator.add),
    ("torch.add", torch.add),
    ("torch.add keyword", lambda x, y: torch.add(x, other=y)),
    ("torch.add keywords", lambda x, y: torch.add(other=y, input=x)),
    ("torch.add alpha 1", lambda x, y: torch.add(x, y, alpha=1)),
    (".add", lambda x, y: x.add(y)),
    (".add keyword", lambda x, y: x.add(other=y)),
    (".add_", lambda x, y: x.add_(y)),
    ("+=", operator.iadd),
    ("__add__", lambda x, y: x.__add__(y)),
    ("aten.add", torch.ops.aten.add.Tensor),
    ("to itself", lambda x, _: x + x),
    ("broadcast", lambda x, y: x + y.mean((2, 3), keepdim=True)),
    ("broadcast left", lambda x, y: y.mean(1, keepdim=True) + x),
    ("three", lambda x, y: x + y + x),
]
PRODUCTS = [
    ("*", operator.mul),
    ("torch.mul", torch.mul),
    ("torch.mul keywords", lambda x, y: torch.mul(other=y, input=x)),
    ("torch.multiply", torch.multiply),
    (".mul", lambda x, y: x.mul(y)),
    (".mul keyword", lambda x, y: x.mul(other=y)),
    (".mul_", lambda x, y: x.mul_(y)),
    ("*=", operator.imul),
    ("__mul__", lambda x, y: x.__mul__(y)),
    ("aten.mul", torch.ops.aten.mul.Tensor),
    ("with itself", lambda x, _: x * x),
    ("broadcast product", lambda x, y: x * y.mean((2, 3), keepdim=True)),
]


@pytest.mark.parametrize("rectified", [False, True], ids=["plain", "relu"])
@pytest.mark.parametrize("operation", in_words(ADDITIONS + PRODUCTS))
def test_a_binary_operation_runs_in_int8_on_results_of_others(
    quantized, images, operation, rectified
):
    function = (lambda x, y: F.relu(operation(x, y))) if rectified else operation
    outcome = quantized(TwoBranches(function), images())

    assert outcome.left_in_float() == []
    # Each operand comes from a convolution, or a mean of one, that may be a step apart itself.
    assert outcome.steps_apart() <= 2 * ONE_STEP
    assert outcome.sqnr > 28


@pytest.mark.parametrize("operation", [operator.add, operator.mul], ids=["add", "mul"])
def test_a_binary_operation_on_two_inputs_of_the_model_runs_in_int8(quantized, operation):
    class Net(nn.Module):
        def forward(self, x, y):
            return operation(x, y)

    outcome = quantized(Net(), [(torch.randn(4, 9), torch.randn(9)) for _ in range(4)])

    assert outcome.left_in_float() == []
    assert outcome.steps_apart() <= ONE_STEP
    assert outcome.sqnr > 30


FLOAT_OPERATIONS = [
    ("add alpha", lambda x, y: torch.add(x, y, alpha=2), "add"),
    (".add alpha", lambda x, y: x.add(y, alpha=3), "add"),
    ("sub", operator.sub, "operator.sub"),
    ("pad reflect", lambda x, _: F.pad(x, (1, 1, 1, 1), mode="reflect"), "pad"),
    ("max pool with indices", lambda x, _: F.max_pool2d(x, 2, return_indices=True)[0], "indices"),
    ("mean as double", lambda x, _: x.mean(1, dtype=torch.float64).float(), "mean"),
    ("clamp by tensor", torch.clamp, "clamp"),
    ("silu", lambda x, _: F.silu(x), "silu"),
]


@pytest.mark.parametrize(("operation", "name"), in_words(FLOAT_OPERATIONS))
def test_what_has_no_kernel_stays_in_float_with_a_reason(quantized, images, operation, name):
    outcome = quantized(TwoBranches(operation), images())

    assert core.Status.INT8 not in outcome.status(name)
    assert all(entry.reason for entry in outcome.ledger if entry.operation.endswith(name))
    assert outcome.sqnr > 30


CATS = [
    ("tuple", lambda x, y: torch.cat((x, y), 1)),
    ("list", lambda x, y: torch.cat([x, y], dim=1)),
    ("tensors keyword", lambda x, y: torch.cat(tensors=[x, y], dim=1)),
    ("last dimension", lambda x, y: torch.cat([x, y], -1)),
    ("first dimension", lambda x, y: torch.cat([x, y])),
    ("concat", lambda x, y: torch.concat([x, y], 1)),
    ("concatenate", lambda x, y: torch.concatenate([x, y], 1)),
    ("one twice", lambda x, y: torch.cat([x, y, x], 1)),
    ("nested", lambda x, y: torch.cat([torch.cat([x, y], 1), x], 1)),
    ("dense", lambda x, y: torch.cat([x, torch.cat([x, y], 1) + torch.cat([y, x], 1)], 1)),
]


@pytest.mark.parametrize("operation", in_words(CATS))
def test_concatenation_runs_in_int8_within_one_step(quantized, images, operation):
    outcome = quantized(TwoBranches(operation), images())

    assert outcome.left_in_float() == []
    assert outcome.steps_apart() <= ONE_STEP
    assert outcome.sqnr > 30


POOLS = [
    ("nn.MaxPool2d", nn.MaxPool2d(2)),
    ("nn.MaxPool2d settings", nn.MaxPool2d(3, stride=2, padding=1, ceil_mode=True)),
    ("nn.MaxPool2d dilation", nn.MaxPool2d(2, stride=1, dilation=2)),
    ("F.max_pool2d", lambda x: F.max_pool2d(x, 2)),
    ("F.max_pool2d keywords", lambda x: F.max_pool2d(input=x, kernel_size=3, stride=2, padding=1)),
    ("F.max_pool2d pair", lambda x: F.max_pool2d(x, (3, 2), (2, 1))),
    ("torch.max_pool2d", lambda x: torch.max_pool2d(x, 2)),
    ("nn.AvgPool2d", nn.AvgPool2d(2)),
    ("nn.AvgPool2d padding", nn.AvgPool2d(3, 2, 1)),
    ("nn.AvgPool2d inner", nn.AvgPool2d(3, 2, 1, count_include_pad=False)),
    ("nn.AvgPool2d divisor", nn.AvgPool2d(2, divisor_override=8)),
    ("nn.AvgPool2d ceil", nn.AvgPool2d(3, 2, ceil_mode=True)),
    ("F.avg_pool2d", lambda x: F.avg_pool2d(x, 2)),
    ("F.avg_pool2d keywords", lambda x: F.avg_pool2d(x, kernel_size=3, stride=2, padding=1)),
    ("nn.AdaptiveAvgPool2d 1", nn.AdaptiveAvgPool2d(1)),
    ("nn.AdaptiveAvgPool2d pair", nn.AdaptiveAvgPool2d((3, 2))),
    ("nn.AdaptiveAvgPool2d None", nn.AdaptiveAvgPool2d((None, 2))),
    ("F.adaptive_avg_pool2d", lambda x: F.adaptive_avg_pool2d(x, 1)),
    ("F.adaptive_avg_pool2d keyword", lambda x: F.adaptive_avg_pool2d(x, output_size=(2, 2))),
    (".mean pair", lambda x: x.mean((2, 3))),
    (".mean list", lambda x: x.mean([2, 3])),
    (".mean keywords", lambda x: x.mean(dim=(2, 3), keepdim=True)),
    (".mean negative", lambda x: x.mean(-1)),
    (".mean twice", lambda x: x.mean(3).mean(2)),
    (".mean all", lambda x: x.mean()),
    ("torch.mean", lambda x: torch.mean(x, (2, 3))),
    ("torch.mean keywords", lambda x: torch.mean(input=x, dim=[2, 3], keepdim=True)),
]


@pytest.mark.parametrize("operation", in_words(POOLS))
def test_pooling_runs_in_int8_within_one_step(quantized, images, operation):
    outcome = quantized(Behind(operation), images())

    assert outcome.left_in_float() == []
    assert outcome.steps_apart() <= ONE_STEP
    assert outcome.sqnr > 20


POOLS_1D_3D = [
    ("nn.MaxPool1d", nn.Conv1d(3, 4, 1), nn.MaxPool1d(2), (2, 3, 12)),
    ("F.max_pool1d", nn.Conv1d(3, 4, 1), lambda x: F.max_pool1d(x, 3, 2, 1), (2, 3, 12)),
    ("nn.AvgPool1d", nn.Conv1d(3, 4, 1), nn.AvgPool1d(2), (2, 3, 12)),
    ("F.avg_pool1d", nn.Conv1d(3, 4, 1), lambda x: F.avg_pool1d(x, 2), (2, 3, 12)),
    ("nn.AdaptiveAvgPool1d", nn.Conv1d(3, 4, 1), nn.AdaptiveAvgPool1d(2), (2, 3, 12)),
    ("nn.MaxPool3d", nn.Conv3d(3, 4, 1), nn.MaxPool3d(2), (2, 3, 4, 6, 6)),
    ("nn.AvgPool3d", nn.Conv3d(3, 4, 1), nn.AvgPool3d(2), (2, 3, 4, 6, 6)),
    ("F.avg_pool3d", nn.Conv3d(3, 4, 1), lambda x: F.avg_pool3d(x, 2), (2, 3, 4, 6, 6)),
    ("nn.AdaptiveAvgPool3d", nn.Conv3d(3, 4, 1), nn.AdaptiveAvgPool3d(2), (2, 3, 4, 6, 6)),
]


@pytest.mark.parametrize(("layer", "operation", "shape"), in_words(POOLS_1D_3D))
def test_pooling_in_one_and_three_dimensions_runs_in_int8(
    quantized, images, layer, operation, shape
):
    outcome = quantized(Behind(operation, layer), images(*shape))

    assert outcome.left_in_float() == []
    assert outcome.steps_apart() <= ONE_STEP
    assert outcome.sqnr > 20


SHAPES = [
    ("torch.flatten", lambda x: torch.flatten(x, 1)),
    ("torch.flatten keywords", lambda x: torch.flatten(input=x, start_dim=1, end_dim=2)),
    (".flatten", lambda x: x.flatten(1)),
    (".flatten keyword", lambda x: x.flatten(start_dim=2)),
    (".flatten all", lambda x: x.flatten()),
    ("nn.Flatten", nn.Flatten()),
    ("nn.Flatten some", nn.Flatten(1, 2)),
    (".reshape", lambda x: x.reshape(2, -1)),
    (".reshape tuple", lambda x: x.reshape((2, 4, 100))),
    ("torch.reshape", lambda x: torch.reshape(x, (2, -1))),
    ("torch.reshape keyword", lambda x: torch.reshape(x, shape=(2, -1))),
    (".view", lambda x: x.view(2, -1)),
    (".permute", lambda x: x.permute(0, 2, 3, 1)),
    (".permute tuple", lambda x: x.permute((0, 2, 3, 1))),
    ("torch.permute", lambda x: torch.permute(x, (0, 2, 3, 1))),
    ("torch.permute keyword", lambda x: torch.permute(x, dims=(0, 2, 3, 1))),
    (".transpose", lambda x: x.transpose(1, 2)),
    ("torch.transpose keywords", lambda x: torch.transpose(x, dim0=1, dim1=-1)),
    (".unsqueeze", lambda x: x.unsqueeze(1)),
    ("torch.unsqueeze", lambda x: torch.unsqueeze(x, dim=0)),
    (".squeeze", lambda x: x.mean((2, 3), keepdim=True).squeeze()),
    (".squeeze dim", lambda x: x.mean((2, 3), keepdim=True).squeeze(3)),
    ("torch.squeeze", lambda x: torch.squeeze(x.mean(2, keepdim=True), 2)),
    (".contiguous", lambda x: x.permute(0, 2, 3, 1).contiguous()),
    ("shuffle", lambda x: x.view(2, 2, 2, 10, 10).transpose(1, 2).reshape(2, 4, 10, 10)),
    ("nn.ZeroPad2d", nn.ZeroPad2d(1)),
    ("nn.ZeroPad2d asymmetric", nn.ZeroPad2d((0, 1, 2, 0))),
    ("nn.ConstantPad2d", nn.ConstantPad2d(1, 0.25)),
    ("F.pad", lambda x: F.pad(x, (1, 1, 1, 1))),
    ("F.pad list", lambda x: F.pad(x, [0, 1, 0, 1])),
    ("F.pad keywords", lambda x: F.pad(x, pad=(1, 1), mode="constant", value=0.25)),
    ("F.pad value beyond the range", lambda x: F.pad(x, (1, 1), value=99.0)),
    ("F.pad crop", lambda x: F.pad(x, (-1, -1, 1, 1))),
    ("nn.Dropout", nn.Dropout(0.5)),
    ("F.dropout", lambda x: F.dropout(x, 0.5, training=False)),
    ("nn.Identity", nn.Identity()),
]


@pytest.mark.parametrize("operation", in_words(SHAPES))
def test_what_moves_values_runs_in_int8_within_one_step(quantized, images, operation):
    outcome = quantized(Behind(operation), images())

    assert outcome.left_in_float() == []
    assert outcome.steps_apart() <= ONE_STEP
    assert outcome.sqnr > 30


SIZES = [
    (".size(0)", lambda x: x.view(x.size(0), -1)),
    (".shape[0]", lambda x: x.view(x.shape[0], -1)),
    ("unpacked shape", lambda x: x.reshape(x.shape[0], x.shape[1] * x.shape[2], -1)),
]


@pytest.mark.parametrize("operation", in_words(SIZES))
def test_sizes_read_from_a_quantized_tensor_follow_the_batch(quantized, images, operation):
    outcome = quantized(Behind(operation), images())
    wide = torch.randn(7, 3, 10, 10)

    assert core.Status.FLOAT not in outcome.status("Conv2d")
    assert outcome.lowered(wide).shape == outcome.model(wide).shape
    assert outcome.steps_apart() <= ONE_STEP
    assert outcome.sqnr > 30


torch.manual_seed(0)  # the layers below are made once, when the tests are collected
CONVOLUTIONS = [
    ("1d", nn.Conv1d(4, 6, 3), (2, 4, 12)),
    ("1d settings", nn.Conv1d(4, 6, 3, 2, 1, 2, 2), (2, 4, 12)),
    ("1d same", nn.Conv1d(4, 6, 4, padding="same"), (2, 4, 12)),
    ("2d", nn.Conv2d(4, 6, 3), (2, 4, 9, 9)),
    ("2d without bias", nn.Conv2d(4, 6, 3, bias=False), (2, 4, 9, 9)),
    ("2d stride", nn.Conv2d(4, 6, 3, stride=2, padding=1), (2, 4, 9, 9)),
    ("2d oblong", nn.Conv2d(4, 6, (3, 1), stride=(2, 1), padding=(1, 0)), (2, 4, 9, 9)),
    ("2d dilation", nn.Conv2d(4, 6, 3, dilation=2), (2, 4, 9, 9)),
    ("2d groups", nn.Conv2d(4, 6, 3, groups=2), (2, 4, 9, 9)),
    ("2d depthwise", nn.Conv2d(8, 8, 3, groups=8), (2, 8, 9, 9)),
    ("2d depthwise multiplier", nn.Conv2d(4, 8, 3, groups=4), (2, 4, 9, 9)),
    ("2d same", nn.Conv2d(4, 6, 3, padding="same"), (2, 4, 9, 9)),
    ("2d same even", nn.Conv2d(4, 6, (4, 3), padding="same", dilation=(1, 2)), (2, 4, 9, 9)),
    ("2d valid", nn.Conv2d(4, 6, 3, padding="valid"), (2, 4, 9, 9)),
    ("3d", nn.Conv3d(3, 4, 3), (2, 3, 5, 6, 6)),
    ("3d settings", nn.Conv3d(4, 4, (1, 3, 3), (1, 2, 2), (0, 1, 1), groups=2), (2, 4, 5, 6, 6)),
]
BATCH_NORMS = {1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}


def normalised(layer: nn.Module, norm: type[nn.Module], channels: int) -> list[nn.Module]:
    """A layer and a batch norm that has seen something."""
    batch_norm = norm(channels)
    nn.init.uniform_(batch_norm.running_mean, -0.3, 0.3)
    nn.init.uniform_(batch_norm.running_var, 0.5, 2.0)
    nn.init.uniform_(batch_norm.weight, 0.5, 1.5)
    nn.init.uniform_(batch_norm.bias, -0.3, 0.3)
    return [layer, batch_norm]


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel:UserWarning")
@pytest.mark.parametrize("tail", [[], [nn.ReLU()], [nn.ReLU6()]], ids=["", "relu", "relu6"])
@pytest.mark.parametrize("norm", [False, True], ids=["", "bn"])
@pytest.mark.parametrize(("layer", "shape"), in_words(CONVOLUTIONS))
def test_a_convolution_runs_in_int8_within_one_step(quantized, images, layer, shape, norm, tail):
    kind = BATCH_NORMS[len(shape) - 2]
    head = normalised(layer, kind, layer.out_channels) if norm else [layer]
    outcome = quantized(nn.Sequential(*head, *tail), images(*shape))

    assert outcome.left_in_float() == []
    assert len(set(outcome.kernels)) == 1
    assert outcome.steps_apart() <= ONE_STEP
    assert outcome.sqnr > 28


LINEARS = [
    ("2 dimensions", nn.Linear(12, 7), (4, 12)),
    ("without bias", nn.Linear(12, 7, bias=False), (4, 12)),
    ("3 dimensions", nn.Linear(12, 7), (2, 5, 12)),
    ("one output", nn.Linear(12, 1), (16, 12)),
]


@pytest.mark.parametrize(
    "tail", [[], [nn.ReLU()], [nn.Hardtanh(-0.5, 0.5)]], ids=["", "relu", "ht"]
)
@pytest.mark.parametrize(("layer", "shape"), in_words(LINEARS))
def test_a_linear_layer_runs_in_int8_within_one_step(quantized, images, layer, shape, tail):
    outcome = quantized(nn.Sequential(layer, *tail), images(*shape, count=9))

    assert outcome.left_in_float() == []
    assert outcome.steps_apart() <= ONE_STEP
    assert outcome.sqnr > 28


@pytest.mark.parametrize("tail", [nn.ReLU(), nn.Identity(), nn.Linear(7, 3)], ids=repr)
def test_a_linear_layer_on_one_vector_runs_as_the_reference_with_a_reason(quantized, images, tail):
    outcome = quantized(nn.Sequential(nn.Linear(12, 7), tail), images(12, count=20))

    assert outcome.status("Linear") == {core.Status.REFERENCE}
    assert "at least 2 dimensions, not of 1" in outcome.ledger["_0"].reason
    assert outcome.sqnr > 28


def test_a_batch_norm_behind_a_linear_layer_is_folded_on_two_dimensions_only(quantized, images):
    flat = quantized(nn.Sequential(*normalised(nn.Linear(12, 6), nn.BatchNorm1d, 6)), images(4, 12))
    deep = quantized(
        nn.Sequential(*normalised(nn.Linear(12, 6), nn.BatchNorm1d, 5)), images(4, 5, 12)
    )

    assert flat.left_in_float() == []
    assert deep.status("BatchNorm1d") == {core.Status.FLOAT}
    assert min(flat.sqnr, deep.sqnr) > 30


FUNCTIONALS = [
    ("F.conv2d", F.conv2d, (6, 4, 3, 3), (2, 4, 9, 9)),
    ("F.conv2d no bias", lambda x, w, _: F.conv2d(x, w), (6, 4, 3, 3), (2, 4, 9, 9)),
    (
        "F.conv2d some keywords",
        lambda x, w, _: F.relu(F.conv2d(x, w, stride=2, padding=1)),
        (6, 4, 3, 3),
        (2, 4, 9, 9),
    ),
    (
        "F.conv2d all keywords",
        lambda x, w, b: F.conv2d(input=x, weight=w, bias=b, stride=(2, 1), groups=2),
        (6, 2, 3, 3),
        (2, 4, 9, 9),
    ),
    (
        "F.conv2d same",
        lambda x, w, b: F.conv2d(x, w, b, padding="same"),
        (6, 4, 3, 3),
        (2, 4, 9, 9),
    ),
    ("torch.conv2d", lambda x, w, b: torch.conv2d(x, w, b, 1, 1), (6, 4, 3, 3), (2, 4, 9, 9)),
    ("F.conv1d", lambda x, w, b: F.conv1d(x, w, b, padding=1), (6, 4, 3), (2, 4, 12)),
    ("F.conv3d", F.conv3d, (6, 4, 3, 3, 3), (2, 4, 5, 5, 5)),
    ("F.linear", F.linear, (6, 12), (4, 12)),
    ("F.linear keywords", lambda x, w, b: F.linear(bias=b, weight=w, input=x), (6, 12), (4, 12)),
    ("F.linear no bias", lambda x, w, _: F.linear(x, w), (6, 12), (4, 12)),
    ("F.linear relu", lambda x, w, b: F.linear(x, w, b).relu(), (6, 12), (2, 5, 12)),
]


@pytest.mark.parametrize(("function", "weight", "shape"), in_words(FUNCTIONALS))
def test_a_weighted_function_runs_in_int8_within_one_step(
    quantized, images, function, weight, shape
):
    outcome = quantized(Functional(function, *weight), images(*shape))

    assert outcome.left_in_float() == []
    assert outcome.steps_apart() <= ONE_STEP
    assert outcome.sqnr > 28


@pytest.mark.parametrize("call", [lambda m, x: m(x), lambda m, x: m(input=x)], ids=["*", "**"])
@pytest.mark.parametrize("layer", [nn.Conv2d(3, 4, 3), nn.Linear(10, 4)], ids=["conv", "linear"])
def test_modules_may_be_called_by_keyword(quantized, images, layer, call):
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.pool, self.relu = layer, nn.AvgPool2d(2), nn.ReLU()

        def forward(self, x):
            return call(self.relu, call(self.pool, call(self.layer, x)))

    outcome = quantized(Net(), images())

    assert outcome.left_in_float() == []
    assert outcome.steps_apart() <= ONE_STEP


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
def test_a_convolution_with_another_padding_mode_is_right_though_not_a_kernel(
    quantized, images, mode
):
    model = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1, padding_mode=mode), nn.ReLU())
    outcome = quantized(model, images())

    assert outcome.status("Conv2d") == {core.Status.REFERENCE}
    assert any(mode in (entry.reason or "") for entry in outcome.ledger)
    assert outcome.steps_apart() <= ONE_STEP
    assert outcome.sqnr > 28


class Residual(nn.Module):
    """A small network of everything: stem, residual blocks, a squeeze gate, concatenation, head."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            *normalised(nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d, 8), nn.ReLU6()
        )
        self.narrow = nn.Sequential(
            *normalised(nn.Conv2d(8, 8, 3, 1, 1, groups=8), nn.BatchNorm2d, 8)
        )
        self.wide = nn.Conv2d(8, 8, 1)
        self.gate = nn.Conv2d(8, 8, 1)
        self.pool = nn.MaxPool2d(2)
        self.drop = nn.Dropout(0.2)
        self.head = nn.Linear(16, 5)

    def forward(self, x):
        x = self.stem(F.pad(x, (1, 1, 1, 1)))
        y = F.relu(x + self.narrow(x))
        y = y * self.gate(y.mean((2, 3), keepdim=True)).clamp(0, 1)
        z = torch.cat([self.pool(self.wide(y)), F.avg_pool2d(x, 2)], 1)
        return self.head(self.drop(z.mean((2, 3))))


@pytest.mark.parametrize("rounding", [False, True], ids=["nearest", "adaptive"])
@pytest.mark.parametrize("correction", [False, True], ids=["", "bias correction"])
def test_a_small_network_runs_in_int8_throughout(quantized, images, rounding, correction):
    options = {"adaptive_rounding": rounding, "bias_correction": correction}
    outcome = quantized(Residual(), images(2, 3, 16, 16, count=9), **options)

    assert outcome.left_in_float() == []
    assert outcome.ledger.macs().fraction == 1.0
    assert outcome.steps_apart() <= 200  # float output, on inputs that may be a step apart
    assert outcome.sqnr > 25


def test_the_lowered_model_keeps_its_values_in_int8_between_kernels(quantized, images):
    outcome = quantized(Residual(), images(2, 3, 16, 16))
    values = {}

    class Note(torch.fx.Interpreter):
        def run_node(self, node):
            values[node.name] = super().run_node(node)
            return values[node.name]

    Note(outcome.lowered).run(torch.randn(2, 3, 16, 16))
    dtypes = [value.dtype for value in values.values()]

    assert dtypes.count(torch.quint8) > len(dtypes) / 2
    assert dtypes.count(torch.float32) <= 4  # input, output node, what the head is given and gives


def fingerprint(model: nn.Module):
    """Everything a user could see change in a model."""
    tensors = {
        name: (id(tensor), tensor.requires_grad, tensor.detach().clone())
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]
    }
    tree = {
        name: (id(module), type(module), module.training, sorted(vars(module)), repr(module))
        for name, module in model.named_modules()
    }
    return tensors, tree


@pytest.mark.parametrize("options", [{}, {"reference": True}, {"bias_correction": False}], ids=str)
def test_the_users_model_is_untouched(images, options):
    model = Residual().eval()
    data = images(2, 3, 16, 16)
    data_before, (tensors_before, tree_before) = copy.deepcopy(data), fingerprint(model)

    core.quantize(model, "fbgemm", calibration=data, **options)
    tensors, tree = fingerprint(model)

    assert tree == tree_before
    assert list(tensors) == list(tensors_before)
    for name, (identity, grad, value) in tensors.items():
        assert (identity, grad) == tensors_before[name][:2]
        assert torch.equal(value, tensors_before[name][2])
    assert all(map(torch.equal, data, data_before))


def test_training_the_users_model_does_not_move_the_quantized_one(quantized, images):
    outcome = quantized(Residual(), images(2, 3, 16, 16))
    x = torch.randn(2, 3, 16, 16)
    before = [outcome.lowered(x), outcome.reference(x)]
    with torch.no_grad():
        for tensor in [*outcome.model.parameters(), *outcome.model.buffers()]:
            tensor.add_(1)

    assert all(map(torch.equal, before, [outcome.lowered(x), outcome.reference(x)]))


def test_quantizing_twice_gives_the_same(images):
    model, data = Residual().eval(), images(2, 3, 16, 16)
    one, other = (core.quantize(model, "fbgemm", calibration=data) for _ in range(2))

    assert torch.equal(one(data[0]), other(data[0]))


def test_without_calibration_data_it_says_what_to_pass():
    with pytest.raises(core.errors.CalibrationError, match="pass calibration="):
        core.quantize(nn.Linear(2, 2).eval(), "fbgemm", mode="static")


@pytest.mark.parametrize("data", [[], iter([])], ids=["list", "generator"])
def test_empty_calibration_data_are_refused(data):
    with pytest.raises(core.errors.CalibrationError, match="calibration data are empty"):
        core.quantize(nn.Linear(2, 2).eval(), "fbgemm", calibration=data)


def test_a_limit_of_zero_leaves_nothing_to_calibrate_with(images):
    with pytest.raises(core.errors.CalibrationError, match="calibration data are empty"):
        core.quantize(nn.Linear(2, 2).eval(), "fbgemm", calibration=images(2, 2), limit=0)


def test_a_used_up_generator_is_refused_as_empty(images):
    data = (each for each in images(4, 2))
    core.quantize(nn.Linear(2, 2).eval(), "fbgemm", calibration=data)

    with pytest.raises(core.errors.CalibrationError, match="can be used only once"):
        core.quantize(nn.Linear(2, 2).eval(), "fbgemm", calibration=data)


class Named(nn.Module):
    """Two inputs, one of which has a default."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 4), nn.Linear(6, 4)

    def forward(self, x, y=None):
        return self.first(x) if y is None else self.first(x) + self.second(y)


PAIRS = [(torch.ones(3, 6) * i / 5, torch.ones(3, 6) * (5 - i) / 5) for i in range(6)]


@pytest.mark.parametrize(
    ("data", "options"),
    in_words(
        [
            ("tuples", PAIRS, {}),
            ("lists", [list(pair) for pair in PAIRS], {}),
            ("dicts", [{"x": x, "y": y} for x, y in PAIRS], {}),
            ("a generator", (pair for pair in PAIRS), {}),
            ("tuples and labels", [(pair, 1) for pair in PAIRS], {"has_labels": True}),
            ("dicts and labels", [({"y": y, "x": x}, 1) for x, y in PAIRS], {"has_labels": True}),
            ("more than the limit", [*PAIRS, (PAIRS[0][0] * 1000, PAIRS[0][1])], {"limit": 6}),
        ]
    ),
)
def test_calibration_data_come_in_any_of_these_forms(data, options):
    model = Named().eval()
    want = core.quantize(model, "fbgemm", calibration=PAIRS)
    have = core.quantize(model, "fbgemm", calibration=data, **options)

    assert torch.equal(have(*PAIRS[1]), want(*PAIRS[1]))


def test_inputs_that_are_left_out_keep_their_defaults(quantized, images):
    outcome = quantized(Named(), images(3, 6))

    assert [entry.path for entry in outcome.ledger] == ["first"]
    assert outcome.sqnr > 30


def test_labels_without_has_labels_are_explained():
    data = [(torch.randn(3, 6), 1) for _ in range(3)]

    with pytest.raises(core.errors.FusionError, match=r"do not fit Sequential\.forward"):
        core.quantize(nn.Sequential(nn.Linear(6, 4)).eval(), "fbgemm", calibration=data)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_values_that_are_not_finite_name_the_layer(bad):
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))

        def forward(self, x):
            return self.body(x)

    model = Net().eval()
    nn.init.constant_(model.body[0].bias, bad)

    with pytest.raises(core.errors.NonFiniteActivationError, match=r"the output of body\.0"):
        core.quantize(model, "fbgemm", calibration=[torch.randn(2, 4)])


def test_no_progress_bar_outside_a_terminal(capfd, images):
    core.quantize(nn.Linear(10, 2).eval(), "fbgemm", calibration=images(2, 10))

    assert capfd.readouterr() == ("", "")


def test_a_progress_bar_on_request(capfd, images):
    core.quantize(nn.Linear(10, 2).eval(), "fbgemm", calibration=images(2, 10), progress=True)
    out, shown = capfd.readouterr()

    assert out == ""
    assert "Calibrating" in shown
    assert "Refining" in shown


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_a_model_of_another_float_type_is_refused_by_name(dtype):
    model = nn.Sequential(nn.Linear(2, 2)).eval().to(dtype)

    with pytest.raises(core.errors.UnsupportedModelError, match=f"0.weight is {dtype}"):
        core.quantize(model, "fbgemm", calibration=[torch.randn(2, 2)])


def test_a_model_in_training_mode_is_refused_by_name():
    model = nn.Sequential(nn.Linear(2, 2), nn.Dropout()).eval()
    model[1].train()

    with pytest.raises(core.errors.TrainingModeError, match=r"in training mode: 1;.*eval\(\)"):
        core.quantize(model, "fbgemm", calibration=[torch.randn(2, 2)])


def test_an_unknown_backend_names_those_that_exist():
    with pytest.raises(core.errors.UnknownBackendError, match=r"'fbgem'.*Did you mean 'fbgemm'"):
        core.quantize(nn.Linear(2, 2).eval(), "fbgem", calibration=[torch.randn(2, 2)])


class Tagger(nn.Module):
    """Words in, a score for each tag out: all that needs no calibration data."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(50, 16)
        self.memory = nn.LSTM(16, 16, batch_first=True)
        self.tags = nn.Linear(16, 4)

    def forward(self, words):
        states, _ = self.memory(self.words(words))
        return self.tags(states)


WORDS = torch.arange(20).reshape(2, 10)


@pytest.mark.parametrize("backend", ["fbgemm", "qnnpack"])
def test_without_data_the_best_mode_that_needs_none_is_taken_and_named(backend):
    torch.manual_seed(0)
    model = Tagger().eval()
    quantized = core.quantize(model, backend, example_inputs=WORDS)
    ledger = core.report(quantized).ledger

    assert "no calibration data: mode dynamic, which needs none" in ledger.notes
    assert {line.path: (line.status.value, line.mode) for line in ledger if line.pattern} == {
        "words": ("int8", "weight only"),
        "memory": ("int8", "dynamic"),
        "tags": ("int8", "dynamic"),
    }
    assert torch.allclose(quantized(WORDS), model(WORDS), atol=0.05)


def test_not_even_an_example_is_needed():
    torch.manual_seed(0)
    model = Tagger().eval()
    quantized = core.quantize(model, "fbgemm")

    ledger = core.report(quantized).ledger
    assert {line.path for line in ledger if line.status is core.Status.INT8} == {
        *("words", "memory", "tags")
    }
    assert torch.allclose(quantized(WORDS), model(WORDS), atol=0.05)


def test_static_quantization_without_data_is_an_error_that_names_the_modes_without():
    with pytest.raises(core.errors.CalibrationError, match="mode='dynamic' or mode='weight_only'"):
        core.quantize(Tagger().eval(), "fbgemm", mode="static", example_inputs=WORDS)


def test_training_is_not_done_by_quantize():
    with pytest.raises(core.errors.QConfigError, match="quantize does not train"):
        core.quantize(Tagger().eval(), "fbgemm", mode="qat", example_inputs=WORDS)


def test_data_refine_a_dynamic_model():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 8)).eval()
    # Inputs that vary in a few directions only leave room for choosing codes.
    directions = torch.randn(4, 32)
    data = [torch.randn(64, 4) @ directions for _ in range(2)]
    rough = core.quantize(model, "fbgemm", mode="dynamic", example_inputs=data[0])
    refined = core.quantize(model, "fbgemm", mode="dynamic", calibration=data)
    new = torch.randn(256, 4) @ directions
    errors = [(each(new) - model(new)).square().mean() for each in (refined, rough)]

    assert errors[0] < errors[1]


def test_a_qconfig_may_be_given_by_the_name_of_a_preset():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8)).eval()
    x = torch.randn(16, 8)
    made = core.quantize(model, "fbgemm", calibration=[x], qconfig="per_tensor", reference=True)

    assert made.get_submodule("0").axis is None
    with pytest.raises(core.errors.UnknownPresetError, match="per_tensor"):
        core.quantize(model, "fbgemm", calibration=[x], qconfig="per_tensr")
