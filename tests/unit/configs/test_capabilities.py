"""What a backend says it does not support."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from fusion_core.configs import CAPABILITIES, BackendInfo


def test_what_is_not_named_as_a_gap_is_claimed():
    assert {BackendInfo().gap(name) for name in CAPABILITIES} == {None}


def test_a_glob_names_all_it_fits():
    info = BackendInfo(gaps={"conv2d.*": "the plain one only", "*norm*": "no norms"})
    assert info.gap("conv2d.batch_norm") == "the plain one only"
    assert info.gap("conv2d") is None
    assert info.gap("layer_norm") == info.gap("linear.batch_norm") == "no norms"


def test_an_exact_name_beats_a_glob_whatever_the_order():
    for gaps in ({"conv*": "a", "conv2d": "b"}, {"conv2d": "b", "conv*": "a"}):
        assert BackendInfo(gaps=gaps).gap("conv2d") == "b"


def test_a_gap_that_names_no_capability_is_refused_with_those_there_are():
    with pytest.raises(ValidationError, match="'conv4d' names no capability; there are conv1d, "):
        BackendInfo(gaps={"conv4d": "no kernel"})


@pytest.mark.parametrize("reason", ["", "  "])
def test_a_gap_without_a_reason_is_refused(reason):
    with pytest.raises(ValidationError, match="'lstm' has no reason"):
        BackendInfo(gaps={"lstm": reason})


def test_each_capability_has_a_name_and_says_what_it_is():
    assert len(CAPABILITIES) >= 40
    assert all(text and text[0] not in " ." for text in CAPABILITIES.values())
