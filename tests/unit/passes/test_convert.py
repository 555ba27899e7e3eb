from __future__ import annotations

import operator

import pytest
import torch
from torch import nn

import fusion_core as core
from fusion_core.errors import CalibrationError
from fusion_core.qops import dequantize_per_tensor, quantize_per_tensor

X = torch.randn(16, 6)


@pytest.fixture
def calibrated(backend, linear, prepared):
    model = nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 2))
    return core.calibrate(prepared(model, backend(linear), X), [X])


def test_each_value_is_quantized_once_and_dequantized_for_each_reader(calibrated):
    graph = core.convert(calibrated).graph

    assert len(graph.find_nodes(op="call_function", target=quantize_per_tensor)) == 3
    assert len(graph.find_nodes(op="call_function", target=dequantize_per_tensor)) == 3


def test_a_value_that_a_node_reads_twice_is_dequantized_twice(backend, prepared, net):
    sums = core.catalog.binary([core.DTypeConfig(input_dtype=torch.quint8)])
    model = prepared(net(lambda _, x: x + x), backend(*sums), X)
    graph = core.convert(core.calibrate(model, [X])).graph
    (add,) = graph.find_nodes(op="call_function", target=operator.add)

    left, right = add.args
    assert left is not right
    assert left.args == right.args


def test_no_observer_is_left_and_the_weights_are_codes(calibrated):
    converted = core.convert(calibrated)
    kinds = {type(module).__name__ for module in converted.modules()}

    assert not [kind for kind in kinds if "Observer" in kind]
    assert converted.get_submodule("0").codes.dtype is torch.int8
    assert converted.get_submodule("0").float_module.weight.numel() == 0


def test_the_prepared_model_stays_as_it_was(calibrated):
    before = calibrated(X)
    core.convert(calibrated)

    assert torch.equal(calibrated(X), before)


def test_a_model_without_data_is_refused_by_naming_the_places(backend, linear, prepared):
    model = prepared(nn.Sequential(nn.Linear(6, 4)), backend(linear), X)

    with pytest.raises(
        CalibrationError, match=r"not been calibrated at .*the output of 0.*calibrate\("
    ):
        core.convert(model)


def test_the_reference_is_what_rounding_by_hand_gives(calibrated):
    converted = core.convert(calibrated)
    x = X
    for node in converted.graph.nodes:
        if node.target is quantize_per_tensor:
            _, scale, zero_point, low, high, _ = node.args
            x = ((x / scale).round() + zero_point).clamp(low, high).sub(zero_point) * scale
        elif node.op == "call_module":
            layer = converted.get_submodule(node.target)
            weight = layer.codes.float() * layer.weight_scale.view(-1, 1)
            x = nn.functional.linear(x, weight, layer.bias)

    assert (converted(X) - x).abs().max() <= 1e-5
