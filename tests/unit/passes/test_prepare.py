from __future__ import annotations

import pytest
import torch
from torch import nn

import fusion_core as core
from fusion_core.errors import UnknownModuleNameError
from fusion_core.passes import record_of
from fusion_core.passes.record import Stage

X = torch.randn(2, 6)
SHARED = core.ObservationType.OUTPUT_SHARE_OBSERVER_WITH_INPUT


def observers(model):
    return record_of(model, Stage.PREPARED, "the test").observers


def observed(model):
    paths = set(observers(model))
    return [node.args[0].name for node in model.graph.nodes if node.target in paths]


def test_each_value_is_observed_once_whoever_reads_it(backend, linear, prepared, net):
    model = net(lambda self, x: self.a(x) + self.b(x), a=nn.Linear(6, 2), b=nn.Linear(6, 2))
    made = prepared(model, backend(linear), X)

    assert sorted(observed(made)) == ["a", "b", "x"]


def test_readers_that_want_different_observers_get_them(backend, linear, prepared, net):
    model = net(lambda self, x: self.a(x) + self.b(x), a=nn.Linear(6, 2), b=nn.Linear(6, 2))
    narrow = core.catalog.static_qconfig(quant_max=127)
    mapping = core.QConfigMapping(
        global_qconfig=core.catalog.static_qconfig(), module_name_qconfigs={"b": narrow}
    )
    made = prepared(model, backend(linear), X, mapping)

    assert observed(made).count("x") == 2
    assert sorted(made.get_submodule(path).quant_max for path in observers(made)) == [
        *(127, 127, 255, 255)
    ]


def test_a_shared_operation_has_the_observer_of_its_input(backend, linear, prepared):
    flatten = core.BackendPatternConfig(
        nn.Flatten, dtype_configs=linear.dtype_configs, observation_type=SHARED
    )
    model = nn.Sequential(nn.Linear(6, 2), nn.Flatten(), nn.Flatten())
    made = prepared(model, backend(linear, flatten), X)

    assert len(observers(made)) == 2
    assert len(observed(made)) == 4


def test_a_shared_operation_alone_is_not_worth_quantizing(backend, linear, prepared, ledger):
    flatten = core.BackendPatternConfig(
        nn.Flatten, dtype_configs=linear.dtype_configs, observation_type=SHARED
    )
    made = prepared(nn.Sequential(nn.Flatten()), backend(linear, flatten), X)

    assert observers(made) == ()
    assert "none of its inputs is quantized" in ledger(made)["_0"].reason


def test_what_nothing_matches_is_reported_with_what_came_nearest(backend, linear, prepared, ledger):
    pair = core.BackendPatternConfig((nn.Tanh, nn.Sigmoid), dtype_configs=linear.dtype_configs)
    made = prepared(nn.Sequential(nn.Linear(6, 2), nn.Sigmoid()), backend(linear, pair), X)

    assert "no pattern of toy matches Sigmoid here" in ledger(made)["_1"].reason
    assert "Linear" in ledger(made)["_1"].near_miss


def test_the_mapping_says_why_an_operation_stays_in_float(backend, linear, prepared, ledger):
    mapping = core.QConfigMapping(
        global_qconfig=core.catalog.static_qconfig(), object_type_qconfigs={nn.Linear: None}
    )
    made = prepared(nn.Sequential(nn.Linear(6, 2)), backend(linear), X, mapping)

    assert observers(made) == ()
    assert "the qconfig mapping leaves it in float (operation type" in ledger(made)["_0"].reason


def test_an_operand_of_another_type_is_named(backend, prepared, net, ledger):
    add = core.BackendPatternConfig(
        torch.add,
        dtype_configs=[core.DTypeConfig(input_dtype=torch.quint8, output_dtype=torch.quint8)],
    )
    model = net(lambda _self, x: torch.add(x, x.argmax(1, keepdim=True)))
    made = prepared(model, backend(add), X)

    assert ledger(made)["add"].reason == "its operand argmax is torch.int64"


def test_a_misspelt_module_name_is_refused_with_the_nearest(backend, linear, prepared):
    mapping = core.QConfigMapping(module_name_qconfigs={"0.fcc": None})
    inner = nn.Sequential()
    inner.add_module("fc", nn.Linear(6, 2))

    with pytest.raises(UnknownModuleNameError, match=r"'0\.fcc'.*Did you mean '0\.fc'"):
        prepared(nn.Sequential(inner), backend(linear), X, mapping)


def test_observers_of_torch_may_take_the_place_of_ours(backend, linear, prepared):
    spec = core.ObserverSpec(torch.ao.quantization.MinMaxObserver, dtype=torch.quint8)
    qconfig = core.catalog.static_qconfig().model_copy(update={"activation": spec})
    made = prepared(nn.Sequential(nn.Linear(6, 2)), backend(linear, qconfig=qconfig), X)
    converted = core.convert(core.calibrate(made, [X]))

    assert (converted(X) - made(X)).abs().max() < 0.1
