"""A step of training is that of the user's own model, once rounding is switched off: the oracle for all of training."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

import fusion_core as core
from fusion_core.nn.by_mode import ByMode

IMAGES = (8, 4, 6, 6)
ROWS = (8, 6)
SEQUENCE = (5, 3, 8)
PATCHES = (2, 5, 6, 12)


def vision():
    """Operations of torchvision, without which their cases are skipped."""
    return pytest.importorskip("torchvision.ops")


def swin():
    """Torchvision's Swin transformers."""
    return pytest.importorskip("torchvision.models.swin_transformer")


class Net(nn.Module):
    """A model with a forward that the test wrote."""

    def __init__(self, forward, **parts):
        super().__init__()
        self.does = forward
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x):
        return self.does(self, x)


class WithinNoGrad(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone, self.head = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x):
        with torch.no_grad():
            first, second = self.backbone(x).relu().chunk(2, dim=1)
        return self.head(torch.cat([second, first], dim=1))


def conv_norm(**options):
    return nn.Sequential(
        nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4, **options), nn.ReLU(), nn.Conv2d(4, 4, 3)
    )


def frozen(model, *names):
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(not name.startswith(names))
    return model


def half_in_eval_mode():
    model = nn.Sequential(conv_norm(), nn.Dropout(), nn.BatchNorm2d(4), nn.Dropout(0.3))
    model[0].eval()
    model[3].eval()
    return model


def inner_in_eval_mode():
    inner = Net(lambda s, x: F.dropout(s.layer(x), 0.5, s.training), layer=nn.Linear(6, 6))
    model = Net(lambda s, x: s.layer(s.inner(x)), inner=inner, layer=nn.Linear(6, 6))
    model.inner.eval()
    return model


def linear(function):
    return Net(lambda s, x: s.layer(function(s, x)), layer=nn.Linear(6, 6))


def functional_norm(function, kind=nn.BatchNorm2d, **options):
    return Net(
        lambda s, x: s.then(function(s, s.layer(x))),
        layer=nn.Conv2d(4, 4, 3),
        norm=kind(4, affine=True, track_running_stats=True, **options),
        then=nn.Conv2d(4, 4, 1),
    )


def batch_norm(training, **options):
    """``training`` is a constant, or None for that of the model."""

    def norm(s, x):
        n, mode = s.norm, s.training if training is None else training
        tensors = n.running_mean, n.running_var, n.weight, n.bias
        return F.batch_norm(x, *tensors, mode, **options)

    return functional_norm(norm)


def instance_norm(training):
    def norm(s, x):
        n, mode = s.norm, s.training if training is None else training
        tensors = n.running_mean, n.running_var, n.weight, n.bias
        return F.instance_norm(x, *tensors, use_input_stats=mode, momentum=0.3)

    return functional_norm(norm, nn.InstanceNorm2d)


def tied_weights():
    model = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 6))
    model[2].weight = model[0].weight
    return model


def tied_embedding():
    return Net(
        lambda s, x: F.linear(s.words(x.abs().long() % 10), s.words.weight),
        words=nn.Embedding(10, 6, padding_idx=0),
    )


def attention(dropout=0.0, *, weights=False):
    return Net(
        lambda s, x: s.layer(s.attention(x, x, x, need_weights=weights)[0]),
        attention=nn.MultiheadAttention(8, 2, dropout=dropout),
        layer=nn.Linear(8, 8),
    )


def windows(kind):
    return nn.Sequential(
        nn.Linear(12, 12), kind(12, [4, 4], [2, 2], 3, attention_dropout=0.3, dropout=0.2)
    )


def rate(s, *, off=0.0):
    return 0.5 if s.training else off


SHARED = {
    "batch norm": (conv_norm, IMAGES),
    "settings of a norm": (lambda: conv_norm(momentum=0.7, eps=0.1), IMAGES),
    "cumulative average": (lambda: conv_norm(momentum=None), IMAGES),
    "norm without statistics": (lambda: conv_norm(track_running_stats=False), IMAGES),
    "frozen layer": (lambda: frozen(conv_norm(), "0", "1.bias"), IMAGES),
    "frozen statistics": (lambda: core.freeze_batch_norm(conv_norm()), IMAGES),
    "half in eval mode": (half_in_eval_mode, IMAGES),
    "inner in eval mode": (inner_in_eval_mode, ROWS),
    "all in eval mode": (lambda: conv_norm().eval(), IMAGES),
    "F.batch_norm": (lambda: batch_norm(None), IMAGES),
    "F.batch_norm, settings": (lambda: batch_norm(None, momentum=0.5, eps=0.01), IMAGES),
    "F.batch_norm off": (lambda: batch_norm(training=False), IMAGES),
    "F.batch_norm on": (lambda: batch_norm(training=True, momentum=0.5), IMAGES),
    "F.instance_norm": (lambda: instance_norm(None), IMAGES),
    "F.instance_norm off": (lambda: instance_norm(training=False), IMAGES),
    "F.instance_norm on": (lambda: instance_norm(training=True), IMAGES),
    "F.dropout": (lambda: linear(lambda s, x: F.dropout(x, 0.3, s.training)), ROWS),
    "F.dropout off": (lambda: linear(lambda _, x: F.dropout(x, training=False)), ROWS),
    "F.dropout on": (lambda: linear(lambda _, x: F.dropout(x, 0.3)), ROWS),
    "F.dropout by its rate": (lambda: linear(lambda s, x: F.dropout(x, rate(s))), ROWS),
    "factor": (lambda: linear(lambda s, x: torch.mul(x, rate(s, off=2.0))), ROWS),
    "F.rrelu": (lambda: linear(lambda s, x: F.rrelu(x, training=s.training)), ROWS),
    "dropout in attention": (
        lambda: Net(
            lambda s, x: s.layer(F.scaled_dot_product_attention(x, x, x, None, rate(s))),
            layer=nn.Linear(8, 8),
        ),
        SEQUENCE,
    ),
    "stochastic depth": (
        lambda: Net(
            lambda s, x: x + s.depth(s.layer(x)),
            layer=nn.Linear(6, 6),
            depth=vision().StochasticDepth(0.5, "row"),
        ),
        ROWS,
    ),
    "drop block": (lambda: nn.Sequential(nn.Conv2d(4, 4, 1), vision().DropBlock2d(0.3, 3)), IMAGES),
    "windows": (lambda: windows(swin().ShiftedWindowAttention), PATCHES),
    "windows, second version": (lambda: windows(swin().ShiftedWindowAttentionV2), PATCHES),
    "tied weights": (tied_weights, ROWS),
    "tied embedding": (tied_embedding, ROWS),
    "no_grad": (WithinNoGrad, ROWS),
    "detach": (lambda: linear(lambda s, x: s.layer(x).detach()), ROWS),
    "an island": (
        lambda: Net(
            lambda s, x: s.inner(x) if x.sum() > -1e9 else x,
            inner=nn.Sequential(conv_norm(), nn.Dropout()),
        ),
        IMAGES,
    ),
}
COPIED = {
    "attention": (attention, SEQUENCE),
    "frozen attention": (lambda: frozen(attention(), "attention"), SEQUENCE),
    "attention with dropout": (lambda: attention(0.5), SEQUENCE),
    "attention and its weights": (lambda: attention(0.5, weights=True), SEQUENCE),
    "encoder layer": (lambda: nn.TransformerEncoderLayer(8, 2, 16, 0.3), SEQUENCE),
}


def made(name, cases):
    build, shape = cases[name]
    torch.manual_seed(0)
    return build(), torch.randn(shape)


def stages(model, x, **options):
    """The model after each pass, without rounding."""
    traced = core.trace(model, x, backend="fbgemm", qat=True, **options)
    fused = core.fuse(traced, "fbgemm", qat=True)
    return traced, core.disable_fake_quantize(core.prepare(fused, "fbgemm", qat=True))


def step(model, x):
    """What the model gives, with gradients in its parameters."""
    torch.manual_seed(1)
    given = model(x)
    given.sigmoid().square().sum().backward()
    return given.detach()


def same(value, wanted):
    if value is None or wanted is None:
        return value is wanted
    return torch.allclose(value.double(), wanted.double(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", SHARED)
def test_a_step_in_place_gives_the_users_outputs_gradients_and_statistics(name):
    model, x = made(name, SHARED)
    user = copy.deepcopy(model)
    wanted = step(user, x)
    state = copy.deepcopy(model.state_dict())
    for stage in stages(model, x, inplace=True):
        model.load_state_dict(state)
        model.zero_grad()
        assert torch.allclose(step(stage, x), wanted, atol=1e-5)
        for (path, mine), theirs in zip(model.named_parameters(), user.parameters(), strict=True):
            assert same(mine.grad, theirs.grad), path
        for (path, mine), theirs in zip(model.named_buffers(), user.buffers(), strict=True):
            assert same(mine, theirs), path


@pytest.mark.parametrize("name", COPIED)
def test_a_step_of_a_copy_leads_where_the_users_leads(name):
    model, x = made(name, COPIED)
    results = []
    for each in map(copy.deepcopy, (model, *stages(model, x))):
        given = step(each, x)
        torch.optim.SGD(each.parameters(), 0.1).step()
        results.append((given, each.eval()(x).detach()))

    for given, afterwards in results[1:]:
        assert torch.allclose(given, results[0][0], atol=1e-5)
        assert torch.allclose(afterwards, results[0][1], atol=1e-4)


@pytest.mark.parametrize("name", ["half in eval mode", "inner in eval mode", "frozen statistics"])
def test_train_sets_every_mode_and_only_frozen_norms_outlast_it(name):
    model, x = made(name, SHARED)
    made_ready = stages(model, x)[1].train()
    for module in made_ready.modules():
        if isinstance(module, (nn.BatchNorm2d, nn.Dropout)):
            assert module.training is (name != "frozen statistics")
    core.freeze_batch_norm(made_ready).train()
    norms = [each for each in made_ready.modules() if isinstance(each, nn.BatchNorm2d)]
    assert not any(each.training for each in norms)


def test_a_layer_in_eval_mode_is_rounded_from_the_first_step():
    model, x = made("half in eval mode", SHARED)
    prepared = core.enable_fake_quantize(stages(model, x)[1])
    prepared(x)

    fakes = [each for each in prepared.modules() if isinstance(each, core.nn.FakeQuantize)]
    assert fakes
    assert all(each.observed for each in fakes)


@pytest.mark.parametrize("name", ["F.batch_norm on", "F.instance_norm on", "batch norm"])
@pytest.mark.parametrize("qat", [False, True])
def test_tracing_moves_no_statistics(name, qat):
    model, x = made(name, SHARED)
    before = copy.deepcopy(model.state_dict())
    traced = core.trace(model.train(qat), x, qat=qat, inplace=qat)
    values = {id(value): value for value in (*model.buffers(), *traced.buffers())}.values()

    for each in values:
        assert any(torch.equal(each, value) for value in before.values())


def test_stochastic_depth_switches_is_quantized_around_and_goes_in_the_end():
    model, x = made("stochastic depth", SHARED)
    prepared = core.enable_fake_quantize(stages(model, x)[1])
    assert not torch.equal(prepared(x), prepared(x))
    prepared.eval()
    assert torch.equal(prepared(x), prepared(x))

    lowered = core.lower(core.convert(prepared))
    assert torch.equal(lowered(x), prepared(x))
    assert {line.status for line in core.report(lowered).ledger} == {
        core.Status.INT8,
        core.Status.REMOVED,
    }


def test_the_windows_of_swin_are_trained_and_quantized():
    model, x = made("windows", SHARED)
    prepared = core.enable_fake_quantize(stages(model, x)[1])
    step(prepared, x)
    lowered = core.lower(core.convert(prepared.eval()))

    assert torch.allclose(lowered(x), prepared(x), atol=1e-5)
    ledger = core.report(lowered).ledger
    assert [line.status for line in ledger if line.operation == "Linear"] == [core.Status.INT8] * 3


@pytest.mark.parametrize("name", ["batch norm", "F.batch_norm", "inner in eval mode", "windows"])
def test_an_optimizer_of_an_earlier_stage_trains_the_later_ones(name):
    traced, prepared = stages(*made(name, SHARED))

    assert {*map(id, prepared.parameters())} == {*map(id, traced.parameters())}


def test_a_model_that_follows_the_mode_is_copied_and_pickled_with_it():
    model, x = nn.Sequential(nn.Conv2d(4, 4, 1), vision().DropBlock2d(0.3, 3)), torch.randn(IMAGES)
    prepared = stages(model, x)[1]
    assert any(isinstance(each, ByMode) for each in prepared.modules())
    prepared(x)
    for again in (copy.deepcopy(prepared), pickle.loads(pickle.dumps(prepared))):  # noqa: S301
        assert torch.equal(step(again, x), step(prepared, x))
