from __future__ import annotations

import pytest
import torch
from torch import nn

import fusion_core as core
from fusion_core.errors import CalibrationError, NonFiniteActivationError

X = torch.randn(4, 6)


@pytest.fixture
def model(backend, linear, prepared):
    return prepared(nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 2)), backend(linear), X)


@pytest.mark.parametrize("data", [[], (x for x in ())], ids=["list", "generator"])
def test_empty_data_are_refused(model, data):
    with pytest.raises(CalibrationError, match="the calibration data are empty"):
        core.calibrate(model, data)


@pytest.mark.parametrize(
    ("item", "shown"),
    [
        ((X, X), "tuple of 2"),
        ({"y": X}, "dict of 1"),
        ([X, 1], "list of 2"),
        (None, "NoneType"),
        (X[:, :5], "Tensor of 4"),
    ],
    ids=["too many", "a wrong name", "labels", "None", "a wrong shape"],
)
def test_an_item_that_does_not_fit_is_named_by_its_index(model, item, shown):
    with pytest.raises(CalibrationError, match=rf"calibration item 1 \({shown}\) is no input"):
        core.calibrate(model, [X, item])


@pytest.mark.parametrize(
    "data",
    [[X], [(X,)], [[X]], [{"input": X}], iter([X])],
    ids=["", "tuple", "list", "dict", "iter"],
)
def test_items_come_in_any_of_these_forms(model, data):
    assert core.calibrate(model, data) is model
    assert core.convert(model)(X).shape == (4, 2)


def test_labels_are_left_out_on_request(model):
    assert core.calibrate(model, [(X, 3), ((X,), 4)], has_labels=True) is model


def test_no_more_than_the_limit_is_read(model):
    read = []

    def data():
        for index in range(9):
            read.append(index)
            yield X

    core.calibrate(model, data(), limit=2)

    assert read == [0, 1]


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_values_that_are_not_finite_name_the_place(model, bad):
    with pytest.raises(NonFiniteActivationError, match="the input input_1 of 0 contains"):
        core.calibrate(model, [torch.full((1, 6), bad)])


def test_data_that_leave_observers_without_a_value_are_refused_by_naming_the_places(model):
    with pytest.raises(
        CalibrationError, match=r"never reached: the output of 0, the input input_1 of 0"
    ):
        core.calibrate(model, [X[:0]])


def test_calibrating_twice_adds_to_what_was_seen(backend, linear, prepared):
    toy = backend(linear)
    layer = nn.Sequential(nn.Linear(6, 4))
    twice = core.calibrate(core.calibrate(prepared(layer, toy, X), [X]), [10 * X])
    once = core.calibrate(prepared(layer, toy, X), [X])

    assert _scale(core.convert(twice)) > 5 * _scale(core.convert(once))


def _scale(model):
    return next(n for n in model.graph.nodes if n.target is core.qops.quantize_per_tensor).args[1]


def test_the_prepared_model_computes_what_the_float_model_does(model):
    layers = model.get_submodule("0"), model.get_submodule("1")

    assert torch.equal(model(X), layers[1](layers[0](X)))


def test_has_labels_without_labels_is_refused_and_not_cut_in_pieces(model):
    with pytest.raises(CalibrationError, match=r"wants pairs .* a Tensor"):
        core.calibrate(model, [X], has_labels=True)
