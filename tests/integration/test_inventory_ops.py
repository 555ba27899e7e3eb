"""What each operation becomes at every stage; beside each row, the upstream test that it restates."""

from __future__ import annotations

import operator

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  the name everyone knows it by
from torch import nn

import fusion_core as core

ONE_STEP = 1.001
"""And what float32 loses in saying so."""

ACTIVATIONS = {
    "": None,
    "nn.ReLU": nn.ReLU,
    "F.relu": lambda: F.relu,
    "relu_": lambda: lambda y: F.relu(y, inplace=True),
}
CONVOLUTIONS = {
    1: (nn.Conv1d, F.conv1d, (4, 3, 2), (2, 3, 8)),
    2: (nn.Conv2d, F.conv2d, (4, 3, 2, 2), (2, 3, 6, 6)),
    3: (nn.Conv3d, F.conv3d, (4, 3, 2, 2, 2), (2, 3, 4, 4, 4)),
}


class Layer(nn.Module):
    """A weighted module or function, and an activation or none."""

    def __init__(self, layer, activation: str, *, function=None) -> None:
        super().__init__()
        self.weight, self.bias = layer.weight, layer.bias
        self.layer = layer if function is None else None
        self.function = function
        build = ACTIVATIONS[activation]
        self.activation = build() if build else nn.Identity()

    def forward(self, x):
        if self.layer is None:
            return self.activation(self.function(x, self.weight, self.bias))
        return self.activation(self.layer(x))


def data(*shape, count=3):
    return [torch.randn(*shape) for _ in range(count)]


def everything():
    """One qconfig for all that the backend can do, whatever its defaults leave in float."""
    default = core.get_backend("fbgemm").qconfig_mapping.global_qconfig
    return core.QConfigMapping(global_qconfig=default)


def half():
    return core.get_backend("fbgemm").qconfig_mappings["float16"]


LINEAR = {
    # What gives float at the end of a model does not round it.
    "static": (". L", "q dq L", "q dq PackedLinearToFloat"),
    "qat": (". L", "q dq L", "q dq PackedLinearToFloat"),
    "dynamic": (". L", "qd dq L", "qd dq FloatLinear"),
    "half": ("L", "L", "FloatLinear"),
}


# test_linear_module, test_functional_linear, test_linear_dynamic_fp16, test_dynamic_with_fusion
@pytest.mark.parametrize("function", [None, F.linear], ids=["module", "function"])
@pytest.mark.parametrize("mode", LINEAR)
@pytest.mark.parametrize(("activation", "bias"), [("", True), ("nn.ReLU", False), ("relu_", True)])
def test_a_linear_layer_at_every_stage(stages, mode, function, activation, bias):
    model = Layer(nn.Linear(8, 4, bias=bias), activation, function=function)
    mapping = half() if mode == "half" else None
    found = stages(model, data(4, 8), None if mode == "half" else mode, mapping)
    name = "LinearReLU" if activation else "Linear"

    assert (found.observed, found.converted, found.packed) == tuple(
        line.replace("L", name, 1) if "L" in line.split() else line for line in LINEAR[mode]
    )
    assert found.steps_apart() <= ONE_STEP
    assert mode == "qat" or found.kept() > 25


# test_conv_module, test_functional_conv, test_quantized_conv_relu
@pytest.mark.parametrize("spelling", ["module", "function"])
@pytest.mark.parametrize("mode", ["static", "qat"])
@pytest.mark.parametrize(
    ("dim", "activation", "bias"),
    [
        *((dim, "nn.ReLU", True) for dim in (1, 2, 3)),
        *((2, each, False) for each in ("", "F.relu")),
    ],
)
def test_a_convolution_at_every_stage(stages, dim, activation, bias, mode, spelling):
    kind, function, weight, shape = CONVOLUTIONS[dim]
    layer = kind(weight[1], weight[0], 2, bias=bias)
    model = Layer(layer, activation, function=function if spelling == "function" else None)
    found = stages(model, data(*shape), mode)
    name = f"ConvReLU{dim}d" if activation else f"Conv{dim}d"

    assert found.observed == f". {name} ."
    assert found.converted == f"q dq {name} q dq"
    assert found.packed == "q PackedConv dq"
    assert found.steps_apart() <= ONE_STEP
    assert mode == "qat" or found.kept() > 25


class Two(nn.Module):
    """Two convolutions of one input, and a function of their results and of the input."""

    def __init__(self, function, layer=None) -> None:
        super().__init__()
        self.one, self.other = nn.Conv2d(3, 4, 1), nn.Conv2d(3, 4, 1)
        self.function, self.layer = function, layer

    def forward(self, x):
        given = (self.one(x), self.other, x)
        return self.function(*given) if self.layer is None else self.function(*given, self.layer)


def norm(channels):
    made = nn.BatchNorm2d(channels)
    nn.init.uniform_(made.running_mean, -0.5, 0.5)
    nn.init.uniform_(made.running_var, 0.5, 2.0)
    return made


BOTH = ". Conv2d . Conv2d . {} ."
ALONE = ". Conv2d . {} ."
OPERATIONS = {
    # test_add, test_mul, test_quantized_add_qat, test_quantized_mul_qat
    "y + z": (lambda y, o, x: y + o(x), BOTH, "add", "Binary"),
    "y += z": (lambda y, o, x: operator.iadd(y, o(x)), BOTH, "add", "Binary"),
    "y * z": (lambda y, o, x: y * o(x), BOTH, "mul", "Binary"),
    "y + 2.5": (lambda y, _o, _x: y + 2.5, ALONE, "add", "Elementwise"),
    "2.5 + y": (lambda y, _o, _x: 2.5 + y, ALONE, "add", "Elementwise"),
    "y *= -2.5": (lambda y, _o, _x: operator.imul(y, -2.5), ALONE, "mul", "Elementwise"),
    # test_add_relu, test_mul_relu
    "relu(y + z)": (lambda y, o, x: F.relu(y + o(x)), BOTH, "add relu", "Binary"),
    "relu(y * z)": (lambda y, o, x: torch.relu(y * o(x)), BOTH, "mul relu", "Binary"),
    "nn.ReLU(y + 1)": (lambda y, _o, _x, r: r(y + 1.0), ALONE, "add ReLU", "Elementwise"),
    # test_cat
    "cat": (lambda y, o, x: torch.cat([y, o(x)], 1), BOTH, "cat", "cat"),
    "stack": (lambda y, o, x: torch.stack([y, o(x)]), BOTH, "stack", "stack"),
    "cat twice": (lambda y, _o, _x: torch.cat([y, y], 1), ALONE, "cat", "cat"),
    # test_qmatmul, test_bmm
    "matmul": (lambda y, o, x: torch.matmul(y, o(x)), BOTH, "matmul", "Between"),
    # test_hardswish, test_elu, test_leaky_relu, test_prelu
    "F.hardswish": (lambda y, _o, _x: F.hardswish(y), ALONE, "hardswish", "Elementwise"),
    "F.elu": (lambda y, _o, _x: F.elu(y, 0.7), ALONE, "elu", "Elementwise"),
    "F.leaky_relu": (lambda y, _o, _x: F.leaky_relu(y, 0.2), ALONE, "leaky_relu", "Elementwise"),
    "leaky_relu_": (lambda y, _o, _x: F.leaky_relu_(y, 0.2), ALONE, "leaky_relu", "Elementwise"),
    # test_layer_norm, test_instance_norm
    "F.layer_norm": (lambda y, _o, _x: F.layer_norm(y, [6, 6]), ALONE, "layer_norm", "Between"),
    "F.instance_norm": (lambda y, _o, _x: F.instance_norm(y), ALONE, "instance_norm", "Between"),
    # test_general_shape_ops of later revisions: narrow, pixel_shuffle, channel_shuffle
    "narrow": (lambda y, _o, _x: y.narrow(1, 0, 2), ALONE, "narrow", "narrow"),
    "unshuffle": (lambda y, _o, _x: F.pixel_unshuffle(y, 2), ALONE, *("pixel_unshuffle",) * 2),
    "F.channel_shuffle": (
        lambda y, _o, _x: torch.channel_shuffle(y, 2),
        ALONE,
        *("channel_shuffle",) * 2,
    ),
}
MODULES = {
    "Hardswish": (nn.Hardswish(inplace=True), "Elementwise"),
    "ELU": (nn.ELU(0.7, inplace=True), "Elementwise"),
    "LeakyReLU": (nn.LeakyReLU(0.2), "Elementwise"),
    "PReLU": (nn.PReLU(), "Elementwise"),
    "PReLU of channels": (nn.PReLU(4), "Elementwise"),
    "LayerNorm": (nn.LayerNorm(6), "Between"),
    "InstanceNorm2d": (nn.InstanceNorm2d(4, affine=True), "Between"),
    "GroupNorm": (nn.GroupNorm(2, 4), "Between"),
    "ChannelShuffle": (nn.ChannelShuffle(2), "ChannelShuffle"),
    "PixelShuffle": (nn.PixelShuffle(2), "PixelShuffle"),
    "PixelUnshuffle": (nn.PixelUnshuffle(2), "PixelUnshuffle"),
}


IN_TRAINING = ("y + z", "y * z", "relu(y + z)", "nn.ReLU(y + 1)", "cat", "F.elu", "matmul")


@pytest.mark.parametrize(
    ("name", "mode"),
    [*((each, "static") for each in OPERATIONS), *((each, "qat") for each in IN_TRAINING)],
)
def test_an_operation_at_every_stage(stages, name, mode):
    function, line, what, kernel = OPERATIONS[name]
    layer = nn.ReLU() if name.startswith("nn.") else None
    found = stages(Two(function, layer), data(2, 3, 6, 6), mode, everything())
    convolutions = line.count("Conv2d")
    operands = "q dq dq" if convolutions > 1 or name == "cat twice" else "q dq"

    assert found.observed == line.format(what)
    assert found.converted == f"{'q dq Conv2d ' * convolutions}{operands} {what} q dq"
    assert found.packed == f"q {'PackedConv ' * convolutions}{kernel} dq"
    assert found.steps_apart() <= 2 * ONE_STEP  # convolutions may be a step apart themselves
    assert mode == "qat" or found.kept() > 25


@pytest.mark.parametrize("name", MODULES)
def test_a_module_at_every_stage(stages, name):
    layer, kernel = MODULES[name]
    kind = type(layer).__name__
    found = stages(Two(lambda y, _o, _x, m: m(y), layer), data(2, 3, 6, 6), None, everything())

    assert found.observed == f". Conv2d . {kind} ."
    assert found.converted == f"q dq Conv2d q dq {kind} q dq"
    assert found.packed == f"q PackedConv {kernel} dq"
    assert found.steps_apart() <= 2 * ONE_STEP
    assert found.kept() > 25


# test_qbatch_norm, test_qbatch_norm_relu
@pytest.mark.parametrize("rectified", [False, True])
def test_a_batch_norm_that_no_layer_takes_up_has_a_kernel(stages, rectified):
    def function(y, _o, _x, b):
        z = b(F.max_pool2d(y, 2))
        return F.relu(z) if rectified else z

    found = stages(Two(function, norm(4)), data(2, 3, 6, 6), None, everything())
    name = "BatchNormReLU2d" if rectified else "BatchNorm2d"

    assert found.observed == f". Conv2d . max_pool2d . {name} ."
    assert found.packed == "q PackedConv max_pool2d BatchNorm dq"
    assert found.kept() > 25


# test_clamp
def test_a_chain_of_clamps_stays_in_codes(stages):
    def function(y, _o, _x):
        y = F.relu6(F.hardtanh(F.max_pool2d(y, 1), -1.5, 1.5))
        return y.clamp(-2.5, 2.5).clamp_min(-2).clamp(max=2)

    found = stages(Two(function), data(2, 3, 6, 6), None, everything())

    assert found.left_in_float() == []
    assert (found.packed.split().count("q"), found.packed.split().count("dq")) == (1, 1)
    assert found.converted.count(" q dq") == 7
    assert found.steps_apart() <= ONE_STEP


def fixed(y, _o, _x, layers):
    y = layers[0](torch.sigmoid(y)).sigmoid().sigmoid_()
    y = layers[1](torch.tanh(y)).tanh().tanh_()
    return layers[3](layers[2](F.hardsigmoid(y)))


# test_fixed_qparams_ops
@pytest.mark.parametrize("mode", ["static", "qat"])
def test_what_has_a_fixed_range_is_measured_once_and_never_rounded_twice(stages, mode):
    layers = nn.ModuleList([nn.Sigmoid(), nn.Tanh(), nn.Hardsigmoid(), nn.Softmax(1)])
    found = stages(Two(fixed, layers), data(2, 3, 6, 6), mode, everything())

    assert found.converted.split().count("q") == found.converted.split().count("dq") == 13
    assert (found.packed.split().count("q"), found.packed.split().count("dq")) == (1, 1)
    assert found.left_in_float() == []
    assert found.steps_apart() <= 2 * ONE_STEP


RANGES = {
    "sigmoid": (torch.sigmoid, 1 / 256, 0),
    "hardsigmoid": (F.hardsigmoid, 1 / 256, 0),
    "softmax": (lambda x: F.softmax(x, -1), 1 / 256, 0),
    "tanh": (torch.tanh, 2 / 256, 128),
}


# test_getitem, which upstream pins the fault of quantizing the input in the output's range;
# gap: float op -> sigmoid numerics; upstream table 4
@pytest.mark.parametrize("name", RANGES)
def test_the_input_of_a_fixed_range_is_measured_and_its_output_is_not(stages, name):
    function, scale, zero_point = RANGES[name]

    class Net(nn.Module):
        def forward(self, x):
            return function(x)

    found = stages(Net(), [3 * each for each in data(8, 9)], None, everything())
    read, given = found.observers()

    assert [float(each) for each in given.calculate_qparams()] == [scale, zero_point]
    assert read.calculate_qparams()[0] > 2 / 255
    assert found.left_in_float() == []
    assert found.kept() > 25


SETS = {
    "cat": lambda y, s: torch.cat([s, y], 1),
    "cat behind": lambda y, s: torch.cat([y, s], 1),
    "cat of both ranges": lambda y, s: torch.cat([s, y.tanh()], 1),
    "cat of a cat": lambda y, s: torch.cat([torch.cat([s, s], 1), y], 1),
    "cat with a float": lambda y, s: torch.cat([s, torch.cumsum(y, 3)], 1),
    "stack": lambda y, s: torch.stack([s, y * 3]),
    "pad": lambda _, s: F.pad(s, (1, 1), value=3.0),
    "pad below": lambda _, s: F.pad(s, (1, 1), value=-1.0),
    "clamp": lambda _, s: s.clamp_min(2.0),
    "divisor": lambda _, s: F.avg_pool2d(s, 2, divisor_override=1),
}


# test_cat; what the upstream's rule of sharing forces into the first operand's range
@pytest.mark.parametrize("name", SETS)
def test_a_fixed_range_is_not_forced_on_what_leaves_it(stages, name):
    function = SETS[name]
    model = Two(lambda y, _o, _x: function(4 * y, y.sigmoid()))

    assert stages(model, data(2, 3, 6, 6), None, everything()).kept() > 22


# test_cat, test_general_value_ops
def test_what_stays_in_a_fixed_range_is_not_rounded_again(stages):
    def function(y, _o, _x):
        s = torch.cat([y.sigmoid(), (2 * y).sigmoid()], 1)
        return F.max_pool2d(s, 2).flatten(1).relu().reshape(-1, 6)

    found = stages(Two(function), data(2, 3, 6, 6), None, everything())

    assert (found.packed.split().count("q"), found.packed.split().count("dq")) == (1, 1)


def shapes(y, _o, _x):
    y = y.contiguous().unsqueeze(0).squeeze(0).permute(0, 2, 3, 1)
    y = torch.transpose(y, 1, 2).reshape(2, 6, -1).transpose(1, 2)
    y = torch.unsqueeze(y, -1).repeat(1, 1, 1, 2).repeat_interleave(2, 0)
    return torch.flatten(torch.squeeze(y), 1).detach().view(4, -1).reshape((4, -1, 6))


# test_general_shape_ops
def test_a_chain_of_moves_is_quantized_once(stages):
    found = stages(Two(shapes), data(2, 3, 6, 6), None, everything())

    assert found.left_in_float() == []
    assert (found.packed.split().count("q"), found.packed.split().count("dq")) == (1, 1)
    assert found.steps_apart() <= ONE_STEP


def values(y, _o, _x, pools):
    y = F.avg_pool2d(pools[0](F.max_pool2d(F.dropout(y, training=False), 2, 1)), 2, 1)
    y = F.interpolate(pools[1](y), scale_factor=2)
    return F.adaptive_avg_pool2d(y, 3).mean((2, 3))


# test_general_value_ops, test_ave_pool_with_custom_cfg
@pytest.mark.parametrize("backend", ["fbgemm", "qnnpack"])
def test_a_chain_of_pools_is_quantized_once(stages, backend):
    pools = nn.ModuleList([nn.MaxPool2d(2, 1), nn.AdaptiveAvgPool2d(2)])
    found = stages(Two(values, pools), data(2, 3, 6, 6), backend=backend)

    assert found.left_in_float() == []
    assert (found.packed.split().count("q"), found.packed.split().count("dq")) == (1, 1)


# test_float_functional
def test_functions_of_the_eager_flow_are_what_they_call(stages):
    def function(y, o, x, f):
        y = f.add_relu(f.mul(f.add(y, o(x)), y), f.cat([y], 1))
        return f.mul_scalar(f.add_scalar(y, 2.0), 0.5)

    found = stages(
        Two(function, torch.ao.nn.quantized.FloatFunctional()), data(2, 3, 6, 6), None, everything()
    )

    assert found.left_in_float() == []
    assert (
        found.packed
        == "q PackedConv PackedConv Binary Binary cat Binary Elementwise Elementwise dq"
    )
    assert found.kept() > 25


# test_sub_scalar: each of the four has a range of its own, and codes are what lies between them
def test_sums_with_numbers_follow_each_other_in_codes(stages):
    found = stages(Two(lambda y, _o, _x: y + 1 - 1 + 3 - 4), data(2, 3, 6, 6), None, everything())

    assert found.packed == "q PackedConv Elementwise Elementwise Elementwise Elementwise dq"
    assert found.kept() > 25


# test_add_relu_multiple_uses_of_relu, test_ref_pattern_multi_use
def test_one_relu_module_behind_two_sums_is_taken_along_by_both(stages):
    found = stages(
        Two(lambda y, o, x, r: r(r(y + o(x)) + y), nn.ReLU()), data(2, 3, 6, 6), None, everything()
    )

    assert found.packed == "q PackedConv PackedConv Binary Binary dq"
    assert found.converted.count("add ReLU") == 2


FLOAT = {
    # test_bmm_int_reference, test_gelu_normal, test_silu_reference, test_mish_reference, test_sum
    "gelu": lambda y, _o, _x: F.gelu(y),
    "silu": lambda y, _o, _x: F.silu(y),
    "mish": lambda y, _o, _x: F.mish(y),
    "sum": lambda y, _o, _x: y.sum(1),
    # test_sub, test_div
    "sub": lambda y, o, x: y - o(x),
    "div": lambda y, o, x: y / (o(x).abs() + 1),
    # test_boolean_tensor, test_masked_fill
    "masked_fill": lambda y, _o, x: y.masked_fill(x[:, :1] > 0, 0.5),
    "where": lambda y, o, x: torch.where(x[:, :1] > 0, y, o(x)),
}


@pytest.mark.parametrize("name", FLOAT)
def test_what_no_kernel_takes_gets_float_and_a_reason(stages, name):
    found = stages(Two(FLOAT[name]), data(2, 3, 6, 6), None, everything())

    assert found.left_in_float()
    assert not any(line.endswith(": None") for line in found.left_in_float())
    assert found.kept() > 25


# test_chunk, test_getitem
@pytest.mark.parametrize(
    "function",
    [
        lambda y, _o, _x: y.chunk(2, 1)[0] + torch.chunk(y, 2, dim=1)[1],
        lambda y, o, x: y[:, 1:3] + o(x)[:, :2],
        lambda y, _o, _x: y.split(2, 1)[1] * 2.0,
    ],
    ids=["chunk", "slice", "split"],
)
def test_pieces_of_a_quantized_tensor_are_right(stages, function):
    assert stages(Two(function), data(2, 3, 6, 6), None, everything()).kept() > 25


# test_copy_node_fp32_input
def test_a_pool_of_floats_alone_is_not_worth_rounding(stages):
    found = stages(nn.Sequential(nn.MaxPool2d(2)), data(2, 3, 6, 6), None, everything())

    assert found.observed == found.converted == found.packed == "MaxPool2d"


# test_multiple_qconfigs_for_single_value
def test_a_value_read_in_codes_and_in_float_has_an_observer_for_the_codes_alone(stages):
    dynamic = core.get_backend("fbgemm").qconfig_mappings["dynamic"]
    mapping = core.get_backend("fbgemm").qconfig_mapping
    mapping.set_module_name("1", dynamic.object_type_qconfigs[nn.Linear])
    found = stages(nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 4)), data(4, 8), None, mapping)

    assert found.observed == ". Linear . Linear"
    assert found.converted == "q dq Linear qd dq Linear"


# test_norm_weight_bias
@pytest.mark.parametrize(
    "function",
    [
        lambda x, w, b: F.layer_norm(x, (6,), w, b),
        lambda x, w, b: F.group_norm(x.movedim(-1, 1), 2, w, b),
        lambda x, w, b: F.instance_norm(x.movedim(-1, 1), weight=w, bias=b),
    ],
    ids=["layer", "group", "instance"],
)
def test_weight_and_bias_of_a_norm_are_not_rounded(stages, function):
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight, self.bias = nn.Parameter(torch.rand(6)), nn.Parameter(torch.rand(6))

        def forward(self, x):
            return function(x, self.weight, self.bias)

    found = stages(Net(), data(2, 3, 5, 6), None, everything())

    assert len(found.observers()) == 2
    assert found.kept() > 25
