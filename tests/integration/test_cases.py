"""Faults that people met in other tools, as rules; the id of each case is beside its test."""

from __future__ import annotations

import copy
import io
import math
import operator
import pickle
from collections import namedtuple

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  the name everyone knows it by
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune

import fusion_core as core
from fusion_core.passes import record_of
from fusion_core.passes.record import Stage

ONE_STEP = 1.001


def bn(channels: int, **options) -> nn.BatchNorm2d:
    """A batch norm that has seen something."""
    norm = nn.BatchNorm2d(channels, **options)
    nn.init.uniform_(norm.running_mean, -0.5, 0.5)
    nn.init.uniform_(norm.running_var, 0.5, 2.0)
    if norm.affine:
        nn.init.uniform_(norm.weight, 0.5, 1.5)
        nn.init.uniform_(norm.bias, -0.5, 0.5)
    return norm


def fused(model: nn.Module, x) -> torch.fx.GraphModule:
    traced = core.trace(model.eval(), x, backend="fbgemm")
    return core.fuse(traced, "fbgemm")


def modules_called(model: torch.fx.GraphModule) -> list[str]:
    calls = [node for node in model.graph.nodes if node.op == "call_module"]
    return [type(model.get_submodule(node.target)).__name__ for node in calls]


def error(model: nn.Module, other: nn.Module, x) -> float:
    """The largest difference, as a share of the largest value where that is above 1."""
    with torch.no_grad():
        want = model(x)
        return float((want - other(x)).abs().max() / want.abs().max().clamp(min=1))


class Net(nn.Module):
    """Named layers and a forward given as a function of the net and the inputs."""

    def __init__(self, forward, **layers) -> None:
        super().__init__()
        for name, layer in layers.items():
            self.add_module(name, layer)
        self.function = forward

    def forward(self, x):
        return self.function(self, x)


# M1
def test_a_value_that_a_residual_reads_may_be_fused_on_its_own(quantized, images):
    def forward(m, x):
        return F.relu(F.relu(m.bn1(m.c1(x))) + m.bn2(m.c2(x)))

    model = Net(forward, c1=nn.Conv2d(3, 4, 1), bn1=bn(4), c2=nn.Conv2d(3, 4, 1), bn2=bn(4))
    outcome = quantized(model, images())

    assert outcome.left_in_float() == []
    assert len({entry.pattern for entry in outcome.ledger}) == 3
    assert outcome.steps_apart() <= ONE_STEP


# M2
def test_residual_blocks_in_series_are_all_int8(quantized, images):
    def forward(m, x):
        x = m.stem(x)
        for block in (m.one, m.two):
            x = F.relu(block(x) + x)
        return x

    model = Net(forward, stem=nn.Conv2d(3, 4, 1), one=nn.Conv2d(4, 4, 1), two=nn.Conv2d(4, 4, 1))
    outcome = quantized(model, images())

    assert outcome.kernels.count("fbgemm add_relu") == 4
    assert outcome.left_in_float() == []
    assert outcome.sqnr > 28


# M4
def test_an_activation_is_not_fused_where_its_input_is_read_elsewhere(quantized, images):
    def forward(m, x):
        t = m.conv(x)
        return F.relu(t) + t

    model = Net(forward, conv=nn.Conv2d(3, 4, 1))
    x = torch.randn(1, 3, 4, 4)

    assert modules_called(fused(model, x)) == ["Conv2d"]
    assert error(model, fused(model, x), x) <= 1e-6
    assert quantized(model, images()).sqnr > 30


# M10
def test_a_value_that_is_returned_is_not_hidden(quantized, images):
    def forward(m, x):
        t = m.conv(x)
        return F.relu(t), t

    outcome = quantized(Net(forward, conv=nn.Conv2d(3, 4, 1)), images())

    assert outcome.want[1].min() < 0
    assert outcome.from_kernels[1].min() < 0
    assert outcome.sqnr > 30
    assert outcome.steps_apart() <= ONE_STEP


# M6
def test_a_layer_called_in_a_loop_is_quantized_at_each_call(quantized, images):
    def forward(m, x):
        for _ in range(4):
            x = x + F.relu(m.fc(x))
        return x

    outcome = quantized(Net(forward, fc=nn.Linear(8, 8)), images(6, 8))

    assert outcome.left_in_float() == []
    assert outcome.sqnr > 26


# M11
@pytest.mark.parametrize("depends", [False, True], ids=["independent", "dependent"])
def test_an_operand_computed_after_the_layer_keeps_the_graph_in_order(quantized, images, depends):
    def forward(m, x):
        y = m.conv(x)
        z = torch.sigmoid(m.other(y if depends else x))
        return F.relu(z + y)

    model = Net(forward, conv=nn.Conv2d(3, 3, 1), other=nn.Conv2d(3, 3, 1))
    outcome = quantized(model, images())

    outcome.lowered.graph.lint()
    assert outcome.sqnr > 30


# F3
def test_a_batch_norm_used_behind_two_convolutions_is_folded_into_both():
    model = Net(
        lambda m, x: m.bn(m.c1(x)) + m.bn(m.c2(x)),
        c1=nn.Conv2d(3, 4, 1),
        c2=nn.Conv2d(3, 4, 3, 1, 1),
        bn=bn(4),
    )
    x = torch.randn(2, 3, 6, 6)

    assert modules_called(fused(model, x)) == ["Conv2d", "Conv2d"]
    assert error(model, fused(model, x), x) <= 1e-5


# F5, F8, F9
@pytest.mark.parametrize(
    "norm",
    [{"affine": False}, {"eps": 0.7}, {"eps": 1e-8}, {}],
    ids=["not affine", "large eps", "small eps", "default"],
)
@pytest.mark.parametrize("bias", [False, True], ids=["", "bias"])
@pytest.mark.parametrize("groups", [1, 3], ids=["", "groups"])
def test_batch_norm_folds_exactly_whatever_its_settings(norm, bias, groups):
    model = nn.Sequential(nn.Conv2d(3, 6, 3, bias=bias, groups=groups), bn(6, **norm))
    x = torch.randn(2, 3, 6, 6)

    assert modules_called(fused(model, x)) == ["Conv2d"]
    assert error(model, fused(model, x), x) <= 1e-5


def test_a_batch_norm_without_running_statistics_stays():
    model = nn.Sequential(nn.Conv2d(3, 6, 3), bn(6), nn.BatchNorm2d(6, track_running_stats=False))
    x = torch.randn(2, 3, 6, 6)

    assert modules_called(fused(model, x)) == ["Conv2d", "BatchNorm2d"]
    assert error(model, fused(model, x), x) <= 1e-5


# F10
def test_a_forward_may_read_the_bias_of_a_layer_that_is_fused(quantized, images):
    model = Net(lambda m, x: F.relu(m.fc(x)) + m.fc.bias, fc=nn.Linear(6, 4))

    assert quantized(model, images(8, 6)).sqnr > 30


# F12
def test_sync_batch_norm_is_folded_as_batch_norm():
    model = nn.SyncBatchNorm.convert_sync_batchnorm(
        nn.Sequential(nn.Conv2d(3, 4, 3), bn(4), nn.ReLU())
    )
    assert isinstance(model[1], nn.SyncBatchNorm)
    x = torch.randn(1, 3, 5, 5)
    plain = nn.Sequential(model[0], nn.BatchNorm2d(4), nn.ReLU())
    plain[1].load_state_dict(model[1].state_dict())

    assert modules_called(fused(model, x)) == ["ConvReLU2d"]
    assert error(plain.eval(), fused(model, x), x) <= 1e-5


def _pruned(conv):
    return prune.l1_unstructured(conv, "weight", amount=0.3)


# F14
@pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated:FutureWarning")
@pytest.mark.parametrize(
    "change",
    [
        parametrizations.weight_norm,
        parametrizations.spectral_norm,
        nn.utils.weight_norm,
        nn.utils.spectral_norm,
        _pruned,
    ],
    ids=["weight norm", "spectral norm", "old weight norm", "old spectral norm", "pruning"],
)
def test_a_computed_weight_is_folded_from_its_value(quantized, images, change):
    model = nn.Sequential(change(nn.Conv2d(3, 4, 3)), bn(4), nn.ReLU()).eval()
    x = torch.randn(1, 3, 5, 5)
    before = (list(model.state_dict()), parametrize.is_parametrized(model[0]))
    with torch.no_grad():
        model(x)

    assert modules_called(fused(model, x)) == ["ConvReLU2d"]
    assert error(model, fused(model, x), x) <= 1e-5
    assert quantized(model, images()).left_in_float() == []
    assert (list(model.state_dict()), parametrize.is_parametrized(model[0])) == before


# F15
@pytest.mark.parametrize("between", [nn.Dropout(), nn.Dropout2d(), nn.Identity()], ids=repr)
def test_what_does_nothing_in_eval_does_not_stand_between_a_layer_and_its_relu(between):
    model = nn.Sequential(nn.Conv2d(3, 4, 3), between, bn(4), nn.Identity(), nn.ReLU())

    assert modules_called(fused(model, torch.randn(1, 3, 5, 5))) == ["ConvReLU2d"]


# F16
@pytest.mark.parametrize("member", ["0", "1", "2"])
def test_excluding_any_member_of_a_fused_group_leaves_the_group_in_float(quantized, images, member):
    mapping = core.get_backend("fbgemm").qconfig_mapping.model_copy()
    mapping.module_name_qconfigs = {member: None}
    model = nn.Sequential(nn.Conv2d(3, 4, 3), bn(4), nn.ReLU(), nn.Conv2d(4, 4, 1))
    outcome = quantized(model, images(), qconfig_mapping=mapping)

    assert [e.status.value for e in outcome.ledger] == ["float", "float", "float", "int8"]
    assert f"module name '{member}'" in outcome.ledger["_0"].reason


# P1
def test_sizes_are_not_observed(quantized, images):
    def forward(m, x):
        y = F.relu(m.fc(x))
        return y.view(y.size(0), 3, 4)

    outcome = quantized(Net(forward, fc=nn.Linear(6, 12)), images(8, 6))

    assert outcome.status("Linear") == {core.Status.INT8}
    assert outcome.status("view") == {
        core.Status.FLOAT
    }  # what it moves is the layer's float output
    assert outcome.sqnr > 30


class Sized(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 4)

    def forward(self, x, n):
        return self.fc(x.view(-1, n))


# P2, P9
def test_an_integer_input_is_not_observed():
    model = Sized().eval()
    traced = core.trace(model, (torch.randn(2, 12), 6), backend="fbgemm")
    prepared = core.prepare(core.fuse(traced, "fbgemm"))
    quantized = core.quantize(model, "fbgemm", calibration=[(torch.randn(8, 12), 6)] * 3)

    assert len(record_of(prepared, Stage.PREPARED, "the test").observers) == 1
    assert quantized(torch.randn(3, 12), 6).shape == (6, 4)


class OfPair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 4)

    def forward(self, pair):
        return self.fc(pair["x"] if isinstance(pair, dict) else pair[0]) + self.fc(pair[1])


class OfDict(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 4)

    def forward(self, inputs):
        return self.fc(inputs["x"]) + self.fc(inputs["y"])


# P5
@pytest.mark.parametrize("kind", ["tuple", "dict"])
def test_an_input_may_be_a_tuple_or_a_dict_of_tensors(quantized, kind):
    def item():
        x, y = torch.randn(8, 6), torch.randn(8, 6)
        return ((x, y),) if kind == "tuple" else ({"x": x, "y": y},)

    outcome = quantized(OfPair() if kind == "tuple" else OfDict(), [item() for _ in range(4)])

    assert outcome.sqnr > 30


# P6
def test_all_that_a_concatenation_touches_has_one_scale(quantized, images):
    def forward(m, x):
        return m.head(torch.cat([m.a(x), F.max_pool2d(m.b(x), 1) * 10], 1))

    model = Net(forward, a=nn.Conv2d(3, 4, 1), b=nn.Conv2d(3, 4, 1), head=nn.Conv2d(8, 2, 1))
    outcome = quantized(model, images())
    cat = next(node for node in outcome.reference.graph.nodes if node.target is torch.cat)
    scales = {node.args[1:3] for node in cat.all_input_nodes}

    assert scales == {next(iter(cat.users)).args[1:3]}


# P6, upstream table 7
def test_sharing_is_transitive(quantized, images):
    def forward(m, x):
        a, b, c = m.a(x), m.b(x) * m.b(x), m.c(x)
        return torch.cat([F.max_pool2d(torch.cat([a, b], 1), 2), F.avg_pool2d(c, 2)], 1).flatten(1)

    model = Net(forward, a=nn.Conv2d(3, 4, 1), b=nn.Conv2d(3, 4, 1), c=nn.Conv2d(3, 4, 1))
    outcome = quantized(model, images())
    quantizes = [
        n for n in outcome.reference.graph.nodes if n.target is core.qops.quantize_per_tensor
    ]

    assert outcome.left_in_float() == []
    assert len({node.args[1:3] for node in quantizes}) == 3  # input, what is multiplied, the rest
    assert outcome.steps_apart() <= ONE_STEP


# P7
def test_an_activation_used_twice_has_a_scale_for_each_use(quantized):
    def forward(m, x):
        return m.relu(m.a(x) * m.a(x)), m.relu(m.b(x))

    model = Net(forward, a=nn.Linear(6, 4), b=nn.Linear(6, 4), relu=nn.ReLU())
    with torch.no_grad():
        model.a.weight.mul_(100)
    outcome = quantized(model, [torch.randn(16, 6) for _ in range(4)])
    ratios = [
        want.square().sum() / (want - have).square().sum()
        for want, have in zip(outcome.want, outcome.from_kernels, strict=True)
    ]

    assert min(10 * math.log10(ratio) for ratio in ratios) > 30


# upstream table 2
def test_a_layer_used_twice_has_a_scale_for_each_use(quantized):
    model = Net(lambda m, x: (m.fc(x).relu() * 1.0, m.fc(x * 100).relu() * 1.0), fc=nn.Linear(6, 4))
    outcome = quantized(model, [torch.randn(16, 6) for _ in range(4)])
    small = [outcome.want[0], outcome.from_kernels[0]]

    assert (small[0] - small[1]).abs().max() < 0.05 * small[0].abs().max()


# P12
def test_names_of_the_users_that_the_passes_would_choose_are_kept_apart(quantized, images):
    def forward(m, x):
        return m.observer(m.kernel(m.get_submodule("0")(x)))

    layers = {"0": nn.Conv2d(3, 4, 1), "kernel": nn.Conv2d(4, 4, 1), "observer": nn.Conv2d(4, 3, 1)}
    outcome = quantized(Net(forward, **layers), images())

    assert outcome.left_in_float() == []
    assert outcome.sqnr > 28


Pair = namedtuple("Pair", "left right")  # noqa: PYI024  users have these


# P13
def test_the_kind_of_output_is_kept(quantized, images):
    def forward(m, x):
        return {"pair": Pair(m.a(x), m.b(x).permute((0, 2, 3, 1))), "list": [m.a(x)]}

    outcome = quantized(Net(forward, a=nn.Conv2d(3, 4, 1), b=nn.Conv2d(3, 4, 1)), images())

    assert type(outcome.from_kernels["pair"]) is Pair
    assert type(outcome.from_kernels["list"]) is list
    assert outcome.from_kernels["pair"].right.shape == outcome.want["pair"].right.shape


# P15
def test_an_image_without_a_batch_runs_as_the_reference_with_a_reason(quantized, images):
    outcome = quantized(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()), images(3, 8, 8, count=20))

    assert outcome.status("Conv2d") == {core.Status.REFERENCE}
    assert "4 dimensions with a batch, not of 3" in outcome.ledger["_0"].reason
    assert outcome.sqnr > 28


# C1
def test_operation_types_can_be_excluded(quantized, images):
    mapping = core.get_backend("fbgemm").qconfig_mapping.model_copy()
    mapping.object_type_qconfigs = {operator.add: None, nn.ReLU: None}
    model = Net(
        lambda m, x: m.relu(m.a(x) + m.b(x)),
        a=nn.Conv2d(3, 4, 1),
        b=nn.Conv2d(3, 4, 1),
        relu=nn.ReLU(),
    )
    outcome = quantized(model, images(), qconfig_mapping=mapping)

    assert [e.status.value for e in outcome.ledger] == ["int8", "int8", "float", "float"]
    assert outcome.sqnr > 30


# C4
@pytest.mark.parametrize("padding", ["same", "valid"])
def test_padding_by_name_becomes_numbers(quantized, images, padding):
    model = nn.Sequential(nn.Conv2d(1, 8, (5, 1), padding=padding), nn.ReLU())
    outcome = quantized(model, images(2, 1, 9, 9))

    assert outcome.left_in_float() == []
    assert outcome.sqnr > 30


# C12, P11
def test_a_prepared_model_can_be_converted_twice(images):
    data = images()
    model = nn.Sequential(nn.Conv2d(3, 4, 3), bn(4), nn.ReLU()).eval()
    prepared = core.prepare(fused(model, data[0]))
    core.calibrate(prepared, data)
    wanted = prepared(data[0])
    one, other = core.lower(core.convert(prepared)), core.lower(core.convert(prepared))

    assert torch.equal(one(data[0]), other(data[0]))
    assert torch.equal(prepared(data[0]), wanted)


class Standardised(nn.Conv2d):
    """Weight standardisation."""

    def forward(self, x):
        weight = self.weight - self.weight.mean((1, 2, 3), keepdim=True)
        weight = weight / (weight.std((1, 2, 3), keepdim=True) + 1e-5)
        return F.conv2d(x, weight, self.bias, self.stride, self.padding)


class Renamed(nn.Conv2d):
    """Only another constructor."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels, channels, 3, padding=1)


# C15
def test_a_subclass_with_a_forward_of_its_own_keeps_it(quantized, images):
    model = nn.Sequential(Standardised(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 1))
    outcome = quantized(model, images())

    assert outcome.status("conv2d") == {core.Status.FLOAT}
    assert outcome.sqnr > 28


def test_a_subclass_that_only_constructs_itself_is_its_base(quantized, images):
    model = nn.Sequential(Renamed(3), nn.ReLU())

    assert quantized(model, images()).left_in_float() == []


def _int8_conv(weight: float, source: float, target: float):
    """A 1x1 convolution whose input, weight and output have the given scales."""
    conv = nn.Conv2d(4, 1, 1, bias=False)
    nn.init.uniform_(conv.weight, -weight * 63, weight * 63)
    with torch.no_grad():
        conv.weight[0, 0] = weight * 63
    spec = core.ObserverSpec(core.nn.FixedQParamsObserver, scale=source, zero_point=100)
    default = core.catalog.static_qconfig(weight_min=-64, weight_max=63)
    qconfig = core.QConfig(
        activation=spec, weight=default.weight, output=spec.with_options(scale=target)
    )
    return nn.Sequential(conv).eval(), core.QConfigMapping(global_qconfig=qconfig)


# L2
@pytest.mark.parametrize("target", [0.2, 0.02, 60.0])
def test_any_factor_of_requantization_is_right(target):
    model, mapping = _int8_conv(weight=1.6, source=0.6, target=target)
    x = 40 * torch.randn(2, 4, 5, 5)
    reference = core.quantize(
        model, "fbgemm", calibration=[x], qconfig_mapping=mapping, reference=True
    )

    assert (reference(x) - core.lower(reference)(x)).abs().max() <= ONE_STEP * target


# L4
def test_addition_rounds_halves_to_even(quantized):
    class Sum(nn.Module):
        def forward(self, x, y):
            return x + y

    data = [(torch.randn(10_000), torch.randn(10_000)) for _ in range(2)]
    outcome = quantized(Sum(), data)

    assert outcome.status("add") == {core.Status.INT8}
    assert outcome.steps_apart() <= ONE_STEP


# L5
@pytest.mark.parametrize(
    ("activation", "low", "high"),
    [(nn.ReLU6(), 0, 6), (nn.Hardtanh(-2, 9), -2, 9), (nn.Hardtanh(0.5, 3), 0.5, 3)],
    ids=repr,
)
def test_a_bounded_activation_sets_the_range_of_the_layer(quantized, images, activation, low, high):
    conv = nn.Conv2d(3, 4, 3)
    with torch.no_grad():
        conv.weight.mul_(20)
    outcome = quantized(nn.Sequential(conv, activation), images())

    assert outcome.kernels == ["fbgemm conv/linear"] * 2
    assert outcome.from_kernels.min() >= low - 0.05
    assert outcome.from_kernels.max() <= high + 0.05
    assert outcome.sqnr > 28
    assert outcome.steps_apart() <= ONE_STEP


# L7
def test_a_large_scalar_keeps_scales_valid(quantized, images):
    model = Net(lambda m, x: m.b(m.a(x) + 1000.0), a=nn.Linear(6, 4), b=nn.Linear(4, 4))

    assert quantized(model, images(8, 6)).sqnr > 35


# A1
def test_converting_without_calibration_names_what_was_not_observed(images):
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 1))
    prepared = core.prepare(fused(model, images()[0]))

    with pytest.raises(
        core.errors.CalibrationError, match=r"not been calibrated at the output of 1.*of 2; run"
    ):
        core.convert(prepared)


# A2
def test_dead_activations_and_channels_stay_finite(quantized, images):
    dead = nn.Conv2d(3, 4, 1)
    nn.init.constant_(dead.bias, -1e6)
    thin = nn.Conv2d(4, 4, 1)
    with torch.no_grad():
        thin.weight[2] = 0
    outcome = quantized(nn.Sequential(dead, nn.ReLU(), thin), images())

    assert outcome.from_kernels.isfinite().all()
    assert (outcome.from_kernels - outcome.want).abs().max() <= 0.02


def test_a_channel_of_zeros_costs_the_others_nothing(quantized, images):
    conv = nn.Conv2d(3, 4, 1)
    with torch.no_grad():
        conv.weight[2] = 0
    outcome = quantized(nn.Sequential(conv), images())

    assert outcome.sqnr > 30


# A4
def test_one_outlier_does_not_set_the_range():
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3)).eval()
    data = [torch.randn(4, 3, 12, 12) for _ in range(21)]
    data[7][0, 0, 0, 0] = 50.0
    new = torch.randn(4, 3, 12, 12)
    with torch.no_grad():
        want = model(new)
        noise = want - core.quantize(model, "fbgemm", calibration=data)(new)

    assert 10 * torch.log10(want.square().sum() / noise.square().sum()) > 20


class Deep(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 1)

    def forward(self, x):
        if x.sum() > 0:
            return self.conv(x)
        return self.conv(x) * 2


class Around(nn.Module):
    def __init__(self, inner) -> None:
        super().__init__()
        self.before, self.inner, self.after = nn.Conv2d(3, 3, 1), inner, nn.Conv2d(4, 2, 1)

    def forward(self, x):
        return self.after(self.inner(self.before(x)))


# T1
def test_a_model_that_cannot_be_traced_says_where_and_what_to_do():
    model = Deep()
    model.conv = nn.Flatten()  # nothing in it could be a graph of its own
    with pytest.raises(
        core.errors.TraceError,
        match=r"the model itself \(Deep\) at .*test_cases\.py:\d+.*symbolically.*into a submodule",
    ) as caught:
        core.quantize(model.eval(), "fbgemm", calibration=[torch.randn(1, 3, 4, 4)])

    assert caught.value.module == ""
    assert caught.value.location.split(":")[0].endswith("test_cases.py")


# T1, T3
def test_a_submodule_that_cannot_be_traced_runs_as_python_and_is_reported(quantized, images):
    model = nn.Sequential(Around(nn.Sequential(nn.Identity(), Deep())), nn.ReLU())
    outcome = quantized(model, images())
    entry = next(entry for entry in outcome.ledger if entry.operation == "Deep")

    assert entry.path == "0.inner.1"
    assert "its forward runs as Python: cannot be traced at" in entry.reason
    assert "test_cases.py:" in entry.reason
    assert outcome.status("Conv2d") == {core.Status.INT8}
    assert outcome.sqnr > 30


# P11
def test_the_users_model_gets_no_attribute(images):
    model = nn.Sequential(nn.Conv2d(3, 4, 3), bn(4), nn.ReLU()).eval()
    before = copy.deepcopy([(name, vars(module)) for name, module in model.named_modules()])
    core.quantize(model, "fbgemm", calibration=images())

    after = [(name, vars(module)) for name, module in model.named_modules()]
    assert [(name, list(each)) for name, each in after] == [(n, list(each)) for n, each in before]


# U1
@pytest.mark.parametrize(
    "field", ["module_name_qconfigs", "module_name_object_type_order_qconfigs"]
)
def test_a_misspelt_module_name_is_an_error_with_near_misses(images, field):
    mapping = core.get_backend("fbgemm").qconfig_mapping.model_copy()
    key = "layerz.conv" if field == "module_name_qconfigs" else ("layerz.conv", nn.Conv2d, 0)
    setattr(mapping, field, {key: None})
    inner = nn.Sequential()
    inner.add_module("conv", nn.Conv2d(3, 4, 1))
    model = Net(lambda m, x: m.layers.conv(x), layers=inner).eval()

    with pytest.raises(
        core.errors.UnknownModuleNameError, match=r"'layerz\.conv'.*Did you mean 'layers\.conv'"
    ):
        core.quantize(model, "fbgemm", calibration=images(), qconfig_mapping=mapping)


# U4
def test_names_are_checked_before_calibration():
    mapping = core.QConfigMapping(module_name_qconfigs={"nosuch": None})
    seen = []

    def data():
        for _ in range(3):
            seen.append(1)
            yield torch.randn(1, 3)

    with pytest.raises(core.errors.UnknownModuleNameError, match="'nosuch'"):
        core.quantize(nn.Linear(3, 2).eval(), "fbgemm", calibration=data(), qconfig_mapping=mapping)

    assert len(seen) <= 1


# upstream table 5
def test_a_reference_model_honours_the_padding_mode(quantized, images):
    model = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1, padding_mode="circular"))

    assert quantized(model, images()).sqnr > 28


# upstream table 22
def test_a_qconfig_by_container_name_holds_for_all_within(quantized, images):
    mapping = core.get_backend("fbgemm").qconfig_mapping.model_copy()
    mapping.module_name_qconfigs = {"inner": None}
    inner = Net(lambda m, x: F.relu(m.a(x)) + m.b(x), a=nn.Conv2d(3, 4, 1), b=nn.Conv2d(3, 4, 1))
    outcome = quantized(
        Net(lambda m, x: m.head(m.inner(x)), inner=inner, head=nn.Conv2d(4, 2, 1)),
        images(),
        qconfig_mapping=mapping,
    )

    statuses = {entry.path: entry.status.value for entry in outcome.ledger}
    assert statuses.pop("head") == "int8"
    assert set(statuses.values()) == {"float"}


class Staged:
    """One model after each pass."""

    def __init__(self, data) -> None:
        model = nn.Sequential(
            nn.Conv2d(3, 4, 3), bn(4), nn.ReLU6(), nn.Flatten(), nn.Linear(256, 5)
        )
        self.traced = core.trace(model.eval(), data[0], backend="fbgemm")
        self.fused = core.fuse(self.traced, "fbgemm")
        self.prepared = core.calibrate(core.prepare(self.fused), data)
        self.converted = core.convert(self.prepared)
        self.lowered = core.lower(self.converted)


STAGES = ["traced", "fused", "prepared", "converted", "lowered"]


def saved(model):
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


# S1, S3, S4
@pytest.mark.parametrize(
    "copied",
    [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model)), saved],  # noqa: S301
    ids=["deepcopy", "pickle", "torch.save"],
)
@pytest.mark.parametrize("stage", STAGES)
def test_a_copy_of_a_model_at_any_stage_is_the_same_model(images, stage, copied):
    data = images()
    model = getattr(Staged(data), stage)
    other = copied(model)

    assert torch.equal(other(data[0]), model(data[0]))
    assert list(record_of(other, Stage.TRACED, "it").ledger) == list(
        record_of(model, Stage.TRACED, "it").ledger
    )


# S1
@pytest.mark.parametrize("stage", ["prepared", "converted"])
def test_the_passes_go_on_from_a_pickled_model(images, stage):
    data = images()
    staged = Staged(data)
    model = pickle.loads(pickle.dumps(getattr(staged, stage)))  # noqa: S301  our own
    if stage == "prepared":
        model = core.convert(model)

    assert torch.equal(core.lower(model)(data[0]), staged.lowered(data[0]))


# S1
def test_a_copy_of_a_prepared_model_is_calibrated_on_its_own(images):
    data = images()
    prepared = core.prepare(Staged(data).fused)
    other = copy.deepcopy(prepared)
    core.calibrate(other, data)

    with pytest.raises(core.errors.CalibrationError, match="not been calibrated"):
        core.convert(prepared)
    assert core.convert(other)(data[0]).isfinite().all()


def test_a_state_dict_restores_weights_and_biases_bit_for_bit(images):
    data = images()
    staged = Staged(data)
    for model in (staged.converted, staged.lowered):
        wanted, file = model(data[0]), io.BytesIO()
        torch.save(model.state_dict(), file)
        other = copy.deepcopy(model)
        for name, value in other.state_dict().items():
            if name.endswith("_extra_state"):
                value["codes"].zero_()
                other.get_submodule(name.removesuffix("._extra_state")).set_extra_state(value)
            else:
                value.zero_()
        assert not torch.equal(other(data[0]), wanted)
        file.seek(0)
        loaded = other.load_state_dict(torch.load(file, weights_only=True))

        assert loaded.missing_keys == loaded.unexpected_keys == []
        assert torch.equal(other(data[0]), wanted)


class Labelled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.labels = ["cat", "dog"]
        self.mean = 0.5
        self.fc = nn.Linear(4, 2)

    def forward(self, x):
        return self.fc(x - self.mean)


# S6
@pytest.mark.parametrize("again", [lambda m: m, copy.deepcopy, saved], ids=["", "copy", "saved"])
def test_plain_attributes_of_the_users_model_are_kept(images, again):
    model = Labelled().eval()
    quantized = again(core.quantize(model, "fbgemm", calibration=images(8, 4)))

    assert quantized.labels == ["cat", "dog"]
    assert quantized.labels is not model.labels
    assert quantized.mean == 0.5
