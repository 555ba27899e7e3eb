"""Layers in training compute with the weight that the codes stand for, and their norm is that of inference."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import nn

import fusion_core as core
from fusion_core.nn import qat
from fusion_core.nn.normed import NORMED_OF, folded
from fusion_core.nn.switches import observing

QCONFIG = core.catalog.qat_qconfig(core.catalog.static_qconfig())
FOUR_BITS = core.catalog.qat_qconfig(
    core.catalog.static_qconfig(weight_min=-8, weight_max=7, per_channel=False)
)
LAYERS = {
    "linear": (lambda: nn.Linear(4, 6), (5, 4)),
    "conv1d": (lambda: nn.Conv1d(4, 6, 3, padding=1, groups=2), (2, 4, 7)),
    "conv2d": (lambda: nn.Conv2d(4, 6, 3, stride=2, bias=False), (2, 4, 7, 7)),
    "circular": (lambda: nn.Conv2d(4, 6, 3, padding=1, padding_mode="circular"), (2, 4, 5, 5)),
    "conv3d": (lambda: nn.Conv3d(4, 6, 2), (2, 4, 4, 4, 4)),
    "transposed1d": (lambda: nn.ConvTranspose1d(4, 6, 3, groups=2), (2, 4, 5)),
    "transposed2d": (lambda: nn.ConvTranspose2d(4, 6, 3, stride=2), (2, 4, 3, 3)),
    "transposed3d": (lambda: nn.ConvTranspose3d(4, 6, 2, bias=False), (2, 4, 3, 3, 3)),
}
NORMS = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}
of_every_layer = pytest.mark.parametrize("case", LAYERS.values(), ids=LAYERS)


def layer_of(case):
    torch.manual_seed(0)
    build, shape = case
    return build(), torch.randn(shape)


def with_norm(case, **options):
    """A layer and a norm that has learnt something, and an input."""
    layer, x = layer_of(case)
    norm = NORMS[x.dim()](6, **options)
    with torch.no_grad():
        norm.running_mean.uniform_(-1, 1)
        norm.running_var.uniform_(0.2, 3)
        if norm.affine:
            norm.weight.uniform_(-2, 2)
            norm.bias.uniform_(-1, 1)
    return layer, norm, x


def trained_with(layer, norm, qconfig=QCONFIG):
    made = NORMED_OF[type(layer)](layer, norm)
    return qat.QAT_OF[type(made)].from_float(made, qconfig)


def in_float(module):
    return core.disable_fake_quantize(copy.deepcopy(module))


def with_rounded_weight(made, layer):
    """A copy of ``layer`` that has what the codes of its weight stand for."""
    rounded = copy.deepcopy(layer)
    with torch.no_grad():
        rounded.weight.copy_(made.weight_fake_quantize.quantized(layer.weight).dequantize())
    return rounded


@of_every_layer
@pytest.mark.parametrize("qconfig", [QCONFIG, FOUR_BITS], ids=["channels", "four bits"])
def test_a_layer_computes_with_what_the_codes_of_its_weight_stand_for(case, qconfig):
    layer, x = layer_of(case)
    made = qat.QAT_OF[type(layer)].from_float(layer, qconfig).train()
    have = made(x)

    assert torch.equal(have, with_rounded_weight(made, layer)(x))
    assert not torch.equal(have, layer(x))


@of_every_layer
def test_the_gradient_of_a_weight_is_that_of_a_layer_with_the_rounded_one(case):
    layer, x = layer_of(case)
    made = qat.QAT_OF[type(layer)].from_float(layer, QCONFIG).train()
    made(x).square().sum().backward()
    exact = with_rounded_weight(made, layer).double()
    exact(x.double()).square().sum().backward()

    for name, parameter in layer.named_parameters():
        want = exact.get_parameter(name).grad
        assert torch.allclose(parameter.grad.double(), want, rtol=1e-4, atol=1e-4)


@of_every_layer
def test_the_module_for_training_shares_its_parameters_and_gives_back_a_copy(case):
    layer, _ = layer_of(case)
    made = qat.QAT_OF[type(layer)].from_float(layer, QCONFIG)
    back = made.to_float()

    assert {id(each) for each in made.parameters()} == {id(each) for each in layer.parameters()}
    assert type(back) is type(layer)
    assert not {id(each) for each in back.parameters()} & {id(each) for each in made.parameters()}
    assert all(torch.equal(each, back.state_dict()[k]) for k, each in layer.state_dict().items())


@pytest.mark.parametrize("kind", [nn.Embedding, nn.EmbeddingBag])
@pytest.mark.parametrize("bits", [8, 4])
def test_an_embedding_looks_up_rounded_rows_and_only_they_are_trained(kind, bits):
    torch.manual_seed(0)
    layer, words = kind(10, 8), torch.tensor([[1, 2], [2, 5]])
    qconfig = core.catalog.qat_qconfig(core.catalog.weight_only_qconfig(bits=bits))
    made = qat.QAT_OF[kind].from_float(layer, qconfig).train()
    have = made(words)
    have.sum().backward()

    assert torch.equal(have, with_rounded_weight(made, layer)(words))
    assert layer.weight.grad.abs().sum(1).nonzero().flatten().tolist() == [1, 2, 5]


@of_every_layer
@pytest.mark.parametrize("mode", [True, False], ids=["training", "evaluating"])
def test_without_rounding_a_layer_and_its_norm_do_what_they_did(case, mode):
    layer, norm, x = with_norm(case)
    made = in_float(trained_with(layer, norm)).train(mode)
    plain = nn.Sequential(layer, norm).train(mode)
    have, want = made(x), plain(x)
    (have * have.detach().cos()).sum().backward()
    (want * want.detach().cos()).sum().backward()

    assert torch.allclose(have, want, atol=1e-4)
    assert torch.allclose(made.norm.running_mean, norm.running_mean, atol=1e-5)
    assert torch.allclose(made.norm.running_var, norm.running_var, rtol=1e-4)
    gradients = zip(made.parameters(), plain.parameters(), strict=True)
    assert all(torch.allclose(a.grad, b.grad, rtol=1e-3, atol=1e-3) for a, b in gradients)


@of_every_layer
@pytest.mark.parametrize("affine", [True, False])
def test_the_rounded_weight_is_that_of_the_folded_layer(case, affine):
    layer, norm, x = with_norm(case, affine=affine)
    made = trained_with(layer, norm).train()
    made.eval()
    with observing(made):
        have = made(x)
    back = made.to_float()

    assert torch.allclose(back.weight, folded(layer, norm).weight, rtol=1e-5)
    assert torch.allclose(have, with_rounded_weight(made, back)(x), atol=1e-4)


@of_every_layer
def test_the_statistics_are_those_of_the_batch_and_the_rounding_is_of_the_running_ones(case):
    layer, norm, x = with_norm(case)
    made = trained_with(layer, norm).train()
    before = norm.running_mean.clone(), norm.running_var.clone()
    scale = folded(layer, norm).weight.detach()
    made(10 * x)
    observed = made.weight_fake_quantize.observer

    assert not torch.equal(norm.running_mean, before[0])
    assert not torch.equal(norm.running_var, before[1])
    assert float(observed.max_val.max()) == pytest.approx(float(scale.max()), rel=1e-5)


@of_every_layer
def test_a_channel_with_gamma_zero_gives_beta_and_its_gamma_is_trained(case):
    layer, norm, x = with_norm(case)
    with torch.no_grad():
        norm.weight[2] = 0
    made = trained_with(layer, norm).train()
    out = made(x)
    (out * torch.randn_like(out)).sum().backward()

    assert torch.allclose(out[:, 2], norm.bias[2].expand_as(out[:, 2]))
    assert all(each.grad.isfinite().all() for each in made.parameters())
    assert norm.weight.grad[2] != 0
    assert not made.to_float().weight.isnan().any()


def test_gammas_that_are_all_zero_give_beta():
    layer, norm, x = with_norm(LAYERS["conv2d"])
    nn.init.zeros_(norm.weight)
    made = trained_with(layer, norm).train()

    assert torch.allclose(made(x)[0, :, 0, 0], norm.bias)
    assert torch.equal(made.to_float().weight, torch.zeros_like(layer.weight))


@pytest.mark.parametrize("name", ["weight", "bias"])
def test_what_is_not_trained_stays_so(name):
    layer, x = layer_of(LAYERS["linear"])
    layer.get_parameter(name).requires_grad_(requires_grad=False)
    made = qat.QAT_OF[nn.Linear].from_float(layer, QCONFIG).train()
    made(x).sum().backward()

    assert {k for k, each in layer.named_parameters() if each.grad is None} == {name}
    assert made.to_float().get_parameter(name).requires_grad is False


@of_every_layer
def test_the_state_has_its_final_shapes_before_the_first_step(case):
    layer, norm, x = with_norm(case)
    made = trained_with(layer, norm).train()
    before = {name: each.shape for name, each in made.state_dict().items()}
    made(x)

    assert {name: each.shape for name, each in made.state_dict().items()} == before


@of_every_layer
@pytest.mark.parametrize("again", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])  # noqa: S301
def test_a_copy_goes_its_own_way(case, again):
    layer, norm, x = with_norm(case)
    made = trained_with(layer, norm).train()
    made(x)
    made.eval()
    copied = again(made)

    assert torch.equal(copied(x), made(x))
    nn.init.ones_(copied.weight)
    assert not torch.equal(copied(x), made(x))


def test_every_layer_and_every_layer_with_a_norm_has_its_module_for_training():
    assert set(NORMED_OF) <= set(qat.QAT_OF)
    assert set(NORMED_OF.values()) <= set(qat.QAT_OF)
    assert len(set(qat.QAT_OF.values())) == len(qat.QAT_OF)
    names = [(kind.__name__, made.__name__) for kind, made in qat.QAT_OF.items()]
    assert all(kind == made for kind, made in names)
