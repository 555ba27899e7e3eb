"""How an operation is quantized follows from its qconfig alone: static, dynamic, or by its weight only."""

from __future__ import annotations

import operator
import pickle

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

import fusion_core as core
from fusion_core import qops
from fusion_core.passes import record_of
from fusion_core.passes.record import Stage

X = torch.randn(4, 6)
STATIC = core.DTypeConfig(
    input_dtype=torch.quint8, output_dtype=torch.quint8, weight_dtype=torch.qint8
)
DYNAMIC = core.DTypeConfig(
    input_dtype=torch.quint8,
    output_dtype=torch.float32,
    weight_dtype=torch.qint8,
    is_dynamic=True,
)
HALF = core.DTypeConfig(
    input_dtype=torch.float32, output_dtype=torch.float32, weight_dtype=torch.float16
)
WEIGHT = core.catalog.static_qconfig().weight


def placeholder(dtype, **options):
    return core.ObserverSpec(core.nn.PlaceholderObserver, dtype=dtype, **options)


AT_RUN_TIME = core.QConfig(activation=placeholder(torch.quint8, is_dynamic=True), weight=WEIGHT)
HALF_WEIGHTS = core.QConfig(
    activation=placeholder(torch.float32), weight=placeholder(torch.float16)
)


@pytest.fixture
def toy(backend):
    """Linear layers in all three modes, static addition, and a sigmoid of fixed range."""
    in_fixed_range = core.DTypeConfig(
        input_dtype=torch.quint8,
        output_dtype=core.DTypeWithConstraints(
            dtype=torch.quint8, scale_exact_match=1 / 256, zero_point_exact_match=0
        ),
    )
    return backend(
        *core.catalog.linear([STATIC, DYNAMIC, HALF], functional=True),
        *core.catalog.binary([STATIC], ["add"]),
        core.BackendPatternConfig(core.ops.sigmoid, dtype_configs=[in_fixed_range]),
        core.BackendPatternConfig(core.ops.matmul, dtype_configs=[STATIC]),
    )


def mapping(qconfig=None, **by_name):
    return core.QConfigMapping(global_qconfig=qconfig, module_name_qconfigs=by_name)


def test_a_dynamic_layer_is_given_values_rounded_at_run_time(toy, prepared, ops):
    model = nn.Sequential(nn.Linear(6, 3))
    converted = core.convert(prepared(model, toy, X, mapping(AT_RUN_TIME)))

    assert ops(converted) == ["quantize_per_tensor_dynamic", "dequantize_dynamic", "Linear"]
    for scale in (0.01, 1.0, 100.0):  # no range was measured, so none is exceeded
        error = (converted(scale * X) - model(scale * X)).abs().max()
        assert error < 0.02 * scale


def test_dynamic_layers_that_read_one_value_quantize_it_once(toy, prepared, ops, net):
    model = net(lambda self, x: self.a(x) * self.b(x), a=nn.Linear(6, 3), b=nn.Linear(6, 3))
    converted = core.convert(prepared(model, toy, X, mapping(AT_RUN_TIME)))

    assert ops(converted).count("quantize_per_tensor_dynamic") == 1
    assert ops(converted).count("dequantize_dynamic") == 2


def test_a_dynamic_model_needs_no_calibration(toy, prepared):
    made = prepared(nn.Sequential(nn.Linear(6, 3)), toy, X, mapping(AT_RUN_TIME))
    core.calibrate(made, [X])

    assert torch.equal(core.convert(made)(X), core.convert(core.calibrate(made, [9 * X]))(X))


def test_weights_alone_may_be_quantized(toy, prepared, ops):
    model = nn.Sequential(nn.Linear(6, 3), nn.ReLU())
    converted = core.convert(prepared(model, toy, X, mapping(HALF_WEIGHTS)))

    assert ops(converted) == ["LinearReLU"]
    assert converted.get_submodule("0")[0].codes.dtype is torch.float16
    assert torch.allclose(converted(X), model(X), atol=1e-2)
    assert not torch.equal(converted(X), model(X))


def test_a_weight_beyond_float16_is_its_largest_value_and_not_infinity(toy, prepared):
    model = nn.Sequential(nn.Linear(6, 3))
    with torch.no_grad():
        model[0].weight[0, 0] = 1e6
    converted = core.convert(prepared(model, toy, X, mapping(HALF_WEIGHTS)))

    assert converted(X).isfinite().all()


def test_one_model_may_mix_the_modes(toy, prepared, ops, ledger):
    model = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 6))
    chosen = mapping(
        None, **{"0": core.catalog.static_qconfig(), "1": AT_RUN_TIME, "2": HALF_WEIGHTS}
    )
    made = core.calibrate(prepared(model, toy, X, chosen), [X])
    converted = core.convert(made)

    assert [line.mode for line in ledger(made)] == ["static", "dynamic", "weight only"]
    assert ops(converted) == [
        *("quantize_per_tensor", "dequantize_per_tensor", "Linear"),
        *("quantize_per_tensor", "dequantize_per_tensor"),
        *("quantize_per_tensor_dynamic", "dequantize_dynamic", "Linear", "Linear"),
    ]


def test_what_has_no_weight_is_not_quantized_dynamically(toy, prepared, ledger, net):
    model = net(lambda self, x: self.fc(x) + x, fc=nn.Linear(6, 6))
    made = prepared(model, toy, X, mapping(AT_RUN_TIME))

    assert [line.reason for line in ledger(made)] == [
        *(None, "the qconfig is dynamic, and it has no weight")
    ]


def test_why_a_mode_is_refused_speaks_of_the_kernels_of_that_mode(toy, prepared, ledger):
    wide = AT_RUN_TIME.model_copy(update={"weight": placeholder(torch.float16)})
    made = prepared(nn.Sequential(nn.Linear(6, 6)), toy, X, mapping(wide))

    (line,) = ledger(made)
    assert line.reason == "its weight must be torch.qint8, the qconfig gives torch.float16"


def test_a_rule_for_the_layer_alone_takes_the_activation_behind_it_along(toy, prepared, ops):
    model = nn.Sequential(nn.Linear(6, 3), nn.ReLU())
    only = core.QConfigMapping(object_type_qconfigs={nn.Linear: AT_RUN_TIME})
    converted = core.convert(prepared(model, toy, X, only))

    assert ops(converted)[-1] == "LinearReLU"
    assert "quantize_per_tensor_dynamic" in ops(converted)


def test_a_rule_against_the_activation_excludes_the_layer_before_it(toy, prepared, ops):
    model = nn.Sequential(nn.Linear(6, 3), nn.ReLU())
    but = core.QConfigMapping(global_qconfig=AT_RUN_TIME, object_type_qconfigs={nn.ReLU: None})

    assert ops(core.convert(prepared(model, toy, X, but))) == ["LinearReLU"]


def test_a_fixed_range_is_that_of_the_output_and_not_of_the_input(toy, prepared, net):
    """A sigmoid gives values in [0, 1]; what it is given lies where it lies."""
    model = net(lambda _self, x: torch.sigmoid(x))
    wide = 5 * torch.randn(64, 6)
    made = core.calibrate(prepared(model, toy, wide), [wide])
    first, last = [
        node.args[1:3]
        for node in core.convert(made).graph.nodes
        if node.target is qops.quantize_per_tensor
    ]

    assert last == (1 / 256, 0)
    assert first[0] > 10 / 256
    assert (core.convert(made)(wide) - model(wide)).abs().max() < 0.02


def test_an_output_that_the_qconfig_names_itself_must_be_the_fixed_one(toy, prepared, ledger, net):
    model = net(lambda _self, x: torch.sigmoid(x))
    qconfig = core.catalog.static_qconfig()
    own = qconfig.model_copy(update={"output": qconfig.activation})
    made = prepared(model, toy, X, mapping(own))

    (line,) = ledger(made)
    assert line.reason == f"its output must have the fixed scale {1 / 256}, the qconfig measures it"


def test_the_weight_of_a_function_has_a_scale_for_each_channel(toy, prepared, ops, net):
    model = net(
        lambda self, x: F.linear(x, self.w * self.mask),
        w=nn.Parameter(torch.randn(3, 6) * torch.tensor([[0.01], [1.0], [100.0]])),
        mask=nn.Parameter(torch.ones(3, 6)),
    )
    # Behind a dynamic layer the output keeps its precision, so that of the weight shows.
    converted = core.convert(prepared(model, toy, X, mapping(AT_RUN_TIME)))

    assert "quantize_per_channel" in ops(converted)
    quiet = (converted(X) - model(X))[:, 0].abs().max()
    assert quiet < 0.1 * model(X)[:, 0].abs().max()


def test_the_weight_of_a_function_needs_no_data(toy, prepared, net):
    model = net(lambda self, x: F.linear(x, torch.tanh(self.w)), w=nn.Parameter(torch.randn(3, 6)))
    converted = core.convert(prepared(model, toy, X, mapping(AT_RUN_TIME)))

    assert torch.allclose(converted(X), model(X), atol=0.05)


def test_a_prepared_model_of_any_mode_pickles(toy, prepared):
    chosen = mapping(None, **{"0": AT_RUN_TIME, "1": HALF_WEIGHTS})
    made = prepared(nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 6)), toy, X, chosen)
    again = pickle.loads(pickle.dumps(made))  # noqa: S301

    assert torch.equal(core.convert(again)(X), core.convert(made)(X))
    assert record_of(again, Stage.PREPARED, "the test").weights.keys() == {"0", "1"}


def test_operands_that_are_not_products_stay_out_of_a_dynamic_match(toy, ops, net):
    model = net(lambda self, x, y: operator.add(self.fc(x), y), fc=nn.Linear(6, 6))
    traced = core.trace(model, (X, X), backend=toy)
    made = core.prepare(core.fuse(traced, toy), toy, mapping(AT_RUN_TIME))

    assert ops(core.convert(made)).count("quantize_per_tensor_dynamic") == 1
