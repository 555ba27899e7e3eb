from __future__ import annotations

import pytest
import torch

import fusion_core as core
from fusion_core.passes.dtypes import choose_dtype_config

SHORT = core.DTypeWithConstraints(
    dtype=torch.qint8, quant_min_lower_bound=-64, quant_max_upper_bound=63
)
FLOORED = core.DTypeWithConstraints(dtype=torch.quint8, scale_min_lower_bound=2**-12)
CAPPED = core.DTypeWithConstraints(dtype=torch.quint8, scale_max_upper_bound=0.5)
EXACT = core.DTypeWithConstraints(
    dtype=torch.quint8, scale_exact_match=1 / 256, zero_point_exact_match=0
)


def config(**options):
    return core.DTypeConfig(
        **{"input_dtype": torch.quint8, "output_dtype": torch.quint8, **options}
    )


def fixed(scale, zero_point):
    spec = core.ObserverSpec(core.nn.FixedQParamsObserver, scale=scale, zero_point=zero_point)
    return core.catalog.static_qconfig().model_copy(update={"output": spec})


STATIC = core.catalog.static_qconfig()
AT_ZERO = core.DTypeWithConstraints(dtype=torch.qint8, zero_point_exact_match=0)
SIGNED_AFFINE = core.QConfig(
    activation=core.ObserverSpec(core.nn.MinMaxObserver, dtype=torch.qint8), weight=STATIC.weight
)


@pytest.mark.parametrize(
    ("wanted", "qconfig", "problem"),
    [
        (config(weight_dtype=torch.qint8), STATIC, None),
        (config(weight_dtype=torch.int8), STATIC, None),
        (config(), STATIC, None),
        (config(input_dtype=torch.qint8), STATIC, "its input must be torch.qint8, .*torch.quint8"),
        (config(output_dtype=torch.float32), STATIC, "its output must be torch.float32"),
        (config(weight_dtype=SHORT), STATIC, r"its weight must have codes in \[-64, 63\]"),
        (config(input_dtype=FLOORED), STATIC, "its input must have a scale of at least"),
        (config(output_dtype=FLOORED), fixed(2**-13, 0), "at least .* smallest is 0.00012207"),
        (config(output_dtype=FLOORED), fixed(2**-11, 0), None),
        (config(output_dtype=CAPPED), STATIC, "a scale of at most 0.5, the qconfig's has no limit"),
        (
            config(output_dtype=CAPPED),
            fixed(1.0, 0),
            "a scale of at most 0.5, the qconfig's is 1.0",
        ),
        (config(output_dtype=CAPPED), fixed(0.25, 0), None),
        (config(output_dtype=EXACT), STATIC, "the fixed scale 0.00390625, .* measures it"),
        (config(output_dtype=EXACT), fixed(1 / 256, 0), None),
        (config(output_dtype=EXACT), fixed(1 / 128, 0), "the fixed scale .* gives 0.0078125"),
        (config(output_dtype=EXACT), fixed(1 / 256, 1), "the fixed zero point 0, .* gives 1"),
        (config(weight_dtype=AT_ZERO), STATIC, None),
        (config(input_dtype=AT_ZERO), SIGNED_AFFINE, "the fixed zero point 0, .* measures it"),
        (config(is_dynamic=True), STATIC, "the backend's kernel is dynamic"),
    ],
)
def test_a_qconfig_fits_a_kernel_or_it_is_said_why_not(wanted, qconfig, problem):
    chosen, reason = choose_dtype_config([wanted], qconfig, weighted=True)

    assert (chosen is wanted) == (problem is None)
    if problem is not None:
        with pytest.raises(AssertionError, match=problem):
            raise AssertionError(reason)


def test_the_weight_counts_only_where_there_is_one():
    wanted = config(weight_dtype=SHORT)

    assert choose_dtype_config([wanted], STATIC, weighted=False) == (wanted, "")


def test_the_first_combination_that_fits_is_taken_and_the_first_problem_reported():
    narrow, other = config(weight_dtype=SHORT), config(input_dtype=torch.qint8)
    wide = config(weight_dtype=torch.qint8)

    assert choose_dtype_config([narrow, wide], STATIC, weighted=True)[0] is wide
    assert "[-64, 63]" in choose_dtype_config([narrow, other], STATIC, weighted=True)[1]
    assert choose_dtype_config([], STATIC, weighted=True) == (
        None,
        "the backend lists no dtypes for it",
    )
