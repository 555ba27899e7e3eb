"""What every observer promises, and what each of those that keep a range adds."""

from __future__ import annotations

import copy
import pickle
from typing import TYPE_CHECKING, Any

import pytest
import torch

from fusion_core.errors import NonFiniteActivationError
from fusion_core.nn import (
    FixedQParamsObserver,
    HistogramObserver,
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
    Observer,
    PerChannelMinMaxObserver,
    PlaceholderObserver,
)

if TYPE_CHECKING:
    from types import ModuleType

EPS = torch.finfo(torch.float32).eps
PER_TENSOR = (MinMaxObserver, MovingAverageMinMaxObserver, HistogramObserver)
PER_CHANNEL = (PerChannelMinMaxObserver, MovingAveragePerChannelMinMaxObserver)
RECORDING = (*PER_TENSOR, *PER_CHANNEL)
AVERAGING = (MovingAverageMinMaxObserver, MovingAveragePerChannelMinMaxObserver)
every_recorder = pytest.mark.parametrize("kind", RECORDING)


@pytest.fixture
def oracle() -> ModuleType:
    """PyTorch's own observers."""
    return pytest.importorskip("torch.ao.quantization.observer")


def fed(observer: Observer, *batches: torch.Tensor) -> Observer:
    for batch in batches:
        observer(batch)
    return observer


def batches(count: int = 3) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(4, 6, 5, generator=generator) * (i + 1) for i in range(count)]


def same_qparams(one: Any, other: Any) -> bool:
    return all(
        torch.equal(a, b.to(a.dtype))
        for a, b in zip(one.calculate_qparams(), other.calculate_qparams(), strict=True)
    )


def placeholder() -> PlaceholderObserver:
    return PlaceholderObserver(dtype=torch.float16)


def fixed() -> FixedQParamsObserver:
    return FixedQParamsObserver(scale=1 / 256, zero_point=0)


@pytest.mark.parametrize("make", [*RECORDING, placeholder, fixed])
def test_the_very_tensor_given_is_returned_unchanged_and_still_differentiable(make: Any) -> None:
    x = torch.randn(3, 4, requires_grad=True)
    before = x.detach().clone()
    assert make()(x) is x
    assert torch.equal(x, before)
    assert x.requires_grad


@every_recorder
def test_statistics_keep_no_autograd_graph(kind: type[Observer]) -> None:
    observer = fed(kind(), torch.randn(3, 4, requires_grad=True), torch.ones(3, 4) * 9)
    assert not any(buffer.requires_grad for buffer in observer.buffers())


@every_recorder
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_one_non_finite_value_is_refused_by_the_name_of_its_place(
    kind: type[Observer], bad: float
) -> None:
    observer = kind()
    observer.label = "features.3"
    x = torch.randn(4, 3)
    x[1, 1] = bad
    with pytest.raises(NonFiniteActivationError, match=r"features\.3"):
        observer(x)
    assert not observer.observed


@every_recorder
def test_a_double_beyond_float32_counts_as_infinite(kind: type[Observer]) -> None:
    with pytest.raises(NonFiniteActivationError):
        kind()(torch.full((2, 2), 1e300, dtype=torch.float64))


@every_recorder
def test_a_refused_batch_leaves_the_statistics_alone(kind: type[Observer]) -> None:
    observer = fed(kind(), *batches())
    before = copy.deepcopy(observer.state_dict())
    with pytest.raises(NonFiniteActivationError):
        observer(torch.full((4, 6, 5), float("nan")))
    assert all(torch.equal(value, before[name]) for name, value in observer.state_dict().items())


@every_recorder
@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.complex64])
def test_what_is_not_floating_is_a_type_error_that_names_its_place(
    kind: type[Observer], dtype: torch.dtype
) -> None:
    observer = kind()
    observer.label = "token_ids"
    with pytest.raises(TypeError, match="token_ids"):
        observer(torch.ones(2, 2, dtype=dtype))


@every_recorder
def test_an_empty_tensor_is_ignored(kind: type[Observer]) -> None:
    observer = fed(kind(), torch.empty(0, 4))
    assert not observer.observed
    assert same_qparams(fed(observer, *batches(), torch.empty(0, 4)), fed(kind(), *batches()))


@every_recorder
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_precisions_are_recorded_as_float32(kind: type[Observer], dtype: torch.dtype) -> None:
    given = [batch.to(dtype) for batch in batches()]
    observer = fed(kind(), *given)
    assert same_qparams(observer, fed(kind(), *(batch.float() for batch in given)))
    floating = [buffer for buffer in observer.buffers() if buffer.is_floating_point()]
    assert {buffer.dtype for buffer in floating} == {torch.float32}


@every_recorder
@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize(
    "values",
    [[0.0, 0.0], [3.0, 3.0], [-2.0, -2.0], [1e-44, 3e-44], [-1e-30, 1e-30], [-3.4e38, 3.4e38],
     [0.0, 3.4e38], [1e13, 2e13], [-1e20, 1.0]],
)  # fmt: skip
def test_every_range_gives_a_finite_scale_and_a_zero_point_in_range(
    kind: type[Observer],
    symmetric: bool,  # noqa: FBT001
    values: list[float],
) -> None:
    observer = kind(qscheme=kind.schemes[symmetric], dtype=torch.qint8)
    row = torch.tensor([values])
    scale, zero_point = fed(observer, row, row / 2, row).calculate_qparams()
    assert scale.isfinite().all()
    assert (scale >= EPS).all()
    assert ((zero_point >= -128) & (zero_point <= 127)).all()


@every_recorder
def test_parameters_are_float32_scales_and_integer_zero_points_one_per_channel(
    kind: type[Observer],
) -> None:
    scale, zero_point = fed(kind(), *batches()).calculate_qparams()
    shape = (4,) if kind in PER_CHANNEL else (1,)
    assert scale.shape == zero_point.shape == shape
    assert scale.dtype == torch.float32
    assert zero_point.dtype == torch.int32


@every_recorder
def test_without_data_there_is_a_warning_that_names_the_place(kind: type[Observer]) -> None:
    observer = kind()
    observer.label = "head.fc"
    assert not observer.observed
    with pytest.warns(UserWarning, match=r"head\.fc has recorded no data"):
        scale, zero_point = observer.calculate_qparams()
    assert (scale.item(), zero_point.item()) == (1.0, 0)


@every_recorder
@pytest.mark.parametrize("data", [0, 3])
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda o: pickle.loads(pickle.dumps(o))])  # noqa: S301
def test_copies_and_pickles_are_equal_and_go_their_own_way(
    kind: type[Observer], data: int, copied: Any
) -> None:
    observer = fed(kind(), *batches(data))
    observer.label = "layer"
    twin = copied(observer)
    assert twin.label == "layer"
    assert twin.observed == observer.observed
    fed(twin, torch.full((4, 6, 5), 99.0))
    assert twin.observed
    assert observer.observed == bool(data)


@every_recorder
def test_a_state_dict_loads_into_a_fresh_observer(kind: type[Observer]) -> None:
    observer = fed(kind(), *batches())
    twin = kind()
    twin.load_state_dict(observer.state_dict())
    assert same_qparams(twin, observer)
    more = torch.randn(4, 6, 5) * 9
    assert same_qparams(fed(twin, more), fed(observer, more))


@every_recorder
def test_statistics_of_pytorchs_observers_load_as_they_are(
    kind: type[Observer], oracle: ModuleType
) -> None:
    theirs = fed(getattr(oracle, kind.__name__)(), *batches())
    ours = kind()
    ours.load_state_dict(theirs.state_dict())
    assert ours.observed
    assert same_qparams(ours, theirs)


@pytest.mark.parametrize("kind", [*PER_TENSOR, *PER_CHANNEL])
@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize(
    ("dtype", "levels"),
    [
        (torch.quint8, {}),
        (torch.uint8, {}),
        (torch.quint8, {"quant_min": 0, "quant_max": 255}),
        (torch.quint8, {"quant_min": 0, "quant_max": 127}),
        (torch.qint8, {}),
        (torch.int8, {"quant_min": -127, "quant_max": 127}),
        (torch.qint8, {"quant_min": -8, "quant_max": 7}),
    ],
)
@pytest.mark.parametrize("shift", [-30.0, 0.0, 0.5, 30.0])
def test_parameters_equal_those_of_pytorch(
    kind: Any, symmetric: bool, dtype: torch.dtype, levels: dict[str, int], shift: float,  # noqa: FBT001
    oracle: ModuleType,
) -> None:  # fmt: skip
    options = {"dtype": dtype, "qscheme": kind.schemes[symmetric], **levels}
    ours, theirs = kind(**options), getattr(oracle, kind.__name__)(**options)
    if kind is HistogramObserver:  # PyTorch searches for 256 levels whatever the range
        theirs.dst_nbins = ours.quant_max - ours.quant_min + 1
    data = [batch + shift for batch in batches()]
    assert same_qparams(fed(ours, *data), fed(theirs, *data))


def test_a_range_wider_than_int32_keeps_its_zero_point() -> None:
    # PyTorch rounds through int32, overflows, and arrives at the other end.
    observer = fed(MinMaxObserver(dtype=torch.qint32), torch.tensor([-4096.0, 0.0]))
    assert observer.calculate_qparams()[1].item() == 2**31 - 1


@pytest.mark.parametrize("kind", [MinMaxObserver, PerChannelMinMaxObserver])
def test_merging_min_max_observers_is_like_seeing_all_data(kind: type[Observer]) -> None:
    first, second = batches()[:2], batches(5)[2:]
    merged = fed(kind(), *first)
    merged.merge(fed(kind(), *second))
    assert same_qparams(merged, fed(kind(), *first, *second))


@pytest.mark.parametrize("kind", AVERAGING)
def test_merging_moving_averages_weighs_by_the_number_of_batches(kind: Any) -> None:
    low, high = torch.full((2, 3), 1.0), torch.full((2, 3), 5.0)
    merged = fed(kind(averaging_constant=1), low, low, low)
    merged.merge(fed(kind(averaging_constant=1), high))
    assert torch.equal(merged.max_val, torch.full_like(merged.max_val, 2.0))
    assert merged.batches.item() == 4


@every_recorder
def test_merging_with_an_unobserved_one_changes_nothing_either_way(kind: type[Observer]) -> None:
    observer, fresh = fed(kind(), *batches()), kind()
    expected = copy.deepcopy(observer)
    observer.merge(fresh)
    assert same_qparams(observer, expected)
    assert not fresh.observed
    fresh.merge(observer)
    assert same_qparams(fresh, expected)


@every_recorder
def test_a_merged_observer_shares_nothing_with_its_source(kind: type[Observer]) -> None:
    source, target = fed(kind(), *batches()), kind()
    expected = copy.deepcopy(source)
    target.merge(source)
    fed(target, torch.full((4, 6, 5), 1e3))
    assert same_qparams(source, expected)


def test_observers_of_different_configuration_do_not_merge() -> None:
    with pytest.raises(ValueError, match=r"quant_max: 255 != 127"):
        MinMaxObserver().merge(fed(MinMaxObserver(quant_max=127), *batches()))
    with pytest.raises(TypeError, match="HistogramObserver into MinMaxObserver"):
        MinMaxObserver().merge(HistogramObserver())


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -3])
def test_channels_are_kept_along_the_axis_asked_for(axis: int) -> None:
    x = batches()[0]
    observer = PerChannelMinMaxObserver(ch_axis=axis)
    observer(x)
    others = [i for i in range(3) if i != axis % 3]
    assert torch.equal(observer.min_val, x.amin(others))
    assert torch.equal(observer.max_val, x.amax(others))


@pytest.mark.parametrize("kind", PER_CHANNEL)
def test_a_changed_number_of_channels_is_an_error_with_both_numbers(kind: type[Observer]) -> None:
    observer = fed(kind(), torch.ones(4, 2))
    with pytest.raises(ValueError, match="recorded 4 channels, but was now given 3"):
        observer(torch.ones(3, 2))


@pytest.mark.parametrize("kind", PER_CHANNEL)
def test_a_channel_axis_that_the_tensor_lacks_is_an_error_with_its_shape(kind: Any) -> None:
    with pytest.raises(ValueError, match=r"dimension 2.*\[4, 2\]"):
        kind(ch_axis=2)(torch.ones(4, 2))


def test_a_dead_channel_gets_the_smallest_scale_and_spares_its_neighbour() -> None:
    weight = torch.tensor([[0.0, 0.0], [-1.0, 2.0]])
    observer = fed(PerChannelMinMaxObserver(dtype=torch.qint8), weight)
    scale, _ = observer.calculate_qparams()
    assert scale.tolist() == pytest.approx([EPS, 3 / 255])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MinMaxObserver(quant_min=1), "quant_min=1, quant_max=255; torch.quint8 allows"),
        (lambda: MinMaxObserver(quant_max=256), "quant_max=256; torch.quint8 allows 0"),
        (lambda: MinMaxObserver(quant_min=0, quant_max=0), "quant_min < quant_max"),
        (lambda: MinMaxObserver(dtype=torch.qint8, quant_min=-129), "torch.qint8 allows -128"),
        (lambda: MinMaxObserver(dtype=torch.float16), "got dtype torch.float16; it supports"),
        (lambda: MinMaxObserver(eps=0), "got eps 0; it must be positive"),
        (lambda: MinMaxObserver(qscheme=torch.per_channel_affine), "supports torch.per_tensor_aff"),
        (lambda: PerChannelMinMaxObserver(qscheme=torch.per_tensor_affine), "per_channel_affine"),
        (lambda: PerChannelMinMaxObserver(is_dynamic=True), "static quantization only"),
        (lambda: HistogramObserver(is_dynamic=True), "static quantization only"),
        (lambda: HistogramObserver(bins=1), "bins is 1"),
        (lambda: MovingAverageMinMaxObserver(averaging_constant=0), r"must be in \(0, 1\]"),
        (lambda: MovingAverageMinMaxObserver(is_dynamic=True), "0.01; a dynamic range"),
        (lambda: PlaceholderObserver(dtype=torch.float16, quant_max=1), "torch.float16 has none"),
        (lambda: FixedQParamsObserver(scale=0, zero_point=0), "scale is 0"),
        (lambda: FixedQParamsObserver(scale=1e-60, zero_point=0), "positive and finite in float32"),
        (lambda: FixedQParamsObserver(scale=1, zero_point=256), "zero_point is 256"),
    ],
)  # fmt: skip
def test_invalid_arguments_are_refused_with_what_is_allowed(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_one_end_of_the_range_may_be_left_to_the_dtype() -> None:
    observer = MinMaxObserver(dtype=torch.qint8, quant_min=-127)
    assert (observer.quant_min, observer.quant_max) == (-127, 127)


def test_a_moving_average_of_one_may_be_dynamic() -> None:
    assert MovingAverageMinMaxObserver(averaging_constant=1, is_dynamic=True).is_dynamic


def test_a_placeholder_records_nothing_and_says_so_when_asked() -> None:
    observer = fed(PlaceholderObserver(dtype=torch.quint8, is_dynamic=True), *batches())
    observer.label = "fc1.input"
    assert not observer.observed
    assert (observer.quant_min, observer.quant_max) == (0, 255)
    with pytest.raises(RuntimeError, match=r"fc1\.input records nothing.*run time"):
        observer.calculate_qparams()


def test_fixed_parameters_stay_whatever_passes() -> None:
    observer = fed(FixedQParamsObserver(scale=0.5, zero_point=3), torch.full((2,), torch.inf))
    scale, zero_point = observer.calculate_qparams()
    assert observer.observed
    assert (scale.item(), zero_point.item()) == (0.5, 3)


def test_fixed_observers_merge_only_if_equal() -> None:
    one = FixedQParamsObserver(scale=0.5, zero_point=3)
    one.merge(FixedQParamsObserver(scale=0.5, zero_point=3))
    with pytest.raises(ValueError, match=r"scale: 0\.5 != 0\.25"):
        one.merge(FixedQParamsObserver(scale=0.25, zero_point=3))


def test_repr_shows_label_and_configuration() -> None:
    observer = MinMaxObserver(quant_max=127)
    observer.label = "fc"
    assert "quant_max=127" in repr(observer)
    assert "label='fc'" in repr(observer)
