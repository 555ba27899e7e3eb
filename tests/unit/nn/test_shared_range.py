"""A moving range that several values of one run share moves once in a run, towards the extremes of all of them."""

from __future__ import annotations

import copy

import pytest
import torch

from fusion_core.errors import NonFiniteActivationError
from fusion_core.nn import FakeQuantize, MovingAverageMinMaxObserver

SMALL, LARGE = torch.tensor([-0.5, 0.25]), torch.tensor([-4.0, 8.0])


def shared(places=2, **options):
    observer = MovingAverageMinMaxObserver(averaging_constant=0.5, **options)
    observer.places = places
    return observer


def ends(observer):
    return [float(observer.min_val), float(observer.max_val)]


def test_the_first_run_gives_the_union_of_what_it_has_shown_so_far():
    observer = shared()
    observer(SMALL)
    assert ends(observer) == [-0.5, 0.25]

    observer(LARGE)
    assert ends(observer) == [-4, 8]
    assert int(observer.batches) == 1


def test_it_moves_once_all_values_of_a_run_are_there():
    observer = shared()
    for value in (SMALL, LARGE, 2 * LARGE):
        observer(value)
    assert ends(observer) == [-4, 8]

    observer(SMALL)
    assert ends(observer) == [-6, 12]
    assert int(observer.batches) == 2


def test_a_run_that_breaks_off_shifts_the_places_and_loses_nothing():
    observer = shared()
    observer(SMALL)  # and then the model fails
    for _ in range(20):
        observer(SMALL)
        observer(LARGE)

    assert ends(observer) == pytest.approx([-4, 8], abs=1e-3)


def test_a_value_that_is_not_finite_is_refused_at_once():
    observer = shared()
    with pytest.raises(NonFiniteActivationError):
        observer(torch.tensor([float("inf")]))
    observer(SMALL)

    assert ends(observer) == [-0.5, 0.25]


def test_a_copy_goes_on_where_the_original_was():
    observer = shared()
    for value in (SMALL, LARGE, 2 * LARGE):
        observer(value)
    copied = copy.deepcopy(observer)
    copied(SMALL)

    assert ends(copied) == [-6, 12]
    assert ends(observer) == [-4, 8]


def test_a_fake_quantization_rounds_with_the_range_of_all_its_places():
    fake = FakeQuantize(dtype=torch.quint8, averaging_constant=1).train()
    fake.observer.places = 2
    for value in (SMALL, LARGE) * 3:
        fake(value)

    assert (fake(LARGE) - LARGE).abs().max() <= 12 / 255
