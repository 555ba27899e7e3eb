from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  the name everyone knows it by
from torch import nn

import fusion_core as core

X = torch.randn(2, 4, 6, 6)


class Weighted(nn.Module):
    def __init__(self, function, *shape: int) -> None:
        super().__init__()
        self.function = function
        self.w, self.b = nn.Parameter(torch.randn(shape)), nn.Parameter(torch.randn(shape[0]))

    def forward(self, x):
        return self.function(x, self.w, self.b)


@pytest.mark.parametrize(
    ("function", "shape", "kind"),
    [
        (F.conv2d, (6, 4, 3, 3), "Conv2d"),
        (torch.conv2d, (6, 4, 3, 3), "Conv2d"),
        (lambda x, w, _: F.conv2d(x, w, None, 2, (1, 0), groups=2), (6, 2, 3, 3), "Conv2d"),
        (lambda x, w, b: F.conv2d(x, w, b, padding="same", dilation=[2]), (6, 4, 3, 3), "Conv2d"),
        (lambda x, w, b: F.conv1d(x[:, :, 0], w, b), (6, 4, 3), "Conv1d"),
        (lambda x, w, b: F.conv3d(x[:, :, None], w, b), (6, 4, 1, 3, 3), "Conv3d"),
        (F.linear, (5, 6), "Linear"),
        (lambda x, w, b: F.layer_norm(x, (6,), w, b, 0.1), (6,), "LayerNorm"),
        (lambda x, w, _: F.layer_norm(x, (6, 6), weight=w), (6, 6), "LayerNorm"),
    ],
)
def test_a_weighted_function_of_the_models_own_parameters_becomes_a_module(
    ops, function, shape, kind
):
    model = Weighted(function, *shape).eval()
    traced = core.trace(model, X)

    assert ops(traced)[-1] == kind
    assert torch.equal(traced(X), model(X))


@pytest.mark.parametrize(
    "function",
    [
        lambda x, w, b: F.linear(x, w * 2, b),
        lambda x, _, b: F.linear(x, x[0, 0], b),
    ],
    ids=["computed", "an input"],
)
def test_a_weight_that_is_not_the_models_own_stays(ops, function):
    model = Weighted(function, 6, 6).eval()
    traced = core.trace(model, X)

    assert "Linear" not in ops(traced)
    assert torch.equal(traced(X), model(X))


def test_a_function_that_a_pattern_names_itself_stays(backend, ops):
    toy = backend(core.BackendPatternConfig(F.linear))

    assert ops(core.trace(Weighted(F.linear, 5, 6).eval(), X, backend=toy)) == ["linear"]


def test_a_layer_norm_without_weights_stays_a_function(net, ops):
    model = net(lambda _, x: F.layer_norm(x, (6,)))

    assert ops(core.trace(model, X)) == ["layer_norm"]


def test_a_functional_batch_norm_in_eval_mode_becomes_a_module(net, ops):
    def forward(self, x):
        n = self.norm
        return F.batch_norm(x, n.running_mean, n.running_var, n.weight, n.bias, eps=0.1)

    model = net(forward, norm=nn.BatchNorm2d(4))
    traced = core.trace(model, X)

    assert ops(traced) == ["BatchNorm2d"]
    assert torch.equal(traced(X), model(X))


def test_a_weight_that_is_read_elsewhere_too_is_shared_with_the_module(ops):
    model = Weighted(lambda x, w, b: F.linear(x, w, b) + w.sum(), 6, 6).eval()
    traced = core.trace(model, X)

    assert ops(traced) == ["Linear", "sum", "add"]
    assert traced.get_submodule("linear").weight is traced.w
    assert torch.equal(traced(X), model(X))


def test_calls_that_differ_in_their_input_alone_are_calls_of_one_module():
    def forward(x, w, b):
        return F.linear(F.linear(F.linear(x, w, b), w, b), w, None)

    model = Weighted(forward, 6, 6).eval()
    traced = core.trace(model, X)

    calls = [node.target for node in traced.graph.nodes if node.op == "call_module"]
    assert calls == ["linear", "linear", "linear_1"]
    assert torch.equal(traced(X), model(X))


class Decoder(nn.Module):
    """Its last layer is its first one's table."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.hidden = nn.Embedding(11, 8), nn.Linear(8, 8)

    def forward(self, ids):
        return F.linear(torch.relu(self.hidden(self.words(ids))), self.words.weight)


@pytest.mark.parametrize("mode", ["static", "dynamic"])
def test_a_tied_embedding_is_a_layer_that_is_quantized(mode):
    model, ids = Decoder().eval(), torch.arange(11).reshape(1, 11)
    data = {"calibration": [ids]} if mode == "static" else {}
    quantized = core.quantize(model, backend="fbgemm", example_inputs=(ids,), mode=mode, **data)

    ledger = core.report(quantized).ledger
    assert [line.status.value for line in ledger if line.path in {"hidden", ""}] == ["int8"] * 3
    error = (quantized(ids) - model(ids)).norm() / model(ids).norm()
    assert error < 0.05


def test_a_tied_embedding_is_trained_from_both_ends():
    model, ids = Decoder().train(), torch.arange(11).reshape(1, 11)
    traced = core.trace(model, ids, backend="fbgemm", qat=True)
    prepared = core.prepare(core.fuse(traced, "fbgemm", qat=True), "fbgemm", qat=True)
    core.disable_fake_quantize(prepared)
    prepared(ids).square().sum().backward()
    model(ids).square().sum().backward()

    grads = [p.grad for p in prepared.parameters() if p.shape == model.words.weight.shape]
    assert len(grads) == 1
    torch.testing.assert_close(grads[0], model.words.weight.grad)
