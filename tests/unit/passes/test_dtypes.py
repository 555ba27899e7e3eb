from __future__ import annotations

import pytest
import torch

import fusion_core as core
from fusion_core.passes.dtypes import allows_float_output, choose_dtype_config

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


BELOW = core.DTypeWithConstraints(dtype=torch.qint8, quant_max_upper_bound=63)
ABOVE = core.DTypeWithConstraints(dtype=torch.qint8, quant_min_lower_bound=-64)
FREE = core.DTypeWithConstraints(quant_min_lower_bound=0)
DYNAMIC = config(output_dtype=torch.float32, weight_dtype=torch.qint8, is_dynamic=True)
HALF = core.DTypeConfig(
    input_dtype=torch.float32, output_dtype=torch.float32, weight_dtype=torch.float16
)
ROWS = HALF.model_copy(update={"weight_dtype": torch.quint8})
AT_RUN_TIME, HALF_WEIGHTS = core.catalog.dynamic_qconfig(), core.catalog.float16_qconfig()
FLOAT_OUTPUT = STATIC.model_copy(update={"output": HALF_WEIGHTS.activation})


def given(activation, weight):
    """A qconfig of these dtypes, of which nothing else is known."""
    return core.QConfig(
        activation=core.ObserverSpec(core.nn.PlaceholderObserver, dtype=activation),
        weight=core.ObserverSpec(core.nn.PlaceholderObserver, dtype=weight),
    )


def with_bias(dtype):
    bias = core.ObserverSpec(core.nn.PlaceholderObserver, dtype=dtype)
    return STATIC.model_copy(update={"bias": bias})


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
        (
            config(weight_dtype=BELOW),
            STATIC,
            r"weight must have codes of at most 63, .* \[-128, 127\]",
        ),
        (config(weight_dtype=ABOVE), STATIC, r"of at least -64, the qconfig gives \[-128, 127\]"),
        (
            config(input_dtype=FREE),
            FLOAT_OUTPUT,
            "its output must be torch.quint8, .* torch.float32",
        ),
        (config(output_dtype=FREE), FLOAT_OUTPUT, "output must have codes .* says nothing of its"),
        (config(bias_dtype=torch.float32), STATIC, None),
        (config(bias_dtype=torch.qint32), STATIC, "its bias must be torch.qint32, .*torch.float32"),
        (config(bias_dtype=torch.qint32), with_bias(torch.qint32), None),
        (
            config(bias_dtype=torch.float32),
            with_bias(torch.float16),
            "its bias must be torch.float32",
        ),
        (config(), with_bias(torch.float16), None),
        (DYNAMIC, AT_RUN_TIME, None),
        (config(is_dynamic=True), AT_RUN_TIME, "its output must be torch.quint8, .* torch.float32"),
        (config(), AT_RUN_TIME, "the qconfig is dynamic, the backend's kernel is not"),
        (
            DYNAMIC.model_copy(update={"weight_dtype": SHORT}),
            AT_RUN_TIME,
            "its weight must have cod",
        ),
        (HALF, HALF_WEIGHTS, None),
        (ROWS, core.catalog.weight_only_qconfig(), None),
        (ROWS, HALF_WEIGHTS, "its weight must be torch.quint8, the qconfig gives torch.float16"),
        (config(), HALF_WEIGHTS, "its input must be torch.quint8, the qconfig gives torch.float32"),
        (HALF, STATIC, "its input must be torch.float32, the qconfig gives torch.quint8"),
        (
            core.DTypeConfig(),
            given(torch.float32, torch.float32),
            "weight torch.float32, which is n",
        ),
        (
            core.DTypeConfig(),
            given(torch.float16, torch.qint8),
            "input torch.float16, which has no",
        ),
        (
            core.DTypeConfig(),
            given(torch.quint8, torch.float32),
            "weight torch.float32, which is n",
        ),
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


@pytest.mark.parametrize("qconfig", [AT_RUN_TIME, HALF_WEIGHTS])
def test_without_a_weight_only_static_quantization_means_something(qconfig):
    chosen, reason = choose_dtype_config([DYNAMIC, HALF], qconfig, weighted=False)

    assert chosen is None
    assert reason.endswith("and it has no weight")


@pytest.mark.parametrize(
    ("wanted", "allowed"),
    [
        (config(output_dtype=torch.float32), True),
        (config(), False),
        (config(output_dtype=torch.float32, is_dynamic=True), False),
        (config(output_dtype=torch.float32, weight_dtype=SHORT), False),
        (config(output_dtype=torch.float32, bias_dtype=torch.qint32), False),
        (config(output_dtype=torch.float32, input_dtype=torch.qint8), False),
    ],
)
def test_a_float_output_is_taken_only_where_all_else_fits(wanted, allowed):
    assert allows_float_output([wanted], STATIC) is allowed


def test_the_first_combination_that_fits_is_taken_and_the_first_problem_reported():
    narrow, other = config(weight_dtype=SHORT), config(input_dtype=torch.qint8)
    wide = config(weight_dtype=torch.qint8)

    assert choose_dtype_config([narrow, wide], STATIC, weighted=True)[0] is wide
    assert "[-64, 63]" in choose_dtype_config([narrow, other], STATIC, weighted=True)[1]
    assert choose_dtype_config([], STATIC, weighted=True) == (
        None,
        "the backend lists no dtypes for it",
    )
