"""One operation, every spelling of it."""

# ruff: noqa: PLW0108  a trace needs functions in Python

from __future__ import annotations

import operator

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import fx, nn

from fusion_core.patterns import Operator, operation_of
from fusion_core.patterns.aliases import SPELLINGS, Operation, as_operator, ops

aten = torch.ops.aten
OVERLOAD = type(aten.relu.default)

# With defaults only: these take one float tensor and give one.
UNARY = (
    *("relu", "relu6", "hardtanh", "sigmoid", "hardsigmoid", "logsigmoid", "tanh", "elu", "celu"),
    *("selu", "leaky_relu", "hardswish", "silu", "gelu", "mish", "softplus", "softsign", "neg"),
    *("abs", "exp", "log", "sqrt", "rsqrt", "mean", "sum", "max", "min", "squeeze", "contiguous"),
    *("clone", "detach", "identity", "glu", "argmax", "amax", "amin"),
)
BINARY = (
    *("add", "sub", "rsub", "mul", "div", "floor_divide", "remainder", "pow", "maximum"),
    *("minimum", "matmul"),
)
# Others by the arguments behind their first tensor, which are what a module is made with, and by the
# shape of that tensor where it is not (2, 4, 6, 6).
SETTINGS = {
    "clamp": ((-0.3, 0.4), None),
    "clamp_min": ((-0.3,), None),
    "clamp_max": ((0.4,), None),
    "softmax": ((1,), None),
    "log_softmax": ((1,), None),
    "prelu": ((torch.tensor([0.2]),), None),
    "bmm": ((torch.randn(2, 6, 3),), (2, 4, 6)),
    "mm": ((torch.randn(4, 3),), (2, 4)),
    "addmm": ((torch.randn(2, 4), torch.randn(4, 4)), (2, 4)),
    "scaled_dot_product_attention": ((torch.randn(2, 5, 6), torch.randn(2, 5, 6)), (2, 4, 6)),
    "max_pool1d": ((2,), (2, 4, 6)),
    "max_pool2d": ((2,), None),
    "max_pool3d": ((2,), (2, 4, 6, 6, 6)),
    "avg_pool1d": ((2,), (2, 4, 6)),
    "avg_pool2d": ((2,), None),
    "avg_pool3d": ((2,), (2, 4, 6, 6, 6)),
    "adaptive_avg_pool1d": ((2,), (2, 4, 6)),
    "adaptive_avg_pool2d": (((2, 2),), None),
    "adaptive_avg_pool3d": (((2, 2, 2),), (2, 4, 6, 6, 6)),
    "adaptive_max_pool1d": ((2,), (2, 4, 6)),
    "adaptive_max_pool2d": ((2,), None),
    "adaptive_max_pool3d": ((2,), (2, 4, 6, 6, 6)),
    "layer_norm": (((6, 6),), None),
    "rms_norm": (((6, 6),), None),
    "chunk": ((2, 1), None),
    "split": (([1, 3], 1), None),
    "unbind": ((1,), None),
    "narrow": ((1, 0, 2), None),
    "flatten": ((1,), None),
    "unflatten": ((1, (2, 2)), None),
    "reshape": (((2, -1),), None),
    "permute": (((0, 2, 3, 1),), None),
    "transpose": ((1, 2), None),
    "movedim": (((1, 2), (2, 1)), None),
    "unsqueeze": ((1,), None),
    "expand": (((2, 4, 6, 6),), (2, 1, 6, 6)),
    "repeat": (((1, 2, 1, 1),), None),
    "repeat_interleave": ((2, 1), None),
    "roll": (((1,), (1,)), None),
    "flip": (((1,),), None),
    "pixel_shuffle": ((2,), None),
    "pixel_unshuffle": ((2,), None),
    "channel_shuffle": ((2,), None),
    "masked_fill": ((torch.randn(2, 4, 6, 6) > 0, 0.5), None),
}
# These few do not fit the rules above: a list of tensors, a condition first, a setting that a
# module and a function take in another order or form, a random result.
APART = {"cat", "stack", "where", "pad", "interpolate", "group_norm", "instance_norm", "dropout"}

# An overload names the form of an argument: these take another one than the others of their row.
OTHER_FORM = {
    **dict.fromkeys(("squeeze.dims", "squeeze_.dims", "mean.dim", "sum.dim_IntList"), ([1],)),
    **dict.fromkeys(("squeeze.dim", "squeeze_.dim"), (1,)),
    **dict.fromkeys(("movedim.int", "moveaxis.int"), (1, 2)),
    "split.Tensor": (2, 2),
    "repeat_interleave.self_Tensor": (torch.tensor([2, 1, 0, 2]), 2),
}


def each_of(names, *, but=(), only=None):
    cases = [(name, each) for name in names for each in SPELLINGS[name]]
    return [
        pytest.param(name, each, id=f"{name}: {as_operator(each)}")
        for name, each in cases
        if form(each) not in but and (only is None or form(each) in only)
    ]


def form(spelling):
    """``"squeeze.dims"`` of an overload, else nothing."""
    return str(spelling).removeprefix("aten.") if isinstance(spelling, OVERLOAD) else ""


def outcome(spelling, first, *rest):
    """What a call of ``spelling`` gives; a module is made of the further arguments."""
    first = first.clone()
    rest = [each.clone() if isinstance(each, torch.Tensor) else each for each in rest]
    if isinstance(spelling, str):
        return getattr(first, spelling)(*rest)
    return spelling(*rest)(first) if isinstance(spelling, type) else spelling(first, *rest)


def positive(*shape):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(0)) + 0.1


def signed(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(("name", "spelling"), each_of(UNARY, but=OTHER_FORM))
def test_every_spelling_of_a_unary_operation_computes_the_same(name, spelling):
    x = positive(2, 4, 6) if name in {"log", "sqrt", "rsqrt"} else signed(2, 4, 6)
    reference = getattr(torch, name, None) or getattr(F, name, torch.clone)
    torch.testing.assert_close(outcome(spelling, x), reference(x), rtol=0, atol=0)


@pytest.mark.parametrize(("name", "spelling"), each_of(BINARY, but=("pow.Scalar",)))
def test_every_spelling_of_a_binary_operation_computes_the_same(name, spelling):
    x, y = positive(4, 4), positive(4, 4) + 1
    if form(spelling).endswith("Scalar"):
        y = 1.5
    wanted = getattr(torch, name)(x, y)
    torch.testing.assert_close(outcome(spelling, x, y), wanted, rtol=0, atol=0)


def test_a_number_may_be_raised_to_a_tensor():
    assert torch.equal(aten.pow.Scalar(1.5, positive(4)), torch.pow(1.5, positive(4)))


@pytest.mark.parametrize(("name", "spelling"), each_of(SETTINGS, but=OTHER_FORM))
def test_every_spelling_of_an_operation_with_settings_computes_the_same(name, spelling):
    settings, shape = SETTINGS[name]
    x = signed(*(shape or (2, 4, 6, 6)))
    if form(spelling).endswith(".Tensor"):
        settings = tuple(torch.tensor(v) if isinstance(v, float) else v for v in settings)
    room = next(each for each in (F, torch, aten) if hasattr(each, name))
    wanted = getattr(room, name)(x, *settings)
    torch.testing.assert_close(outcome(spelling, x, *settings), wanted, rtol=0, atol=0)


@pytest.mark.parametrize(("name", "spelling"), each_of(SPELLINGS, only=OTHER_FORM))
def test_an_overload_for_another_form_of_an_argument_computes_the_same(name, spelling):
    x, settings = signed(2, 1, 4), OTHER_FORM[form(spelling)]
    wanted = getattr(torch, name)(x, *settings)
    torch.testing.assert_close(outcome(spelling, x, *settings), wanted, rtol=0, atol=0)


@pytest.mark.parametrize(("name", "spelling"), each_of(["cat", "stack"]))
def test_every_spelling_joins_a_list_of_tensors(name, spelling):
    parts = [signed(2, 3), signed(2, 3)]
    assert torch.equal(spelling(parts, 1), getattr(torch, name)(parts, 1))


@pytest.mark.parametrize("spelling", SPELLINGS["where"])
def test_every_spelling_takes_the_condition_first(spelling):
    x = signed(2, 3)
    kinds = {"ScalarOther": (x, 0.5), "ScalarSelf": (0.5, x), "Scalar": (0.5, 1.5)}
    values = kinds.get(form(spelling).partition(".")[2], (x, 2 * x))
    assert torch.equal(spelling(x > 0, *values), torch.where(x > 0, *values))


@pytest.mark.parametrize(
    ("module", "function"),
    [
        (nn.ZeroPad2d((1, 2, 3, 4)), lambda x: F.pad(x, (1, 2, 3, 4))),
        (nn.ConstantPad2d((1, 2, 3, 4), 0.5), lambda x: F.pad(x, (1, 2, 3, 4), value=0.5)),
        (nn.ZeroPad2d((1, 2, 3, 4)), lambda x: aten.pad.default(x, (1, 2, 3, 4))),
        (nn.Upsample(scale_factor=2), lambda x: F.interpolate(x, scale_factor=2)),
        (nn.UpsamplingNearest2d(9), lambda x: F.interpolate(x, 9)),
        (
            nn.UpsamplingBilinear2d(9),
            lambda x: F.interpolate(x, 9, mode="bilinear", align_corners=True),
        ),
        (nn.GroupNorm(2, 4), lambda x: F.group_norm(x, 2)),
        (nn.GroupNorm(2, 4), lambda x: torch.group_norm(x, 2)),
        (nn.GroupNorm(2, 4), lambda x: aten.group_norm.default(x, 2)),
        (nn.InstanceNorm2d(4), F.instance_norm),
    ],
)
def test_a_module_computes_what_the_function_does_that_is_given_its_settings(module, function):
    x = signed(2, 4, 6, 6)
    torch.testing.assert_close(module(x), function(x))


@pytest.mark.parametrize("spelling", SPELLINGS["dropout"], ids=lambda each: str(as_operator(each)))
def test_every_dropout_does_nothing_in_eval_mode(spelling):
    x = signed(2, 4, 6) if "1d" in str(as_operator(spelling)) else signed(2, 4, 6, 6)
    is_module = isinstance(spelling, type)
    given = spelling().eval()(x) if is_module else spelling(x.clone(), 0.5, False)  # noqa: FBT003
    assert torch.equal(given, x)


def test_every_operation_is_held_against_another_spelling_of_it():
    assert {*UNARY, *BINARY, *SETTINGS, *APART} == set(SPELLINGS)


@pytest.mark.parametrize("name", SPELLINGS)
def test_every_spelling_is_its_operation(name):
    found = {operation_of(as_operator(each)) for each in SPELLINGS[name]}
    assert found == {Operator("operation", name)}


def test_no_spelling_belongs_to_two_operations():
    rows = [{as_operator(each) for each in row} for row in SPELLINGS.values()]
    assert sum(map(len, rows)) == len(set().union(*rows))


def test_every_method_in_the_table_is_one_of_tensors():
    methods = {each for row in SPELLINGS.values() for each in row if isinstance(each, str)}
    assert {each for each in methods if not hasattr(torch.Tensor, each)} == set()


@pytest.mark.parametrize(
    "name",
    sorted(
        each
        for row in SPELLINGS.values()
        for each in row
        if isinstance(each, str) and each.startswith("__")
    ),
)
def test_a_dunder_method_is_in_the_table_because_a_trace_records_it(name):
    def explicit(x, y):
        return getattr(x, name)(y)

    def of_the_type(x, y):
        return getattr(torch.Tensor, name)(x, y)

    def of_a_constant(x):
        return getattr(torch.ones(3), name)(x)

    recorded = set()
    for function in (explicit, of_the_type, of_a_constant):
        try:
            graph = fx.symbolic_trace(function).graph
        except TypeError:  # a descriptor that takes no proxy
            continue
        recorded |= {node.target for node in graph.nodes if node.op == "call_method"}
    assert name in recorded


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("add", lambda x, y: x + y),
        ("add", lambda x, _: 1 + x),
        ("add", lambda x, y: x.__add__(y)),
        ("add", lambda x, y: x.__radd__(y)),
        ("add", lambda x, y: x.__iadd__(y)),
        ("add", lambda x, y: x.add_(y)),
        ("add", lambda x, _: torch.ones(3) + x),
        ("add", lambda x, y: aten.add.Tensor(x, y)),
        ("add", lambda x, y: aten.add(x, y)),
        ("sub", lambda x, _: 1 - x),
        ("sub", lambda x, _: torch.ones(3) - x),
        ("rsub", lambda x, y: torch.rsub(x, y)),
        ("mul", lambda x, _: 2 * x),
        ("div", lambda x, y: x / y),
        ("div", lambda x, _: 1 / x),
        ("div", lambda x, _: torch.ones(3) / x),
        ("floor_divide", lambda x, y: x // y),
        ("floor_divide", lambda x, _: torch.ones(3) // x),
        ("remainder", lambda x, y: x % y),
        ("pow", lambda x, _: x**2),
        ("matmul", lambda x, y: x @ y),
        ("matmul", lambda x, y: x.__matmul__(y)),
        ("matmul", lambda x, y: x.matmul(y)),
        ("matmul", lambda x, y: torch.linalg.matmul(x, y)),
        ("bmm", lambda x, y: torch.bmm(x, y)),
        ("neg", lambda x, _: -x),
        ("abs", lambda x, _: abs(x)),
        ("cat", lambda x, y: torch.concat([x, y])),
        ("stack", lambda x, y: torch.stack([x, y])),
        ("relu", lambda x, _: F.relu(x, inplace=True)),
        ("relu", lambda x, _: aten.relu(x)),
        ("sigmoid", lambda x, _: F.sigmoid(x)),
        ("sigmoid", lambda x, _: torch.special.expit(x)),
        ("softmax", lambda x, _: F.softmax(x, 1)),
        ("softmax", lambda x, _: x.softmax(-1)),
        ("clamp_min", lambda x, _: x.clamp_min(0)),
        ("clamp_max", lambda x, _: torch.clamp_max(x, 1)),
        ("clamp", lambda x, _: x.clip(0, 1)),
        ("gelu", lambda x, _: F.gelu(x)),
        ("prelu", lambda x, y: F.prelu(x, y)),
        ("layer_norm", lambda x, y: F.layer_norm(x, (3,), y)),
        ("max_pool2d", lambda x, _: F.max_pool2d(x, 2)),
        ("interpolate", lambda x, _: F.interpolate(x, scale_factor=2)),
        ("interpolate", lambda x, _: F.upsample(x, scale_factor=2)),
        ("transpose", lambda x, _: x.swapaxes(0, 1)),
        ("reshape", lambda x, _: x.view(-1)),
        ("split", lambda x, _: torch.split(x, 1)),
        ("chunk", lambda x, _: x.chunk(2)),
        ("repeat", lambda x, _: x.repeat(1, 2)),
        ("masked_fill", lambda x, y: x.masked_fill(y, 0)),
        ("mean", lambda x, _: x.mean(-1)),
        ("max", lambda x, _: x.max()),
        ("maximum", lambda x, y: torch.maximum(x, y)),
    ],
)
@pytest.mark.filterwarnings("ignore:`nn.functional.upsample` is deprecated")
def test_what_a_trace_records_is_the_operation_that_was_written(name, function):
    calls = [node for node in fx.symbolic_trace(function).graph.nodes if node.op.startswith("call")]
    assert len(calls) == 1
    assert operation_of(as_operator(calls[0].target)) == Operator("operation", name)


def test_a_module_in_a_trace_is_its_operation():
    net = nn.Sequential(nn.Flatten(), nn.GELU(), nn.LayerNorm(8), nn.Upsample(scale_factor=2))
    traced = fx.symbolic_trace(net)
    kinds = [
        type(traced.get_submodule(node.target))
        for node in traced.graph.nodes
        if node.op == "call_module"
    ]
    found = [operation_of(as_operator(kind)).target for kind in kinds]
    assert found == ["flatten", "gelu", "layer_norm", "interpolate"]


def test_the_packet_of_an_overload_is_the_operation_too_where_no_other_operation_claims_it():
    claims = {}
    for name, row in SPELLINGS.items():
        for each in row:
            if isinstance(each, OVERLOAD):
                claims.setdefault(each.overloadpacket, set()).add(name)
    assert {packet for packet, names in claims.items() if len(names) > 1} == {aten.max, aten.min}
    for packet, names in claims.items():
        wanted = Operator("operation", *names) if len(names) == 1 else None
        assert operation_of(as_operator(packet)) == wanted, packet


@pytest.mark.parametrize("packet", [aten.max, aten.min])
def test_a_packet_that_two_operations_have_overloads_of_is_neither(packet):
    """aten.max.default reduces, aten.max.other is maximum; the packet may be either."""
    assert operation_of(as_operator(packet)) is None
    operations = {operation_of(as_operator(each)) for each in (packet.default, packet.other)}
    assert len(operations) == 2
    assert None not in operations


@pytest.mark.parametrize(
    "spelling",
    [
        *(nn.Conv2d, nn.Linear, nn.Embedding, nn.BatchNorm2d, nn.PReLU, F.conv2d, F.linear),
        *(F.embedding, F.batch_norm, "size", getattr, aten.max.dim, aten.div.Tensor_mode),
        *(torch.instance_norm, aten.constant_pad_nd.default, "where", nn.ReflectionPad2d),
    ],
)
def test_what_has_other_operands_than_the_rest_has_no_operation(spelling):
    assert operation_of(as_operator(spelling)) is None


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (nn.ReLU6, nn.ReLU),
        (torch.bmm, torch.matmul),
        (torch.clamp, torch.clamp_min),
        (torch.clamp_min, torch.clamp_max),
        (torch.sub, torch.rsub),
        (torch.max, torch.maximum),
        (operator.truediv, operator.floordiv),
        (torch.pixel_shuffle, torch.pixel_unshuffle),
    ],
)
def test_different_operations_never_share_a_name(left, right):
    """relu6 clips above and relu does not: a table that mixed them would change numbers."""
    assert operation_of(as_operator(left)) != operation_of(as_operator(right))


def test_operations_are_named_as_torch_names_its_functions():
    """Where torch has no function the name is that of a method or of a module."""
    rooms = (torch, F, torch.Tensor)
    unknown = {name for name in SPELLINGS if not any(hasattr(room, name) for room in rooms)}
    assert unknown == {"identity"}


def test_an_unknown_operation_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="'conv2d' is not a known operation; known are abs, ada"):
        Operation("conv2d")
    with pytest.raises(AttributeError, match="not a known operation"):
        _ = ops.conv2d
    assert dir(ops) == sorted(SPELLINGS)
