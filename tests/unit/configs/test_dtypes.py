"""Dtypes and the limits of kernels."""

from __future__ import annotations

import pickle

import pytest
import torch
from pydantic import ValidationError

from fusion_core.configs import BackendInfo, DTypeConfig, DTypeWithConstraints

LIMITED = DTypeWithConstraints(dtype=torch.qint8, quant_min_lower_bound=-127, scale_exact_match=0.5)


def test_a_plain_dtype_has_no_limits():
    config = DTypeConfig(input_dtype=torch.quint8, weight_dtype=LIMITED)
    assert config.constraints("input") == DTypeWithConstraints(dtype=torch.quint8)
    assert config.constraints("weight") is LIMITED
    assert config.constraints("output") == DTypeWithConstraints()


@pytest.mark.parametrize(
    ("limits", "what"),
    [
        (
            {"quant_min_lower_bound": 5, "quant_max_upper_bound": 5},
            "quantized range is empty: .* 5",
        ),
        ({"quant_min_lower_bound": 9, "quant_max_upper_bound": 1}, "bound 9 is not below .* 1"),
        ({"scale_min_lower_bound": 1.0, "scale_max_upper_bound": 0.5}, "scale range is empty"),
        ({"scale_exact_match": 0.0}, "scale_exact_match is 0.0; scales are above zero"),
        ({"scale_max_upper_bound": -1.0}, "scales are above zero"),
        ({"scale_exact_match": 0.5, "scale_min_lower_bound": 0.1}, "one or the other"),
        ({"dtype": torch.float16, "zero_point_exact_match": 0}, "float16 has no codes, so zero_p"),
        ({"dtype": "quint9"}, "'quint9' is not a torch dtype"),
        ({"dtype": 3}, "dtype"),
        ({"quant_min": 3}, "quant_min"),
    ],
)
def test_impossible_limits_are_refused(limits, what):
    with pytest.raises(ValidationError, match=what):
        DTypeWithConstraints(**limits)


def test_one_sided_limits_are_allowed():
    assert DTypeWithConstraints(scale_min_lower_bound=2**-12).scale_max_upper_bound is None


@pytest.mark.parametrize("name", ["quint8", "torch.quint8"])
def test_a_dtype_may_be_given_by_name(name):
    assert DTypeConfig(input_dtype=name) == DTypeConfig(input_dtype=torch.quint8)


@pytest.mark.parametrize("value", [DTypeConfig(), DTypeConfig(weight_dtype=LIMITED), LIMITED])
def test_dtype_configs_survive_pickle_and_json_and_hash_alike(value):
    restored = pickle.loads(pickle.dumps(value))  # noqa: S301  our own bytes
    read = type(value).model_validate_json(value.model_dump_json())
    assert restored == read == value
    assert len({restored, read, value}) == 1


def test_dtype_configs_cannot_be_changed():
    with pytest.raises(ValidationError, match="frozen"):
        LIMITED.dtype = torch.quint8


@pytest.mark.parametrize("field", ["api", "torch"])
def test_a_version_range_must_be_a_specifier(field):
    assert getattr(BackendInfo(**{field: ">=2.9,<3"}), field) == ">=2.9,<3"
    with pytest.raises(ValidationError, match=r"'newest' is not a version specifier such as"):
        BackendInfo(**{field: "newest"})
