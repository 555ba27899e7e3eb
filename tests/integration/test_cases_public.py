"""More faults that people met in other tools, as rules; the id of each case is beside its test."""

from __future__ import annotations

import copy
import operator
import pickle
import time

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

import fusion_core as core

ROUGH = {"adaptive_rounding": False, "bias_correction": False}


class Net(nn.Module):
    """Named layers and a forward given as a function of the net and the input."""

    def __init__(self, forward, **layers) -> None:
        super().__init__()
        for name, layer in layers.items():
            setattr(self, name, layer)
        self.function = forward

    def forward(self, x):
        return self.function(self, x)


def seen_norm(channels: int) -> nn.BatchNorm2d:
    norm = nn.BatchNorm2d(channels)
    nn.init.uniform_(norm.running_mean, -0.5, 0.5)
    nn.init.uniform_(norm.running_var, 0.5, 2.0)
    return norm


def targets(model: torch.fx.GraphModule) -> list:
    return [node.target for node in model.graph.nodes]


ADDITIONS = {
    "+": lambda x, y: x + y,
    "torch.add": torch.add,
    ".add": lambda x, y: x.add(y),
    "+=": operator.iadd,
    "add_": lambda x, y: x.add_(y),
}
ACTIVATIONS = {
    "module": nn.ReLU(),
    "F.relu": F.relu,
    "torch.relu": torch.relu,
    ".relu": lambda x: x.relu(),
    "relu_": lambda x: x.relu_(),
}


# G4
@pytest.mark.parametrize("add", ADDITIONS.values(), ids=ADDITIONS)
@pytest.mark.parametrize("relu", ACTIVATIONS.values(), ids=ACTIVATIONS)
def test_every_spelling_of_a_residual_gives_the_same_kernels(quantized, images, add, relu):
    model = Net(
        lambda m, x: m.relu(add(m.a(x), m.b(x))),
        a=nn.Conv2d(3, 4, 1),
        b=nn.Conv2d(3, 4, 1),
        relu=relu,
    )
    outcome = quantized(model, images(count=3), **ROUGH)

    assert outcome.kernels == ["fbgemm conv/linear"] * 2 + ["fbgemm add_relu"] * 2
    assert outcome.sqnr > 30


# C3
@pytest.mark.parametrize("bias", [False, True], ids=["", "bias"])
def test_a_functional_convolution_takes_keywords(quantized, images, bias):
    given = {"bias": nn.Parameter(torch.randn(4))} if bias else {}
    model = Net(
        lambda m, x: F.relu(
            F.conv2d(x, m.weight, stride=2, padding=1, bias=getattr(m, "bias", None))
        ),
        weight=nn.Parameter(torch.randn(4, 3, 3, 3) / 5),
        **given,
    )
    outcome = quantized(model, images(), **ROUGH)

    assert outcome.left_in_float() == []
    assert outcome.sqnr > 30


# C6
@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("backend", ["fbgemm", "qnnpack"])
def test_a_transposed_convolution_works_under_a_global_qconfig_by_channel(images, groups, backend):
    model = nn.Sequential(nn.ConvTranspose2d(4, 8, 3, stride=2, groups=groups), nn.ReLU()).eval()
    data = images(2, 4, 6, 6)
    options = {"calibration": data, "qconfig": "per_channel", **ROUGH}
    quantized = core.quantize(model, backend, **options)
    with torch.no_grad():
        want, have = model(data[0]), quantized(data[0])

    assert (want - have).square().sum() < 1e-3 * want.square().sum()
    assert {e.status for e in core.report(quantized).ledger} <= {
        core.Status.INT8,
        core.Status.REFERENCE,
    }


# C7
def test_a_dynamic_qconfig_for_one_type_holds_in_front_of_a_relu(quantized, images):
    mapping = core.QConfigMapping()
    mapping.set_object_type(nn.Linear, core.catalog.dynamic_qconfig(weight_min=-64, weight_max=63))
    model = nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 4))
    outcome = quantized(model, images(5, 8), qconfig_mapping=mapping, **ROUGH)

    assert {e.mode for e in outcome.ledger if e.operation == "Linear"} == {"dynamic"}
    assert outcome.status("Linear") == {core.Status.INT8}
    assert outcome.sqnr > 30


# C8
def test_a_fused_residual_reads_its_other_operand_quantized(quantized, images):
    model = Net(
        lambda m, x: F.relu(m.bn(m.a(x)) + m.b(x)),
        a=nn.Conv2d(3, 4, 1),
        bn=seen_norm(4),
        b=nn.Conv2d(3, 4, 1),
    )
    outcome = quantized(model, images(), **ROUGH)
    called = targets(outcome.lowered)

    assert outcome.left_in_float() == []
    assert called.count(core.qops.dequantize_per_tensor) <= 1
    assert called.count(core.qops.quantize_per_tensor) <= 1


# C14
@pytest.mark.parametrize("shape", [(1, 4), (4,), (1,), ()], ids=str)
def test_an_operand_of_a_sum_is_broadcast(quantized, images, shape):
    model = Net(
        lambda m, x: m.fc(x) + m.position,
        fc=nn.Linear(6, 4),
        position=nn.Parameter(torch.ones(shape)),
    )

    assert quantized(model, images(8, 6), **ROUGH).sqnr > 30


class Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, x):
        return self.b(F.relu(self.a(x)))


# pytorch/pytorch#69426
@pytest.mark.parametrize(
    "copied",
    [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))],  # noqa: S301
    ids=["deepcopy", "pickle"],
)
def test_a_model_that_was_traced_before_is_quantized_and_copied(quantized, images, copied):
    traced = torch.fx.symbolic_trace(Plain())
    traced.labels = ["cat", "dog"]
    outcome = quantized(traced, images(6, 8), **ROUGH)
    again = copied(outcome.lowered)

    assert outcome.left_in_float() == []
    assert again.labels == ["cat", "dog"]
    assert torch.equal(again(torch.ones(2, 8)), outcome.lowered(torch.ones(2, 8)))
    assert not torch.equal(again(torch.ones(2, 8)), traced(torch.ones(2, 8)))


class Failing(nn.Module):
    """A layer that fails on what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(nn.Linear(4, 4) for _ in range(5)), nn.Linear(5, 4))

    def forward(self, x):
        return self.layers(x)


# U3
def test_a_layer_that_fails_is_named(images):
    with pytest.raises(core.errors.ModelStateError, match=r"fails at layers_5 on example_inputs"):
        core.quantize(Failing().eval(), "fbgemm", calibration=images(2, 4))


# U3, C13
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_one_layer_of_another_type_is_named_before_anything_runs(images, dtype):
    model = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4).to(dtype))).eval()
    with pytest.raises(core.errors.UnsupportedModelError, match=rf"1\.0\.weight is {dtype}"):
        core.quantize(model, "fbgemm", calibration=images(2, 4))


def trained(model, x, backend, steps=3):
    prepared = core.prepare(
        core.fuse(core.trace(model, x, backend=backend, qat=True), backend, qat=True), qat=True
    ).train()
    optimizer = torch.optim.SGD(prepared.parameters(), 0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        prepared(x).square().mean().backward()
        optimizer.step()
    return prepared.eval()


TRAINED = {
    "conv-bn-relu-conv": (
        lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 1)),
        (4, 3, 6, 6),
    ),
    "conv without bias-bn": (
        lambda: nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4)),
        (4, 3, 6, 6),
    ),
    "linear-bn-relu-linear": (
        lambda: nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)),
        (8, 6),
    ),
    "conv-relu": (lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()), (4, 3, 6, 6)),
}


# Q2, Q4, Q5, Q9
@pytest.mark.parametrize("backend", ["fbgemm", "qnnpack"])
@pytest.mark.parametrize(("build", "shape"), TRAINED.values(), ids=TRAINED)
def test_what_was_trained_is_what_the_kernels_give(build, shape, backend):
    x = torch.randn(shape)
    model = trained(build(), x, backend)
    converted = core.convert(model)
    lowered = core.lower(converted)
    with torch.no_grad():
        want, reference, have = model(x), converted(x), lowered(x)
        core.disable_fake_quantize(model)
        unrounded = model(x)

    kinds = {type(each) for each in converted.modules()}
    assert kinds.isdisjoint({nn.BatchNorm1d, nn.BatchNorm2d})
    assert torch.allclose(want, reference, atol=1e-5)
    step = float(want.max() - want.min()) / 200
    assert (want - have).abs().max() <= step
    assert (unrounded - have).square().sum() < 2e-3 * unrounded.square().sum()


# Q9
def test_a_layer_and_its_activation_are_observed_once():
    model = trained(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()), torch.randn(4, 3, 6, 6), "fbgemm")

    rounding = [node for node in model.graph.nodes if "observer" in str(node.target)]
    assert len(rounding) == 2  # the input, and behind the activation


# PF1
@pytest.mark.slow
def test_two_hundred_layers_are_quantized_in_seconds(images):
    layers = (layer for _ in range(200) for layer in (nn.Linear(4, 4), nn.ReLU()))
    model, data = nn.Sequential(*layers).eval(), images(2, 4)
    start = time.process_time()
    core.quantize(model, "fbgemm", calibration=data, **ROUGH)

    assert time.process_time() - start < 10
