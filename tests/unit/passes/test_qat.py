"""What prepare and convert make of a model that is trained: shared and frozen parts, vendors' modules, checkpoints."""

from __future__ import annotations

import copy
import io

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

import fusion_core as core
from fusion_core import catalog, qops
from fusion_core.errors import FuseError
from fusion_core.nn import FakeQuantize, qat

INT8 = core.DTypeConfig(
    input_dtype=torch.quint8, output_dtype=torch.quint8, weight_dtype=torch.qint8
)
DYNAMIC = core.DTypeConfig(
    input_dtype=torch.quint8, output_dtype=torch.float32, weight_dtype=torch.qint8, is_dynamic=True
)
LOOK_UP = {
    bits: core.DTypeConfig(
        input_dtype=torch.float32, output_dtype=torch.float32, weight_dtype=dtype
    )
    for bits, dtype in {8: torch.quint8, 4: torch.quint4x2}.items()
}


@pytest.fixture
def toy(backend):
    """Convolutions and linear layers with their batch norms."""
    return backend(*catalog.conv([INT8], dims=[2]), *catalog.linear([INT8, DYNAMIC]))


def trainable(model, backend, x, mapping=None, **options):
    traced = core.trace(model.train(), x, backend=backend, qat=True, **options)
    return core.prepare(core.fuse(traced, backend, qat=True), backend, mapping, qat=True)


def stepped(model, *batches, optimizer=None):
    """``model`` after one step on each batch."""
    optimizer = optimizer or torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    for x in batches:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    return model


def of_type(model, *kinds):
    return [each for each in model.modules() if isinstance(each, kinds)]


def differs(converted, made, x):
    """How far the reference model is from the trained one, which is left in training mode."""
    with torch.no_grad():
        want = made.eval()(x)
    made.train()
    return float((converted(x) - want).abs().max())


def normed(*, bias=True):
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 4, 3, bias=bias), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten()
    return nn.Sequential(*layers, nn.Linear(64, 2))


def images(count=3):
    source = torch.Generator().manual_seed(1)
    return [torch.randn(4, 3, 6, 6, generator=source) for _ in range(count)]


def test_the_reference_model_computes_what_was_trained(toy):
    x, *more = images()
    made = stepped(trainable(normed(), toy, x), x, *more)
    converted = core.convert(made)

    step = max(n.args[1] for n in converted.graph.nodes if n.target is qops.quantize_per_tensor)
    assert differs(converted, made, x) <= step + 1e-5
    assert not of_type(converted, FakeQuantize, qat.QatModule, nn.BatchNorm2d)
    assert not any(each.requires_grad for each in converted.parameters())


def test_converting_leaves_the_trained_model_and_what_came_of_it_alone(toy):
    x, *more = images()
    made = stepped(trainable(normed(), toy, x), x)
    before, modes = copy.deepcopy(made.state_dict()), [each.training for each in made.modules()]
    converted = core.convert(made)
    gave = converted(x)

    assert all(torch.equal(each, before[name]) for name, each in made.state_dict().items())
    assert [each.training for each in made.modules()] == modes
    stepped(made, *more)
    assert torch.equal(converted(x), gave)


def test_tied_weights_stay_one_parameter(net, toy):
    first, second = nn.Linear(4, 4), nn.Linear(4, 4)
    second.weight = first.weight
    model = net(lambda self, x: self.second(F.relu(self.first(x))), first=first, second=second)
    x = torch.randn(8, 4)
    made = stepped(trainable(model, toy, x), x)

    one, other = of_type(made, qat.Linear)
    assert one.weight is other.weight
    assert one.bias is not other.bias
    assert differs(core.convert(made), made, x) < 0.02


def test_a_norm_that_is_called_twice_keeps_one_set_of_statistics(net, toy):
    layers = {"one": nn.Conv2d(3, 3, 3), "two": nn.Conv2d(3, 3, 1), "norm": nn.BatchNorm2d(3)}
    model = net(lambda self, x: self.norm(self.two(self.norm(self.one(x)))), **layers)
    x = images()[0]
    made = stepped(trainable(model, toy, x), x)

    first, second = of_type(made, qat.NormedQatModule)
    assert first.norm.weight is second.norm.weight
    assert first.norm.running_mean is second.norm.running_mean
    assert int(first.norm.num_batches_tracked) == 2
    assert differs(core.convert(made), made, x) < 0.1


def test_a_layer_that_is_called_twice_has_one_weight_and_a_range_for_each_output(net, toy):
    conv = nn.Conv2d(3, 3, 3, padding=1)
    model = net(lambda self, x: self.conv(10 * self.conv(x)), conv=conv)
    x = images()[0]
    made = stepped(trainable(model, toy, x), x)

    assert len({id(each) for each in made.parameters()}) == 2
    scales = {
        round(float(each.scale), 6) for each in of_type(made, FakeQuantize) if not each._is_weight
    }
    assert len(scales) >= 3
    assert differs(core.convert(made), made, x) < 0.2


@pytest.mark.parametrize("part", ["weight", "whole layer"])
def test_what_the_user_froze_is_not_trained(toy, part):
    model, x = normed(), images()[0]
    frozen = [model[0].weight] if part == "weight" else list(model[0].parameters())
    for each in frozen:
        each.requires_grad_(requires_grad=False)
    values = [each.clone() for each in frozen]
    made = stepped(trainable(model, toy, x, inplace=True), *images())

    assert all(torch.equal(each, value) for each, value in zip(frozen, values, strict=True))
    assert all(each.grad is None for each in frozen)
    assert model[4].weight.grad is not None
    assert differs(core.convert(made), made, x) < 0.05


def test_an_optimizer_made_before_goes_on_with_a_model_that_shares(toy):
    model, x = normed(), images()[0]
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    before = [each.detach().clone() for each in model.parameters()]
    stepped(trainable(model, toy, x, inplace=True), x, optimizer=optimizer)

    moved = [not torch.equal(*pair) for pair in zip(before, model.parameters(), strict=True)]
    # The bias of a layer in front of a norm has no effect, and so no gradient but rounding errors.
    assert moved[0]
    assert all(moved[2:])


def test_an_optimizer_made_before_does_not_know_a_model_of_its_own(toy):
    model, x = normed(), images()[0]
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    made = trainable(model, toy, x)
    before = copy.deepcopy(dict(made.named_parameters()))
    stepped(made, x, optimizer=optimizer)

    assert all(torch.equal(each, before[name]) for name, each in made.named_parameters())


def test_gradients_of_small_batches_add_up_to_that_of_the_whole(net, toy):
    model = net(
        lambda self, x: self.second(F.relu(self.first(x))),
        first=nn.Linear(4, 8),
        second=nn.Linear(8, 2),
    )
    x = torch.randn(8, 4)
    made = trainable(model, toy, x)
    made(x)
    core.freeze_observers(made)

    made(x).square().sum().backward()
    whole = [each.grad.clone() for each in made.parameters()]
    made.zero_grad()
    for part in x.split(2):
        made(part).square().sum().backward()
    assert all(
        torch.allclose(a, b.grad, atol=1e-4) for a, b in zip(whole, made.parameters(), strict=True)
    )


def test_training_goes_on_from_a_checkpoint_as_if_it_had_not_stopped(toy):
    first, *rest = images(4)
    straight = trainable(normed(), toy, first)
    optimizer = torch.optim.SGD(straight.parameters(), 0.05, momentum=0.9)
    stepped(straight, first, optimizer=optimizer)
    stream = io.BytesIO()
    torch.save([straight.state_dict(), optimizer.state_dict()], stream)
    stream.seek(0)
    model_state, optimizer_state = torch.load(stream)

    again = trainable(normed(), toy, first)
    again.load_state_dict(model_state)
    resumed = torch.optim.SGD(again.parameters(), 0.05, momentum=0.9)
    resumed.load_state_dict(optimizer_state)
    stepped(straight, *rest, optimizer=optimizer)
    stepped(again, *rest, optimizer=resumed)

    mine, theirs = straight.state_dict(), again.state_dict()
    assert all(torch.equal(each, theirs[name]) for name, each in mine.items())
    assert torch.equal(core.convert(straight)(first), core.convert(again)(first))


def test_a_checkpoint_of_before_the_first_step_can_be_loaded(toy):
    x = images()[0]
    fresh, used = (trainable(normed(), toy, x) for _ in range(2))
    stepped(used, x)
    used.load_state_dict(fresh.state_dict())

    assert torch.equal(stepped(used, x)(x), stepped(fresh, x)(x))


def test_evaluating_between_steps_changes_nothing(toy):
    first, second, unseen = images()
    looked, straight = (trainable(normed(), toy, first) for _ in range(2))
    optimizer = torch.optim.SGD(looked.parameters(), 0.05, momentum=0.9)
    stepped(looked, first, optimizer=optimizer)
    looked.eval()(100 * unseen)
    stepped(looked.train(), second, optimizer=optimizer)
    stepped(straight, first, second)

    theirs = straight.state_dict()
    assert all(torch.equal(each, theirs[name]) for name, each in looked.state_dict().items())


def test_a_dynamic_layer_trains_with_the_range_of_each_batch(net, toy):
    model = net(lambda self, x: self.linear(x), linear=nn.Linear(6, 3))
    mapping = catalog.qat_qconfig_mapping(
        catalog.dynamic_qconfig_mapping(catalog.dynamic_qconfig())
    )
    x = torch.randn(8, 6)
    made = stepped(trainable(model, toy, x, mapping), x, 10 * x)
    converted = core.convert(made)

    assert [each.is_dynamic for each in of_type(made, FakeQuantize)].count(True) == 1
    for scale in (0.1, 1, 100):
        assert differs(converted, made, scale * x) <= 1e-5 * scale
    assert any(n.target is qops.quantize_per_tensor_dynamic for n in converted.graph.nodes)


@pytest.mark.parametrize("bits", [8, 4])
def test_an_embedding_is_trained_by_its_weight_alone(net, backend, bits):
    toy = backend(*catalog.embedding([LOOK_UP[bits]]), *catalog.linear([INT8]))
    layers = {"words": nn.Embedding(10, 8), "head": nn.Linear(8, 2)}
    model = net(lambda self, x: self.head(self.words(x)), **layers)
    mapping = catalog.weight_only_qconfig_mapping(catalog.weight_only_qconfig(bits=bits))
    words = torch.randint(0, 10, (4, 5))
    made = stepped(trainable(model, toy, words, mapping), words)

    assert len(of_type(made, qat.Embedding)) == 1
    assert not of_type(made, qat.Linear)
    assert differs(core.convert(made), made, words) < 1e-5


def test_a_layer_that_the_mapping_leaves_out_trains_in_float_and_is_folded(toy):
    mapping = core.QConfigMapping(global_qconfig=catalog.static_qconfig())
    mapping.set_module_name("0", None)
    x = images()[0]
    made = stepped(trainable(normed(), toy, x, mapping), x)

    assert not of_type(made, qat.NormedQatModule)
    assert len(of_type(made, qat.Linear)) == 1
    converted = core.convert(made)
    assert not of_type(converted, nn.BatchNorm2d)
    assert differs(converted, made, x) < 0.05


class Vendors(nn.Module):
    """A vendor's linear layer in training, with the plainest way to round."""

    def __init__(self, layer, rounding):
        super().__init__()
        self.weight, self.bias = layer.weight, layer.bias
        if rounding is not None:
            self.weight_fake_quant = rounding

    @classmethod
    def from_float(cls, layer, qconfig):
        return cls(layer, qconfig.weight().for_weight(layer.weight))

    def to_float(self):
        layer = nn.Linear(self.weight.shape[1], self.weight.shape[0])
        layer.load_state_dict({"weight": self.weight, "bias": self.bias})
        return layer

    def forward(self, x):
        return F.linear(x, self.weight_fake_quant(self.weight), self.bias)


class Unrounded(Vendors):
    """One that rounds nothing."""

    @classmethod
    def from_float(cls, layer, _qconfig):
        return cls(layer, None)

    def forward(self, x):
        return F.linear(x, self.weight, self.bias)


class OneWay(nn.Module):
    """One that cannot be turned back."""

    @classmethod
    def from_float(cls, layer, _qconfig):
        return layer


class Failing(Vendors):
    """One that cannot be made."""

    @classmethod
    def from_float(cls, _layer, _qconfig):
        raise KeyError("rank")


class Nothing(Vendors):
    """One that makes something else."""

    @classmethod
    def from_float(cls, _layer, _qconfig):
        return "no module"


@pytest.fixture
def vendor(backend, linear):
    """A backend whose linear layers are trained by some module."""
    return lambda kind: backend(linear.model_copy(update={"qat_module": kind}))


@pytest.mark.parametrize("kind", [Vendors, Unrounded])
def test_a_vendors_module_is_trained_and_turned_back(vendor, kind):
    toy, x = vendor(kind), torch.randn(8, 4)
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    made = stepped(trainable(model, toy, x), x, x)
    assert len(of_type(made, kind)) == 2
    assert not of_type(made, qat.QatModule)

    converted = core.convert(made)
    assert not of_type(converted, kind)
    assert len(of_type(converted, core.nn.reference.Linear)) == 2
    # A vendor's own way to round need not be the one of the reference model.
    assert differs(converted, made, x) < (1e-5 if kind is Vendors else 0.05)


def test_the_range_that_a_vendors_module_has_trained_is_kept(vendor):
    toy, x = vendor(Vendors), torch.randn(8, 4)
    made = stepped(trainable(nn.Sequential(nn.Linear(4, 3)), toy, x), x)
    (trained,) = of_type(made, Vendors)
    trained.weight_fake_quant.observer_enabled.fill_(0)
    with torch.no_grad():
        trained.weight.mul_(0.5)
    (layer,) = of_type(core.convert(made), core.nn.reference.Linear)

    assert torch.equal(layer.weight_scale, trained.weight_fake_quant.scale)


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (OneWay, "OneWay has no to_float; it needs"),
        (nn.Linear, "Linear has no from_float and no to_float"),
        (Failing, "its qat_module raised KeyError: 'rank'"),
        (Nothing, "returned str from from_float, not a module"),
    ],
)
def test_a_vendors_module_that_does_not_do_is_refused_by_name(vendor, kind, says):
    with pytest.raises(FuseError, match=says) as refused:
        trainable(nn.Sequential(nn.Linear(4, 4)), vendor(kind), torch.randn(2, 4))
    assert "toy" in str(refused.value)
