"""What is fused into what, in eval mode and for training; beside each rule, the upstream test that it restates."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  the name everyone knows it by
from torch import nn

import fusion_core as core

CONVOLUTIONS = {
    1: (nn.Conv1d, nn.BatchNorm1d, (2, 3, 8)),
    2: (nn.Conv2d, nn.BatchNorm2d, (2, 3, 5, 5)),
    3: (nn.Conv3d, nn.BatchNorm3d, (2, 3, 4, 4, 4)),
}


def norm(kind, channels):
    made = kind(channels)
    nn.init.uniform_(made.running_mean, -0.5, 0.5)
    nn.init.uniform_(made.running_var, 0.5, 2.0)
    return made


def fused(model, x, *, qat=False, backend="fbgemm"):
    traced = core.trace(model.train(qat), x, backend=backend, qat=qat)
    return core.fuse(traced, backend, qat=qat)


def kinds(graph):
    calls = [node for node in graph.graph.nodes if node.op.startswith("call_")]
    return [
        type(graph.get_submodule(node.target)).__name__
        if node.op == "call_module"
        else getattr(node.target, "__name__", node.target)
        for node in calls
    ]


# test_fuse_conv_bn_relu
@pytest.mark.parametrize("qat", [False, True], ids=["eval", "training"])
@pytest.mark.parametrize("rectified", [False, True], ids=["", "relu"])
@pytest.mark.parametrize("dim", CONVOLUTIONS)
def test_a_convolution_its_norm_and_its_relu_become_one(dim, rectified, qat):
    kind, batch_norm, shape = CONVOLUTIONS[dim]
    model = nn.Sequential(kind(3, 4, 2), norm(batch_norm, 4), *[nn.ReLU()] * rectified)
    x = torch.randn(shape)
    graph = fused(model, x, qat=qat)
    (name,) = kinds(graph)

    assert name == (f"ConvReLU{dim}d" if rectified else f"Conv{'Bn' if qat else ''}{dim}d")
    assert torch.allclose(graph.eval()(x), model.eval()(x), atol=1e-5)
    assert any(isinstance(each, batch_norm) for each in graph.modules()) == qat


# test_fuse_linear_bn_eval, test_fuse_convtranspose_bn_eval
@pytest.mark.parametrize(
    ("layer", "batch_norm", "shape"),
    [
        (nn.Linear(3, 4), nn.BatchNorm1d, (6, 3)),
        (nn.ConvTranspose1d(3, 4, 2), nn.BatchNorm1d, (2, 3, 6)),
        (nn.ConvTranspose2d(3, 4, 2), nn.BatchNorm2d, (2, 3, 5, 5)),
        (nn.ConvTranspose3d(3, 4, 2), nn.BatchNorm3d, (2, 3, 4, 4, 4)),
    ],
    ids=lambda each: type(each).__name__ if isinstance(each, nn.Module) else "",
)
def test_a_norm_is_folded_away(layer, batch_norm, shape):
    model, x = nn.Sequential(layer, norm(batch_norm, 4)), torch.randn(shape)
    graph = fused(model, x)

    assert kinds(graph) == [type(layer).__name__]
    assert torch.allclose(graph(x), model(x), atol=1e-5)


# test_fuse_module_relu
@pytest.mark.parametrize(
    ("layer", "shape", "name"),
    [
        *(
            (kind(3, 4, 2), shape, f"ConvReLU{dim}d")
            for dim, (kind, _, shape) in CONVOLUTIONS.items()
        ),
        (nn.Linear(3, 4), (6, 3), "LinearReLU"),
        (norm(nn.BatchNorm2d, 3), (2, 3, 5, 5), "BatchNormReLU2d"),
        (norm(nn.BatchNorm3d, 3), (2, 3, 4, 4, 4), "BatchNormReLU3d"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
@pytest.mark.parametrize("relu", [nn.ReLU(), F.relu, torch.relu], ids=["nn", "F", "torch"])
def test_a_relu_joins_what_it_follows(layer, shape, name, relu):
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.relu = layer, relu

        def forward(self, x):
            return self.relu(self.layer(x))

    model, x = Net(), torch.randn(shape)
    graph = fused(model, x)

    assert kinds(graph) == [name]
    assert torch.allclose(graph(x), model(x), atol=1e-6)


class Residual(nn.Module):
    """relu(bn(conv(x)) + x) in one."""

    def __init__(self, conv) -> None:
        super().__init__()
        self.conv = conv

    def forward(self, x, other):
        return F.relu(self.conv(x) + other)


class Block(nn.Module):
    """A residual block that adds in one of two spellings."""

    def __init__(self, add) -> None:
        super().__init__()
        self.conv, self.bn, self.relu = nn.Conv2d(3, 3, 1), norm(nn.BatchNorm2d, 3), nn.ReLU()
        self.add = add

    def forward(self, x):
        return self.relu(self.add(self.bn(self.conv(x)), x))


# test_fuse_custom_pattern, test_fusion_pattern_with_multiple_inputs
@pytest.mark.parametrize("add", [torch.add, lambda x, y: x + y], ids=["torch", "operator"])
def test_a_residual_block_is_one_module_with_two_inputs(add):
    pattern = (nn.ReLU, (core.ops.add, (nn.BatchNorm2d, nn.Conv2d), core.MatchAllNode))
    config = core.BackendPatternConfig(
        complex_pattern=pattern,
        fused_module=Residual,
        fuser_method=lambda _is_qat, _relu, block: Residual(
            nn.utils.fuse_conv_bn_eval(block[1][1], block[1][0])
        ),
        root_node_getter=lambda found: found[1][1][1],
        extra_inputs_getter=lambda found: [found[1][2]],
    )

    class Plugin:
        @core.hookimpl
        def fusion_pattern_configs(self):
            return [config]

    model, x = Block(add), torch.randn(2, 3, 4, 4)
    undo = core.register_backend("toy", Plugin())
    try:
        graph = fused(model, x, backend="toy")
    finally:
        undo()

    assert kinds(graph) == ["Residual"]
    (call,) = [node for node in graph.graph.nodes if node.op == "call_module"]
    assert len(call.args) == 2
    assert torch.allclose(graph(x), model(x), atol=1e-6)
