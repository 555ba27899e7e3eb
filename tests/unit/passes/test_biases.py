"""A backend that adds biases to 32-bit sums says so, and the reference model then has the biases it adds."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import fusion_core as core
from fusion_core import qops

X = torch.randn(4, 6)
PLACEHOLDER = core.nn.PlaceholderObserver
WHOLE = core.catalog.static_qconfig().model_copy(
    update={"bias": core.ObserverSpec(PLACEHOLDER, dtype=torch.qint32)}
)


@pytest.fixture
def toy(backend):
    """Linear layers, with ReLU or without, whose bias is int32."""
    whole = core.DTypeConfig(
        input_dtype=torch.quint8,
        output_dtype=torch.quint8,
        weight_dtype=torch.qint8,
        bias_dtype=torch.qint32,
    )
    return backend(*core.catalog.linear([whole]), qconfig=WHOLE)


def steps(model, path):
    """The biases of a reference layer, in steps of input scale times weight scale."""
    layer = model.get_submodule(path)
    layer = layer[0] if isinstance(layer, core.nn.fused.Activated) else layer
    (call,) = [node for node in model.graph.nodes if node.target == path]
    source = call.all_input_nodes[0]
    assert source.target is qops.dequantize_per_tensor
    return layer.bias.double() / (source.args[1] * layer.weight_scale.double())


def test_a_bias_of_32_bits_is_a_multiple_of_the_products_scale(toy, prepared):
    model = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))
    made = core.calibrate(prepared(model, toy, X), [X])
    converted = core.convert(made)

    for path in ("0", "2"):
        found = steps(converted, path)
        assert torch.allclose(found, found.round(), atol=1e-3)
    refined = core.refine(converted, made, [X])
    assert not torch.equal(refined.get_submodule("2").bias, converted.get_submodule("2").bias)
    assert torch.allclose(steps(refined, "2"), steps(refined, "2").round(), atol=1e-3)


def test_a_bias_is_float_unless_the_qconfig_says_otherwise(toy, prepared, ledger):
    model = nn.Sequential(nn.Linear(6, 5))
    own = core.QConfigMapping(global_qconfig=core.catalog.static_qconfig())
    (line,) = ledger(prepared(model, toy, X, own))

    assert line.reason == "its bias must be torch.qint32, the qconfig gives torch.float32"


def test_a_bias_of_float16_is_what_float16_holds(backend, prepared):
    half = core.ObserverSpec(PLACEHOLDER, dtype=torch.float16)
    config = core.DTypeConfig(
        input_dtype=torch.float32,
        output_dtype=torch.float32,
        weight_dtype=torch.float16,
        bias_dtype=torch.float16,
    )
    qconfig = core.QConfig(
        activation=core.ObserverSpec(PLACEHOLDER, dtype=torch.float32), weight=half, bias=half
    )
    model = nn.Sequential(nn.Linear(6, 5))
    bias = (
        core.convert(prepared(model, backend(*core.catalog.linear([config]), qconfig=qconfig), X))
        .get_submodule("0")
        .bias
    )

    assert torch.equal(bias, model[0].bias.half().float())
    assert not torch.equal(bias, model[0].bias)
