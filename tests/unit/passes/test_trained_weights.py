"""Which weights are trained: computed ones by their value, pruned ones not at all, and only what is shared in place."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, prune

import fusion_core as core
from fusion_core.errors import UnsupportedModelError
from fusion_core.nn import qat

ROWS = (8, 6)
SEQUENCE = (5, 3, 8)


class Attended(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.mine = nn.MultiheadAttention(8, 2, **options)

    def forward(self, x):
        size = self.mine.kdim
        return self.mine(x, x[..., :size], x[..., -size:])[0]


class Recurrent(nn.Module):
    def __init__(self, change):
        super().__init__()
        self.layer = change(nn.LSTM(8, 8), "weight_hh_l0")

    def forward(self, x):
        return self.layer(x)[0]


def stages(model, x, **options):
    """The model after each pass, without rounding."""
    traced = core.trace(model, x, backend="fbgemm", qat=True, **options)
    fused = core.fuse(traced, "fbgemm", qat=True)
    return traced, core.disable_fake_quantize(core.prepare(fused, "fbgemm", qat=True))


def step(model, x):
    """Gradients in the parameters of the model."""
    model(x).sigmoid().square().sum().backward()


@pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated:FutureWarning")
@pytest.mark.parametrize(
    "change",
    [
        parametrizations.weight_norm,
        parametrizations.spectral_norm,
        parametrizations.orthogonal,
        nn.utils.weight_norm,
        nn.utils.spectral_norm,
    ],
    ids=["weight norm", "spectral norm", "orthogonal", "old weight norm", "old spectral norm"],
)
class TestComputedWeight:
    def model(self, change, *, trained=True):
        torch.manual_seed(0)
        return nn.Sequential(change(nn.Linear(6, 6)).requires_grad_(trained), nn.Linear(6, 6))

    def test_it_is_trained_itself_and_the_ledger_says_so(self, change):
        model, x = self.model(change), torch.randn(ROWS)
        traced, prepared = stages(model, x)
        weights = {name: each.detach().clone() for name, each in prepared.named_parameters()}
        assert torch.allclose(prepared.eval()(x), model.eval()(x), atol=1e-5)
        step(prepared.train(), x)
        torch.optim.SGD(prepared.parameters(), 0.1).step()

        assert len(weights) == 4
        for name, each in prepared.named_parameters():
            assert not torch.equal(each, weights[name])
        (note,) = core.report(traced).ledger.notes
        assert note.startswith("0.weight was computed by ")

    def test_it_stays_frozen_where_all_is_frozen_that_it_is_computed_from(self, change):
        traced = core.trace(self.model(change, trained=False), torch.randn(ROWS), qat=True)
        trained = {name: each.requires_grad for name, each in traced.named_parameters()}

        assert trained == {
            "0.weight": False,
            "0.bias": False,
            "1.weight": True,
            "1.bias": True,
        }

    def test_in_place_it_is_refused(self, change):
        with pytest.raises(UnsupportedModelError, match=r"0\.weight.*remove_parametrizations"):
            core.trace(self.model(change), torch.randn(ROWS), qat=True, inplace=True)


def test_in_place_the_projections_of_attention_are_refused():
    model, x = Attended(), torch.randn(SEQUENCE)
    with pytest.raises(UnsupportedModelError, match="projections of mine, which are one"):
        core.trace(model, x, qat=True, inplace=True)


def test_projections_that_are_parameters_of_their_own_are_shared():
    torch.manual_seed(0)
    model = Attended(kdim=4, vdim=4)
    step(core.trace(model, torch.randn(SEQUENCE), qat=True, inplace=True), torch.randn(SEQUENCE))

    without = [name for name, each in model.named_parameters() if each.grad is None]
    assert without == ["mine.in_proj_bias"]


def test_pruned_weights_are_refused_until_pruning_is_made_permanent():
    model, x = nn.Sequential(nn.Linear(6, 6)), torch.randn(ROWS)
    prune.random_unstructured(model[0], "weight", amount=0.5)
    with pytest.raises(UnsupportedModelError, match=r"zeros in training: 0\.weight.*prune\.remove"):
        core.trace(model, x, qat=True)

    prune.remove(model[0], "weight")
    traced = core.trace(model, x, qat=True)
    assert traced.get_parameter("0.weight").requires_grad


@pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated:FutureWarning")
@pytest.mark.parametrize("change", [nn.utils.weight_norm, parametrizations.weight_norm])
def test_a_computed_weight_of_a_recurrent_layer_is_the_one_that_is_used(change):
    torch.manual_seed(0)
    model, x = Recurrent(change), torch.randn(SEQUENCE)
    traced = core.trace(model, x, qat=True)
    given = traced(x)
    assert torch.allclose(given, model(x), atol=1e-6)

    step(traced, x)
    assert all(each.grad is not None for each in traced.parameters())
    torch.optim.SGD([traced.get_parameter("layer.weight_hh_l0")], 1.0).step()
    assert not torch.equal(traced(x), given)


@pytest.mark.parametrize(
    ("build", "kind"), [(nn.Embedding, qat.Embedding), (nn.EmbeddingBag, qat.EmbeddingBag)]
)
@pytest.mark.parametrize("by_keyword", [False, True])
def test_rows_that_are_read_are_shortened_in_the_parameter(build, kind, by_keyword):
    torch.manual_seed(0)
    layer, words = build(10, 8, max_norm=0.5), torch.tensor([[1, 2], [4, 1]])
    user = copy.deepcopy(layer)
    made = kind.from_float(layer, core.catalog.static_qconfig())
    user(words)
    given = made(input=words) if by_keyword else made(words)

    given.sum().backward()
    assert torch.equal(made.weight, user.weight)
    assert (given - user(words)).abs().max() <= 2 * made.weight_fake_quantize.scale.max()
