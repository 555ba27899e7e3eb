from __future__ import annotations

import pytest
import torch
from torch import nn

from fusion_core.catalog import fuse_activation, fuse_batch_norm, fuse_batch_norm_activation
from fusion_core.configs import Skip
from fusion_core.nn.fused import ConvHardtanh2d, ConvReLU2d, LinearHardtanh, LinearReLU


def norm(kind=nn.BatchNorm2d, channels=6, **options):
    made = kind(channels, **options)
    nn.init.uniform_(made.running_mean, -1, 1)
    nn.init.uniform_(made.running_var, 0.1, 2)
    if made.affine:
        nn.init.uniform_(made.weight, -1, 1)
        nn.init.uniform_(made.bias, -1, 1)
    return made.eval()


CASES = [
    (nn.Conv1d(4, 6, 3), norm(nn.BatchNorm1d), (2, 4, 9)),
    (nn.Conv2d(4, 6, 3, groups=2, bias=False), norm(), (2, 4, 9, 9)),
    (nn.Conv3d(4, 6, 2), norm(nn.BatchNorm3d, eps=0.7), (2, 4, 4, 4, 4)),
    (nn.Linear(4, 6), norm(nn.BatchNorm1d, affine=False), (2, 4)),
]


@pytest.mark.parametrize(("layer", "batch_norm", "shape"), CASES)
def test_a_folded_layer_computes_what_both_did(layer, batch_norm, shape):
    before = {name: tensor.clone() for name, tensor in layer.state_dict().items()}
    folded = fuse_batch_norm(False, layer, batch_norm)  # noqa: FBT003
    x = torch.randn(shape)

    assert type(folded) is type(layer)
    assert (folded(x) - batch_norm(layer(x))).abs().max() <= 1e-5
    assert all(torch.equal(before[name], each) for name, each in layer.state_dict().items())


@pytest.mark.parametrize(
    ("is_qat", "batch_norm", "reason"),
    [
        (
            True,
            nn.BatchNorm2d(6, track_running_stats=False),
            "the batch norm keeps no running statistics",
        ),
        (False, norm().train(), "the batch norm is in training mode"),
        (
            False,
            nn.BatchNorm2d(6, track_running_stats=False).eval(),
            "the batch norm keeps no running statistics",
        ),
        (False, norm(channels=5), "the batch norm has 5 channels, the layer before it 6"),
    ],
    ids=["qat", "training", "no statistics", "channels"],
)
def test_what_cannot_be_folded_is_skipped_with_the_reason(is_qat, batch_norm, reason):
    layer = nn.Conv2d(4, 6, 3)

    assert fuse_batch_norm(is_qat, layer, batch_norm) == Skip(reason)
    assert fuse_batch_norm_activation(is_qat, layer, batch_norm, nn.ReLU()) == Skip(reason)


@pytest.mark.parametrize(("layer", "batch_norm", "shape"), CASES)
def test_in_training_a_layer_and_its_norm_become_one_module_that_holds_both(
    layer, batch_norm, shape
):
    both = fuse_batch_norm(True, layer, batch_norm)  # noqa: FBT003
    activated = fuse_batch_norm_activation(True, layer, batch_norm, nn.ReLU6())  # noqa: FBT003
    x = torch.randn(shape)

    assert both[0] is layer
    assert both[1] is batch_norm
    assert torch.equal(both(x), batch_norm(layer(x)))
    assert torch.equal(activated(x), nn.functional.relu6(batch_norm(layer(x))))
    assert (both.folded()(x) - both(x)).abs().max() <= 1e-5


@pytest.mark.parametrize(
    ("layer", "activation", "kind"),
    [
        (nn.Conv2d(4, 6, 3), nn.ReLU(), ConvReLU2d),
        (nn.Conv2d(4, 6, 3), nn.ReLU6(), ConvHardtanh2d),
        (nn.Linear(4, 6), nn.ReLU(), LinearReLU),
        (nn.Linear(4, 6), nn.Hardtanh(-1, 2), LinearHardtanh),
    ],
)
def test_an_activation_stays_with_its_layer(layer, activation, kind):
    fused = fuse_activation(False, layer, activation)  # noqa: FBT003

    assert type(fused) is kind
    assert list(fused) == [layer, activation]


@pytest.mark.parametrize("activation", [torch.clamp, nn.Sigmoid()], ids=["function", "sigmoid"])
def test_an_activation_without_constant_bounds_is_skipped(activation):
    answer = fuse_activation(False, nn.Linear(4, 6), activation)  # noqa: FBT003

    assert answer == Skip("the activation has no constant bounds on both sides")
