"""Training in the knowledge of the rounding: what it recovers, and that the converted model is what was trained."""

from __future__ import annotations

import copy
import itertools
import pickle

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from sklearn.datasets import load_digits
from torch import nn

import fusion_core as core
from fusion_core import qops
from fusion_core.passes import record_of
from fusion_core.passes.record import Stage


class Digits(nn.Module):
    """A small network with all that training treats apart: batch norm, and dropout in both spellings."""

    def __init__(self, *, bias=False):
        super().__init__()
        self.first, self.first_norm = nn.Conv2d(1, 8, 3, bias=bias), nn.BatchNorm2d(8)
        self.second, self.second_norm = nn.Conv2d(8, 8, 3, bias=bias), nn.BatchNorm2d(8)
        self.drop, self.head = nn.Dropout(0.1), nn.Linear(8 * 16, 10)

    def forward(self, x):
        x = F.relu(self.first_norm(self.first(x)))
        x = F.relu(self.second_norm(self.second(x)))
        x = F.dropout(self.drop(x.flatten(1)), 0.1, self.training)
        return self.head(x)


def images(count=64):
    torch.manual_seed(1)
    return torch.randn(count, 1, 8, 8)


def trainable(model, backend="fbgemm", x=None, **options):
    x = images() if x is None else x
    traced = core.trace(model, x, backend=backend, qat=True, **options)
    return core.prepare(core.fuse(traced, backend, qat=True), backend, qat=True)


def train(model, x, y, *, steps, rate=0.02):
    optimizer = torch.optim.Adam(model.parameters(), rate)
    model.train()
    for step in range(steps):
        batch = slice(step * 128 % len(x), step * 128 % len(x) + 128)
        optimizer.zero_grad()
        F.cross_entropy(model(x[batch]), y[batch]).backward()
        optimizer.step()
    return model.eval()


def seeded(**options):
    torch.manual_seed(0)
    return Digits(**options).train()


@pytest.mark.parametrize(("backend", "steps"), [("qnnpack", 1), ("fbgemm", 2)])
@pytest.mark.parametrize("bias", [False, True])
def test_the_converted_model_gives_what_was_trained(backend, steps, bias):
    x, y = images(), torch.randint(0, 10, (64,), generator=torch.Generator().manual_seed(0))
    made = train(trainable(seeded(bias=bias), backend), x, y, steps=5)
    trained = made(x).detach()
    converted = core.convert(made)
    lowered = core.lower(converted)

    scales = [n.args[1] for n in converted.graph.nodes if n.target is qops.quantize_per_tensor]
    step = max(float(trained.max() - trained.min()) / 255, scales[-1])
    assert (lowered(x) - trained).abs().max() <= steps * step + 1e-5
    ledger = core.report(lowered).ledger
    assert {line.status for line in ledger} == {core.Status.INT8, core.Status.REMOVED}
    assert not any(isinstance(each, nn.BatchNorm2d) for each in lowered.modules())


def test_the_users_model_keeps_its_own_parameters():
    model = seeded()
    before = copy.deepcopy(model.state_dict())
    train(trainable(model), images(), torch.zeros(64, dtype=torch.long), steps=2)

    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert model.training


def test_in_place_the_parameters_of_the_user_are_trained():
    model = seeded()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    made = trainable(model, inplace=True)
    before = model.head.weight.detach().clone()
    made(images()).square().mean().backward()
    optimizer.step()

    assert not torch.equal(model.head.weight, before)


def test_dropout_follows_train_and_eval():
    made, x = trainable(seeded()), images()
    made.train()(x)
    assert not torch.equal(made(x), made(x))
    made.eval()
    assert torch.equal(made(x), made(x))


def test_without_rounding_the_model_is_the_float_model_and_with_it_the_same_bits_as_before():
    model, x = seeded(), images()
    made = trainable(model)
    made.train()(x)
    made.eval()
    model.load_state_dict(_with_statistics_of(made, model))
    rounded = made(x)
    plain = core.disable_fake_quantize(made)(x)

    assert torch.allclose(plain, model.eval()(x), atol=1e-5)
    assert not torch.equal(plain, rounded)
    assert torch.equal(core.enable_fake_quantize(made)(x), rounded)


def _with_statistics_of(made, model):
    """The user's state with the running statistics that one training step gave its copy."""
    norms = [each for each in made.modules() if isinstance(each, nn.BatchNorm2d)]
    state = model.state_dict()
    for name, norm in zip(("first_norm", "second_norm"), norms, strict=True):
        state[f"{name}.running_mean"], state[f"{name}.running_var"] = (
            norm.running_mean,
            norm.running_var,
        )
    return state


def test_frozen_ranges_and_statistics_stay_where_they_are():
    made, x = trainable(seeded()), images()
    made.train()(x)
    core.freeze_batch_norm(core.freeze_observers(made))
    before = copy.deepcopy(dict(made.named_buffers()))
    made(10 * x)
    assert all(torch.equal(each, before[name]) for name, each in made.named_buffers())

    core.unfreeze_batch_norm(core.unfreeze_observers(made))
    made(10 * x)
    assert not all(torch.equal(each, before[name]) for name, each in made.named_buffers())


def test_a_channel_whose_gamma_is_zero_gives_its_beta_and_can_still_learn():
    model, x = seeded(), images()
    with torch.no_grad():
        model.first_norm.weight[0] = 0.0
        model.first_norm.bias[0] = 1.0  # else the ReLU behind it lets no gradient through
    made = trainable(model)
    made.train()(x).square().mean().backward()
    gradients = [each.weight.grad for each in made.modules() if isinstance(each, nn.BatchNorm2d)]
    assert all(each.isfinite().all() for each in gradients)
    assert gradients[0][0] != 0

    lowered = core.lower(core.convert(made.eval()))
    assert (lowered(x) - made(x)).abs().max() < 0.05


@pytest.mark.parametrize("again", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])  # noqa: S301
def test_a_copy_of_a_model_in_training_is_the_same_model(again):
    made, x = trainable(seeded()), images()
    made.train()(x)
    made.eval()
    copied = again(made)

    assert torch.equal(copied(x), made(x))
    assert torch.equal(core.convert(copied)(x), core.convert(made)(x))


def test_converting_does_not_move_the_ranges_that_were_trained():
    made, x = trainable(seeded()), images()
    made.train()(x)
    before = copy.deepcopy(made.state_dict())
    core.convert(made)

    assert all(torch.equal(each, before[name]) for name, each in made.state_dict().items())
    assert record_of(made, Stage.PREPARED, "the test").qat


class FourBits:
    """A target whose weights and activations have four bits, and one range for each tensor."""

    dtypes = core.DTypeConfig(
        input_dtype=torch.quint8,
        output_dtype=torch.quint8,
        weight_dtype=core.DTypeWithConstraints(
            dtype=torch.qint8, quant_min_lower_bound=-8, quant_max_upper_bound=7
        ),
    )

    @core.hookimpl
    def fusion_pattern_configs(self):
        return [*core.catalog.conv([self.dtypes], dims=[2]), *core.catalog.linear([self.dtypes])]

    @core.hookimpl
    def fusion_default_qconfig_mapping(self):
        weights = {"dtype": torch.qint8, "quant_min": -8, "quant_max": 7}
        symmetric = {"qscheme": torch.per_tensor_symmetric}
        qconfig = core.QConfig(
            activation=core.ObserverSpec(core.nn.MinMaxObserver, quant_max=15),
            weight=core.ObserverSpec(core.nn.MinMaxObserver, **weights, **symmetric),
        )
        return core.QConfigMapping(global_qconfig=qconfig)


def thin(width=5, depth=5):
    """A deep and narrow network, in which errors of rounding add up."""
    torch.manual_seed(0)
    widths = [1] + [width] * (depth + 1)
    layers = [
        layer
        for index, (before, after) in enumerate(itertools.pairwise(widths))
        for layer in (
            nn.Conv2d(before, after, 2 if index else 3, bias=False),
            nn.BatchNorm2d(after),
            nn.ReLU(),
        )
    ]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(width, 10)).train()


def learn(model, x, y, *, steps, rate):
    """One cycle of training; what is frozen stays so."""
    optimizer = torch.optim.Adam(model.parameters(), rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps)
    model.train()
    for step in range(steps):
        batch = slice(step * 64 % len(x), step * 64 % len(x) + 64)
        optimizer.zero_grad()
        F.cross_entropy(model(x[batch]), y[batch]).backward()
        optimizer.step()
        schedule.step()
    return model.eval()


@torch.no_grad()
def wrong(model, x, y):
    """Share of images that are taken for another digit."""
    return float((model(x).argmax(1) != y).float().mean())


@pytest.mark.slow
def test_training_recovers_what_four_bits_lose():
    digits = load_digits()
    x = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 8 - 1
    y = torch.tensor(digits.target)
    known, unseen = (x[:1216], y[:1216]), (x[1216:], y[1216:])
    undo = core.register_backend("four_bits", FourBits())
    try:
        model = learn(thin(), *known, steps=400, rate=0.03)
        exact = wrong(model, *unseen)
        plain = {"adaptive_rounding": False, "bias_correction": False}
        rough = core.quantize(model, "four_bits", calibration=[x[:256]], **plain)
        traced = core.trace(model.train(), x[:64], backend="four_bits", qat=True)
        mapping = core.catalog.qat_qconfig_mapping(
            core.get_backend("four_bits").qconfig_mapping, averaging_constant=0.1
        )
        fused = core.fuse(traced, "four_bits", qat=True)
        made = core.prepare(fused, "four_bits", mapping, qat=True)
        learn(made, *known, steps=100, rate=0.01)
        core.freeze_observers(made)
        core.freeze_batch_norm(made)
        recovered = core.convert(learn(made, *known, steps=100, rate=0.005))
    finally:
        undo()

    lost, left = (wrong(each, *unseen) - exact for each in (rough, recovered))
    assert lost > 0.03
    assert left < lost / 2
