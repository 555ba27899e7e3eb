from __future__ import annotations

import pickle

import pytest
from pydantic import ValidationError
from torch import nn

import fusion_core as core
from fusion_core.configs import CustomConfig, Standalone


class Observed(nn.Module):
    @classmethod
    def from_float(cls, _module):
        return cls()


class Quantized(nn.Module):
    @classmethod
    def from_observed(cls, _observed):
        return cls()


def test_an_empty_config_says_nothing():
    assert list(CustomConfig().places()) == []


@pytest.mark.parametrize("field", ["non_traceable", "standalone"])
@pytest.mark.parametrize("alone", ["head", nn.Linear], ids=["name", "type"])
def test_one_place_that_is_not_in_a_container_is_refused(field, alone):
    with pytest.raises(ValidationError, match="give several, or one in a tuple"):
        CustomConfig(**{field: alone})


def test_places_are_names_and_types():
    config = CustomConfig(non_traceable=["a", nn.Linear], standalone={"b": Standalone()})

    assert list(config.places()) == [
        ("non_traceable", "a"),
        ("non_traceable", nn.Linear),
        ("standalone", "b"),
    ]


def test_an_observed_type_without_a_quantized_one_is_refused():
    with pytest.raises(ValidationError, match="quantized_modules does not say what becomes of"):
        CustomConfig(observed_modules={nn.Linear: Observed})


@pytest.mark.parametrize(
    ("field", "constructor"),
    [("observed_modules", "from_float"), ("quantized_modules", "from_observed")],
)
def test_a_type_that_cannot_be_made_is_refused(field, constructor):
    with pytest.raises(ValidationError, match=f"Linear has no {constructor}"):
        CustomConfig(**{field: {nn.ReLU: nn.Linear}})


def test_a_misspelt_field_is_refused():
    with pytest.raises(ValidationError, match="standalones"):
        CustomConfig(standalones={})


def test_what_is_no_backend_is_refused():
    with pytest.raises(ValidationError, match="3 is no backend; give its name"):
        Standalone(backend=3)


def test_a_pickled_standalone_has_its_backend_by_name():
    backend = core.get_backend("fbgemm")
    restored = pickle.loads(pickle.dumps(Standalone(backend=backend)))  # noqa: S301  our own

    assert restored.backend == "fbgemm"


def test_a_config_is_pickled_whole():
    config = CustomConfig(
        non_traceable=("a", nn.Linear),
        observed_modules={nn.ReLU: Observed},
        quantized_modules={Observed: Quantized},
        quantized_inputs=("x",),
    )

    assert pickle.loads(pickle.dumps(config)) == config  # noqa: S301  our own
