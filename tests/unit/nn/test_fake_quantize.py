"""What fake quantization gives, passes back, remembers and refuses."""

from __future__ import annotations

import copy
import io
import math
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fusion_core import qops
from fusion_core.errors import NonFiniteActivationError
from fusion_core.nn import (
    FakeQuantize,
    FixedQParamsObserver,
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
    PerChannelMinMaxObserver,
    PlaceholderObserver,
)
from fusion_core.nn.switches import observing

finite = st.floats(-100, 100, width=32)
values = st.lists(finite, min_size=1, max_size=20).map(torch.tensor)
ranges = st.tuples(finite, finite).filter(lambda ends: abs(ends[0] - ends[1]) > 1e-3)
codes = st.sampled_from(
    [
        {"dtype": torch.quint8},
        {"dtype": torch.quint8, "quant_max": 127},
        {"dtype": torch.quint8, "quant_max": 15},
        {"dtype": torch.qint8},
        {"dtype": torch.qint8, "quant_min": -8, "quant_max": 7},
        {"dtype": torch.qint8, "qscheme": torch.per_tensor_symmetric},
        {"dtype": torch.quint8, "qscheme": torch.per_tensor_symmetric},
    ]
)
KINDS = {
    "least and greatest": {"observer": MinMaxObserver},
    "moving": {"observer": MovingAverageMinMaxObserver, "averaging_constant": 0.5},
    "by channel": {"observer": PerChannelMinMaxObserver, "ch_axis": 1},
    "moving by channel": {"observer": MovingAveragePerChannelMinMaxObserver, "ch_axis": 1},
    "fixed": {"observer": FixedQParamsObserver, "scale": 1 / 256, "zero_point": 0},
    "for embeddings": {
        "observer": PerChannelMinMaxObserver,
        "dtype": torch.quint4x2,
        "qscheme": torch.per_channel_affine_float_qparams,
    },
}
of_every_kind = pytest.mark.parametrize("options", KINDS.values(), ids=KINDS)


def ranged(low, high, **options):
    """Fake quantization that has seen ``low`` and ``high`` and moves no more."""
    made = FakeQuantize(MinMaxObserver, **options)
    made(torch.tensor([low, high]))
    return made.eval()


def batches(count=3):
    source = torch.Generator().manual_seed(0)
    return [torch.randn(2, 3, 5, generator=source) * (i + 1) for i in range(count)]


def fed(*tensors, **options):
    made = FakeQuantize(**options)
    for each in tensors:
        made(each)
    return made


def gradient(made, x):
    x = x.clone().requires_grad_()
    made(x).sum().backward()
    return x.grad


@settings(max_examples=25, deadline=None)
@given(values, ranges, codes)
def test_values_are_those_of_the_converted_model_bit_by_bit(x, ends, options):
    made = ranged(*ends, **options)
    scale, zero_point = float(made.scale), int(made.zero_point)
    limits = made.quant_min, made.quant_max, qops.storage_dtype(made.dtype)
    of_codes = qops.quantize_per_tensor(x, scale, zero_point, *limits)

    assert torch.equal(made(x), qops.dequantize_per_tensor(of_codes, scale, zero_point))


@settings(max_examples=25, deadline=None)
@given(values, ranges, codes)
def test_values_are_those_of_pytorch_but_for_halves(x, ends, options):
    made = ranged(*ends, **options)
    want = torch.fake_quantize_per_tensor_affine(
        x, float(made.scale), int(made.zero_point), made.quant_min, made.quant_max
    )
    steps = x.double() / float(made.scale)
    is_half = ((steps - steps.floor()) - 0.5).abs() < 1e-3

    off = (made(x) - want).abs()
    assert (off[~is_half] <= 1e-6 * want[~is_half].abs()).all()
    assert (off <= 1.001 * made.scale).all()


@settings(max_examples=25, deadline=None)
@given(values, ranges, codes)
def test_the_gradient_is_one_within_the_range_and_zero_where_values_are_clipped(x, ends, options):
    made = ranged(*ends, **options)
    code = x.double() / made.scale.double() + int(made.zero_point)
    inside = (code >= made.quant_min - 0.5) & (code <= made.quant_max + 0.5)
    # At the very ends float32 may round to either side.
    on_edge = ((code - made.quant_min + 0.5).abs() < 0.01) | (
        (code - made.quant_max - 0.5).abs() < 0.01
    )
    found = gradient(made, x)

    assert torch.equal(found[~on_edge], inside[~on_edge].float())
    assert set(found.tolist()) <= {0.0, 1.0}


@settings(max_examples=15, deadline=None)
@given(st.lists(values, min_size=1, max_size=6), st.floats(0.01, 1))
def test_a_moving_range_is_the_average_of_the_ends_of_the_batches(seen, share):
    made = fed(*seen, observer=MovingAverageMinMaxObserver, averaging_constant=share)
    low, high = float(seen[0].min()), float(seen[0].max())
    for batch in seen[1:]:
        low += share * (float(batch.min()) - low)
        high += share * (float(batch.max()) - high)
    want = max((max(high, 0) - min(low, 0)) / 255, torch.finfo(torch.float32).eps)

    assert float(made.scale) == pytest.approx(want, rel=1e-4, abs=1e-6)


@given(st.integers(-2, 1), st.integers(0, 2**31))
@settings(max_examples=15, deadline=None)
def test_channels_are_rounded_as_if_each_were_alone(axis, seed):
    x = torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(seed)) * torch.tensor(
        [0.01, 1, 7, 100, 0]
    )
    made = fed(x, observer=PerChannelMinMaxObserver, ch_axis=axis)
    one_by_one = [fed(each, observer=MinMaxObserver)(each) for each in x.unbind(axis)]

    assert torch.equal(made(x), torch.stack(one_by_one, axis))
    assert made.scale.shape == made.zero_point.shape == (x.shape[axis],)


def test_gradients_are_clipped_by_the_range_of_their_own_channel():
    x = torch.tensor([[1.0, -1.0], [100.0, -100.0]])
    made = fed(x, observer=PerChannelMinMaxObserver).eval()

    wide = torch.full((2, 2), 50.0)
    assert gradient(made, wide).tolist() == [[0, 0], [1, 1]]


def test_float_zero_points_keep_fractions():
    x = torch.tensor([[0.3, 1.7, 0.9]])
    made = fed(x, **KINDS["for embeddings"]).for_weight(x)

    assert made.zero_point.dtype == torch.float32
    assert made.zero_point.frac().abs() > 0
    assert (made(x) - x).abs().max() <= 0.501 * made.scale


def test_a_dynamic_range_is_that_of_each_tensor_and_clips_nothing():
    made = FakeQuantize(MinMaxObserver, is_dynamic=True)
    for scale in (0.01, 1, 100):
        x = scale * torch.linspace(-1, 2, 50)
        assert (made(x) - x).abs().max() <= 0.501 * 3 * scale / 255
        assert torch.equal(gradient(made, x), torch.ones(50))
    assert not made.observed


@pytest.mark.parametrize("symmetric", [False, True])
def test_a_dynamic_range_is_the_one_of_the_converted_model(symmetric):
    scheme = torch.per_tensor_symmetric if symmetric else torch.per_tensor_affine
    made = FakeQuantize(MinMaxObserver, is_dynamic=True, qscheme=scheme, dtype=torch.qint8)
    x = batches()[0]
    chosen = qops.quantize_per_tensor_dynamic(x, -128, 127, torch.int8, symmetric, float(made.eps))

    assert torch.equal(made(x), qops.dequantize_dynamic(chosen))


def test_until_there_is_a_range_values_pass_as_they_are():
    made, x = FakeQuantize(MinMaxObserver).eval(), batches()[0]

    assert made(x) is x
    assert not made.observed
    with pytest.warns(UserWarning, match="recorded no data"):
        made.calculate_qparams()


def test_a_float_dtype_rounds_nothing():
    made = FakeQuantize(PlaceholderObserver, dtype=torch.float16)
    x = batches()[0]

    assert made(x) is x


def test_ranges_move_in_training_only_or_where_they_are_told_to():
    made, x = fed(torch.tensor([-1.0, 1.0]), observer=MinMaxObserver), torch.tensor([-8.0, 8.0])
    before = made.scale.clone()
    made.eval()(x)
    assert torch.equal(made.scale, before)

    with observing(made):
        made(x)
    assert float(made.scale) == pytest.approx(16 / 255)
    assert not made.training


@pytest.mark.parametrize("moves", [False, True])
@pytest.mark.parametrize("rounds", [False, True])
def test_moving_and_rounding_are_switched_apart(moves, rounds):
    made, x = fed(torch.tensor([-1.0, 1.0]), observer=MinMaxObserver), torch.tensor([-8.0, 0.3])
    made.observer_enabled.fill_(int(moves))
    made.fake_quantize_enabled.fill_(int(rounds))
    out = made(x)

    assert float(made.observer.min_val) == (-8 if moves else -1)
    assert torch.equal(out, x) is not rounds
    if rounds:
        assert out[0] == pytest.approx(-8 if moves else -1, abs=0.05)


def test_what_is_switched_off_can_be_read():
    made = FakeQuantize(MinMaxObserver)
    assert "enabled" not in repr(made)
    made.observer_enabled.fill_(0)
    assert "observer_enabled=False" in repr(made)
    assert "fake_quantize_enabled" not in repr(made)


@of_every_kind
@pytest.mark.parametrize("count", [0, 2], ids=["unobserved", "observed"])
def test_a_state_dict_makes_another_one_the_same(options, count):
    made, x = fed(*batches(count), **options), batches()[0]
    made.fake_quantize_enabled.fill_(count > 0)
    stream = io.BytesIO()
    torch.save(made.state_dict(), stream)
    stream.seek(0)
    other = FakeQuantize(**options)
    other.load_state_dict(torch.load(stream))

    assert _same_state(made, other)
    assert torch.equal(made.eval()(x), other.eval()(x))
    assert torch.equal(made.train()(x), other.train()(x))


@of_every_kind
def test_a_state_of_before_any_data_undoes_what_was_observed(options):
    fresh, made = FakeQuantize(**options), fed(*batches(), **options)
    made.load_state_dict(fresh.state_dict())

    assert made.observed == fresh.observed
    assert _same_state(made, fresh)


@of_every_kind
@pytest.mark.parametrize("again", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])  # noqa: S301
def test_a_copy_is_the_same_and_goes_its_own_way(options, again):
    first, second, _ = batches()
    made = fed(first, **options)
    copied = again(made)
    assert _same_state(made, copied)

    before = copy.deepcopy(made.state_dict())
    copied(10 * second)
    assert all(torch.equal(each, before[name]) for name, each in made.state_dict().items())


def test_the_state_of_a_weight_by_channel_fits_before_anything_was_observed():
    weight = torch.randn(6, 4)
    untouched, used = (
        FakeQuantize(MovingAveragePerChannelMinMaxObserver, averaging_constant=1.0).for_weight(
            weight
        )
        for _ in range(2)
    )
    shapes = {name: each.shape for name, each in untouched.state_dict().items()}
    used(weight)

    assert {name: each.shape for name, each in used.state_dict().items()} == shapes
    untouched.load_state_dict(used.state_dict())
    assert torch.equal(untouched.eval()(weight), used.eval()(weight))


def test_a_weight_is_rounded_to_what_its_codes_stand_for():
    weight = torch.randn(6, 4)
    made = FakeQuantize(
        PerChannelMinMaxObserver, dtype=torch.qint8, qscheme=torch.per_channel_symmetric
    ).for_weight(weight)
    rounded = made(weight)

    assert torch.equal(rounded, made.quantized(weight).dequantize())
    assert torch.equal(gradient(made.eval(), weight), torch.ones(6, 4))


def test_a_channel_that_is_counted_from_the_last_is_named_from_the_first_in_the_codes():
    weight = torch.randn(6, 4)
    last, first = (
        FakeQuantize(PerChannelMinMaxObserver, ch_axis=axis).for_weight(weight) for axis in (-2, 0)
    )

    assert torch.equal(last(weight), first(weight))
    assert last.quantized(weight).axis == 0


def test_merging_least_and_greatest_is_as_if_one_had_seen_all():
    first, second, third = batches()
    made, other = (
        fed(first, observer=MinMaxObserver),
        fed(second, third, observer=MinMaxObserver),
    )
    before = copy.deepcopy(other.state_dict())
    made.merge(other)

    assert _same_state(made, fed(first, second, third, observer=MinMaxObserver))
    assert all(torch.equal(each, before[name]) for name, each in other.state_dict().items())


def test_merging_moving_ranges_weighs_by_the_number_of_batches():
    narrow, wide = torch.tensor([0.0, 1.0]), torch.tensor([0.0, 9.0])
    made = fed(narrow, observer=MovingAverageMinMaxObserver)
    made.merge(fed(wide, wide, wide, observer=MovingAverageMinMaxObserver))

    assert float(made.scale) == pytest.approx(7 / 255)
    assert int(made.observer.batches) == 4


def test_merging_with_what_has_seen_nothing_changes_nothing():
    made = fed(*batches(), observer=MinMaxObserver)
    before = copy.deepcopy(made.state_dict())
    made.merge(FakeQuantize(MinMaxObserver))
    assert all(torch.equal(each, before[name]) for name, each in made.state_dict().items())


@pytest.mark.parametrize(
    ("other", "error", "says"),
    [
        (MinMaxObserver(), TypeError, "MinMaxObserver into FakeQuantize"),
        (FakeQuantize(MovingAverageMinMaxObserver), TypeError, "MovingAverageMinMaxObserver"),
        (FakeQuantize(MinMaxObserver, dtype=torch.qint8), ValueError, "dtype"),
    ],
)
def test_only_what_is_alike_is_merged(other, error, says):
    with pytest.raises(error, match=says):
        FakeQuantize(MinMaxObserver).merge(other)


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_a_value_that_is_not_finite_is_refused_by_the_name_of_the_place(wrong):
    made = FakeQuantize(MinMaxObserver)
    made.label = "head.output"
    with pytest.raises(NonFiniteActivationError, match=r"head\.output"):
        made(torch.tensor([0.0, wrong]))
    assert not made.observed


def test_integers_are_refused():
    with pytest.raises(TypeError, match="int64"):
        FakeQuantize(MinMaxObserver)(torch.arange(3))


@pytest.mark.parametrize("kind", [torch.nn.Identity, FakeQuantize])
def test_only_an_observer_can_choose_the_range(kind):
    with pytest.raises(TypeError, match=f"which builds {kind.__name__}"):
        FakeQuantize(kind)


def test_half_precision_comes_out_as_it_went_in():
    made, x = fed(batches()[0], observer=MinMaxObserver).eval(), batches()[0].half()
    assert made(x).dtype == torch.float16
    assert gradient(made, x).dtype == torch.float16


def test_an_empty_batch_moves_nothing():
    made = fed(torch.empty(0, 3), observer=MinMaxObserver)
    assert not made.observed


def _same_state(one, other):
    mine, theirs = one.state_dict(), other.state_dict()
    return mine.keys() == theirs.keys() and all(
        torch.equal(each, theirs[name]) for name, each in mine.items()
    )
