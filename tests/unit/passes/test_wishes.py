from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import nn

import fusion_core as core
from fusion_core.configs import CustomConfig
from fusion_core.passes.record import Stage, record_of

X = torch.randn(6, 4)


class Scaled(nn.Module):
    """A layer that no pattern knows."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.randn(4))

    def forward(self, x):
        return x * self.factor


class Observed(nn.Module):
    @classmethod
    def from_float(cls, module):
        observed = cls()
        observed.module = module
        return observed

    def forward(self, *values):
        return self.module(*values)


class Quantized(Observed):
    @classmethod
    def from_observed(cls, observed):
        quantized = cls.from_float(observed.module)
        quantized.inputs = observed.input_qparams
        quantized.output = observed.output_qparams
        return quantized


class Pair(nn.Module):
    def forward(self, x, y):
        return x + y, y


CONFIG = CustomConfig(
    observed_modules={Scaled: Observed, Pair: Observed, nn.Linear: Observed},
    quantized_modules={Observed: Quantized},
)


@pytest.fixture
def converted(backend, linear):
    def converted(model, *, mapping=None, types=(Scaled, Pair), patterns=()):
        toy = backend(linear, *patterns)
        config = CustomConfig(
            observed_modules=dict.fromkeys(types, Observed), quantized_modules={Observed: Quantized}
        )
        graph = core.fuse(core.trace(model.eval(), X, backend=toy, custom=config), toy)
        prepared = core.calibrate(core.prepare(graph, toy, mapping), [X])
        return prepared, core.convert(prepared)

    return converted


def entry(model, operation):
    ledger = record_of(model, Stage.TRACED, "the test").ledger
    return next(line for line in ledger if line.operation == operation)


def test_an_own_module_is_observed_and_then_quantized(converted):
    prepared, reference = converted(nn.Sequential(nn.Linear(4, 4), Scaled(), nn.Linear(4, 4)))

    assert type(prepared.get_submodule("1")) is Observed
    assert type(reference.get_submodule("1")) is Quantized
    assert entry(reference, "Scaled").status is core.Status.INT8
    assert entry(reference, "Scaled").kernel == "Quantized"


def test_it_is_told_how_its_inputs_and_its_output_are_quantized(converted, ops):
    _, reference = converted(nn.Sequential(nn.Linear(4, 4), Scaled(), nn.Linear(4, 4)))
    given = [
        node.args[1:3]
        for node in reference.graph.nodes
        if node.target is core.qops.quantize_per_tensor
    ]
    own = reference.get_submodule("1")

    assert given[1:3] == [own.inputs[0][:2], own.output[:2]]
    assert own.output.dtype is torch.quint8
    assert ops(reference)[3:8] == [
        "quantize_per_tensor",
        "dequantize_per_tensor",
        "Quantized",
        "quantize_per_tensor",
        "dequantize_per_tensor",
    ]


def test_its_input_may_have_other_users(net, converted):
    model = net(
        lambda self, x: self.b(self.s(self.a(x)) + self.a(x)),
        a=nn.Linear(4, 4),
        s=Scaled(),
        b=nn.Linear(4, 4),
    )
    prepared, reference = converted(model)

    assert torch.equal(prepared(X), model(X))
    assert reference.s.inputs[0].scale > 0


def test_an_output_that_is_no_tensor_is_not_observed(net, converted):
    model = net(lambda self, x: self.p(self.a(x), x)[0], a=nn.Linear(4, 4), p=Pair())
    _, reference = converted(model)

    assert reference.p.output is None
    assert len(reference.p.inputs) == 2


def test_a_type_that_a_pattern_names_is_the_users_all_the_same(converted):
    _, reference = converted(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), types=(nn.Linear,))

    assert type(reference.get_submodule("0")) is Quantized


@pytest.mark.parametrize(
    ("qconfig", "reason"),
    [
        (None, "the qconfig mapping leaves it in float"),
        (
            core.catalog.dynamic_qconfig(),
            "own modules are quantized statically, and its qconfig is dynamic",
        ),
    ],
    ids=["float", "dynamic"],
)
def test_an_own_module_that_is_not_quantized_stays_with_the_reason(converted, qconfig, reason):
    mapping = core.QConfigMapping(global_qconfig=core.catalog.static_qconfig())
    mapping.set_object_type(Scaled, qconfig)
    _, reference = converted(nn.Sequential(nn.Linear(4, 4), Scaled()), mapping=mapping)

    assert type(reference.get_submodule("1")) is Scaled
    assert entry(reference, "Scaled").reason.startswith(reason)


def test_a_prepared_model_with_own_modules_can_be_converted_again(converted):
    prepared, reference = converted(nn.Sequential(Scaled(), nn.Linear(4, 4)))

    assert torch.equal(core.convert(prepared)(X), reference(X))


@pytest.mark.parametrize(
    "again",
    [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))],  # noqa: S301
    ids=["copy", "saved"],
)
def test_copies_have_own_modules(converted, again):
    _, reference = converted(nn.Sequential(Scaled(), nn.Linear(4, 4)))

    assert torch.equal(again(reference)(X), reference(X))
