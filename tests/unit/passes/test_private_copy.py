from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, prune

from fusion_core.errors import TrainingModeError, UnsupportedModelError
from fusion_core.passes.private_copy import private_copy

X = torch.randn(2, 4)


class OnlyAnotherConstructor(nn.Linear):
    """A linear layer."""

    def __init__(self) -> None:
        super().__init__(4, 4)


class AnotherForward(nn.Linear):
    def forward(self, x):
        return super().forward(x) * 2


def test_nothing_is_shared_with_the_users_model():
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).eval()
    mine = private_copy(model)
    theirs = {tensor.data_ptr() for tensor in model.state_dict().values()}

    assert theirs.isdisjoint(tensor.data_ptr() for tensor in mine.state_dict().values())
    assert torch.equal(mine(X), model(X))


@pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated:FutureWarning")
@pytest.mark.parametrize(
    "change",
    [
        parametrizations.weight_norm,
        parametrizations.orthogonal,
        parametrizations.spectral_norm,
        nn.utils.weight_norm,
        nn.utils.spectral_norm,
        lambda layer: prune.random_unstructured(layer, "weight", amount=0.5),
    ],
    ids=["weight norm", "orthogonal", "spectral norm", "old weight", "old spectral", "pruning"],
)
def test_a_computed_weight_becomes_its_value_and_the_users_layer_still_works(change):
    model = nn.Sequential(change(nn.Linear(4, 4))).eval()
    wanted = model(X)
    names = list(model.state_dict())
    mine = private_copy(model)

    assert [name for name, _ in mine.named_parameters()] == ["0.bias", "0.weight"]
    assert type(mine[0]) is nn.Linear
    assert (mine(X) - wanted).abs().max() <= 1e-6
    assert torch.equal(model(X), wanted)
    assert list(model.state_dict()) == names


def test_a_subclass_becomes_plain_only_where_it_changes_nothing():
    model = nn.Sequential(OnlyAnotherConstructor(), AnotherForward(4, 4)).eval()
    kinds = [type(module) for module in private_copy(model)]

    assert kinds == [nn.Linear, AnotherForward]
    assert type(model[0]) is OnlyAnotherConstructor


def test_activations_are_no_longer_in_place_but_the_users_are():
    model = nn.Sequential(nn.ReLU(inplace=True)).eval()

    assert private_copy(model)[0].inplace is False
    assert model[0].inplace is True


def test_a_module_in_training_mode_is_named():
    model = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Dropout())).eval()
    model[1][0].train()

    with pytest.raises(TrainingModeError, match=r"1\.0.*model\.eval\(\)") as caught:
        private_copy(model)
    assert caught.value.modules == ("1.0",)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_another_float_type_is_named_with_its_place(dtype):
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4).to(dtype)).eval()

    with pytest.raises(UnsupportedModelError, match=rf"1\.weight is {dtype}.*model\.float\(\)"):
        private_copy(model)


def test_hooks_on_the_model_itself_are_refused():
    model = nn.Sequential(nn.Linear(4, 4)).eval()
    model.register_forward_hook(lambda *_: None)

    with pytest.raises(UnsupportedModelError, match="the model itself has forward hooks"):
        private_copy(model)


def linear() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 4)).eval()


@pytest.mark.filterwarnings("ignore:.*torch.jit")
@pytest.mark.parametrize(
    ("model", "problem"),
    [
        (lambda: nn.DataParallel(linear()).eval(), "wrapped in DataParallel.*model.module"),
        (lambda: torch.compile(linear()), "wrapped in OptimizedModule.*torch.compile was given"),
        (lambda: torch.jit.script(linear()), "made by torch.jit.*that it was made from"),
        (lambda: torch.jit.trace(linear(), X), "made by torch.jit.*that it was made from"),
        (lambda: torch.export.export(linear(), (X,)).module(), "made by torch.export"),
    ],
    ids=["parallel", "compiled", "scripted", "traced", "exported"],
)
def test_what_was_made_of_a_model_is_refused_and_the_model_asked_for(model, problem):
    with pytest.raises(UnsupportedModelError, match=problem):
        private_copy(model())
