from __future__ import annotations

import pytest
import torch
from torch import nn

from fusion_core.nn import fused

LAYERS = [nn.Conv1d(3, 4, 1), nn.Conv2d(3, 4, 1), nn.Conv3d(3, 4, 1), nn.Linear(3, 4)]


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: type(layer).__name__)
@pytest.mark.parametrize(
    ("kinds", "activation"),
    [
        (fused.RELU_OF, nn.ReLU()),
        (fused.HARDTANH_OF, nn.ReLU6()),
        (fused.HARDTANH_OF, nn.Hardtanh(-0.1, 0.2)),
    ],
    ids=["relu", "relu6", "hardtanh"],
)
def test_a_fused_module_computes_its_members_one_after_the_other(layer, kinds, activation):
    module = kinds[type(layer)](layer, activation)
    dims = {"Conv1d": (2, 3, 5), "Conv2d": (2, 3, 5, 5), "Conv3d": (2, 3, 4, 4, 4)}
    x = torch.randn(dims.get(type(layer).__name__, (2, 3)))

    assert torch.equal(module(x), activation(layer(x)))
    assert (module.weighted, module.activation) == (layer, activation)


@pytest.mark.parametrize(
    ("kind", "activation", "message"),
    [
        (fused.LinearReLU, nn.ReLU6(), "LinearReLU holds ReLU, not ReLU6"),
        (fused.ConvHardtanh2d, nn.ReLU(), "ConvHardtanh2d holds ReLU6, Hardtanh, not ReLU"),
        (fused.LinearReLU, nn.Sigmoid(), "LinearReLU holds ReLU, not Sigmoid"),
    ],
)
def test_another_activation_is_refused(kind, activation, message):
    with pytest.raises(TypeError, match=message):
        kind(nn.Linear(2, 2), activation)
