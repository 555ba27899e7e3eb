"""What the histogram observer counts, and which range it keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from fusion_core.nn import HistogramObserver

if TYPE_CHECKING:
    from collections.abc import Callable


class CountedOperations(TorchDispatchMode):
    """Counts the tensor operations that reach a kernel."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        return func(*args, **(kwargs or {}))


@pytest.fixture
def oracle() -> Callable[..., Any]:
    """PyTorch's own histogram observer, searching for as many levels as ours."""
    module = pytest.importorskip("torch.ao.quantization.observer")

    def make(bins: int = 2048, levels: int = 256) -> Any:
        observer = module.HistogramObserver(bins=bins)
        observer.dst_nbins = levels
        return observer

    return make


def normal(*shape: int, seed: int = 0, scale: float = 1.0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * scale


SEQUENCES = {
    "one small batch": [normal(2, 4)],
    "growing": [normal(100, seed=i, scale=1 + i) for i in range(6)],
    "shrinking": [normal(100, seed=i, scale=6 - i) for i in range(6)],
    "relu": [normal(1000, seed=i).relu() for i in range(3)],
    "constant": [torch.full((9,), 2.5)],
    "zeros": [torch.zeros(9)],
    "constant, then wider": [torch.full((9,), 2.5), normal(50)],
    "two constants": [torch.full((9,), 2.5), torch.full((5,), -1.0), torch.full((5,), -1.0)],
    "one outlier": [*(normal(500, seed=i) for i in range(5)), torch.tensor([50.0])],
    "tiny": [normal(50, scale=1e-30), normal(50, seed=1, scale=3e-30)],
    "denormal": [normal(50, scale=1e-42), normal(50, seed=1, scale=3e-42)],
    "large": [normal(50, scale=1e9), normal(50, seed=1, scale=3e9)],
}


@pytest.mark.parametrize(
    ("name", "bins", "levels"),
    [
        *((name, 2048, 256) for name in SEQUENCES if name != "denormal"),
        *((name, 7, 2) for name in SEQUENCES if name != "tiny"),
        ("growing", 2048, 128),
        ("relu", 100, 16),
    ],
)
def test_counts_and_clipped_range_equal_those_of_pytorch(
    name: str, bins: int, levels: int, oracle: Callable[..., Any]
) -> None:
    ours = HistogramObserver(bins=bins, quant_max=levels - 1)
    theirs = oracle(bins, levels)
    for batch in SEQUENCES[name]:
        ours(batch)
        theirs(batch)
        assert torch.equal(ours.histogram, theirs.histogram)
        assert (ours.min_val, ours.max_val) == (theirs.min_val, theirs.max_val)
    assert ours.clipped_range() == theirs._non_linear_param_search()


def test_int32_levels_equal_those_of_pytorch(oracle: Callable[..., Any]) -> None:
    ours = HistogramObserver(dtype=torch.qint32)
    theirs = oracle(levels=2**32)
    for observer in (ours, theirs):
        observer(normal(300))
    assert ours.clipped_range() == theirs._non_linear_param_search()


@pytest.mark.parametrize("name", SEQUENCES)
def test_no_value_is_lost_when_the_range_grows(name: str) -> None:
    observer = HistogramObserver()
    for batch in SEQUENCES[name]:
        observer(batch)
    total = sum(batch.numel() for batch in SEQUENCES[name])
    assert observer.histogram.sum().item() == pytest.approx(total, rel=1e-5)


def test_one_bin_counts_beyond_the_integers_of_float32() -> None:
    # torch.histc stops at 2**24 within one call.
    observer = HistogramObserver(bins=4)
    observer(torch.zeros(2**24 + 8))
    assert observer.histogram.sum().item() == 2**24 + 8


@pytest.mark.parametrize("scale", [2.0**36, 2.0**60, 2.0**105, 2.0**125])
def test_the_clipped_part_does_not_depend_on_the_unit_of_the_data(scale: float) -> None:
    # In PyTorch the cubed widths overflow, and all but the median is clipped away.
    data = torch.cat([normal(5000), torch.tensor([6.0, -6.0])])
    small, large = HistogramObserver(), HistogramObserver()
    small(data)
    large(data * scale)
    for expected, found in zip(small.clipped_range(), large.clipped_range(), strict=True):
        assert found.item() == expected.item() * scale


def test_the_whole_float32_range_is_counted_bin_by_bin() -> None:
    observer = HistogramObserver(bins=8)
    observer(torch.linspace(-1, 1, 801).mul(3.4e38))
    assert observer.histogram.min().item() >= 99
    low, high = observer.clipped_range()
    assert low.item() == pytest.approx(-3.4e38, rel=0.3)
    assert high.item() == pytest.approx(3.4e38, rel=0.3)


def test_a_range_may_grow_to_all_of_float32() -> None:
    observer = HistogramObserver(bins=8)
    observer(torch.linspace(-1, 1, 801).mul(1.7e38))
    observer(torch.tensor([-3.4e38, 3.4e38]))
    assert observer.histogram.sum().item() == pytest.approx(803)
    assert observer.histogram[2:6].sum().item() == pytest.approx(801, abs=2)


@pytest.mark.parametrize(("count", "kept"), [(1_000, True), (200_000, False)])
def test_an_outlier_is_clipped_once_the_error_of_all_others_outweighs_it(
    count: int,
    kept: bool,  # noqa: FBT001
) -> None:
    observer = HistogramObserver()
    for seed in range(20):
        observer(normal(count, seed=seed))
    observer(torch.tensor([50.0]))
    assert (observer.clipped_range()[1].item() > 49) == kept


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_counted(dtype: torch.dtype) -> None:
    observer = HistogramObserver()
    observer(normal(64).to(dtype))
    assert observer.histogram.sum().item() == 64


def test_merging_equal_ranges_adds_the_counts() -> None:
    ends = torch.tensor([-4.0, 4.0])
    one, other, both = HistogramObserver(), HistogramObserver(), HistogramObserver()
    first, second = (torch.cat([ends, normal(99, seed=i).clamp(-4, 4)]) for i in range(2))
    one(first)
    other(second)
    both(torch.cat([first, second]))
    one.merge(other)
    assert torch.equal(one.histogram, both.histogram)


@pytest.mark.parametrize("swap", [False, True])
def test_merging_keeps_range_and_number_and_nearly_the_places(swap: bool) -> None:  # noqa: FBT001
    first, second = normal(4000), normal(4000, seed=1, scale=3) + 2
    pair = [HistogramObserver(), HistogramObserver()]
    for observer, data in zip(pair, (first, second), strict=True):
        observer(data)
    one, other = reversed(pair) if swap else pair
    one.merge(other)
    both = HistogramObserver()
    both(torch.cat([first, second]))
    assert (one.min_val, one.max_val) == (both.min_val, both.max_val)
    assert one.histogram.sum().item() == pytest.approx(8000, rel=1e-5)
    # Per bin counts may move to a neighbour; sums over bins from the left differ by few values.
    drift = (one.histogram.cumsum(0) - both.histogram.cumsum(0)).abs().max().item()
    assert drift < 40


def test_a_single_value_merges_into_a_wider_histogram() -> None:
    one, other = HistogramObserver(bins=10), HistogramObserver(bins=10)
    one(torch.full((5,), 1.0))
    other(torch.tensor([0.0, 10.0]))
    one.merge(other)
    assert one.histogram.tolist() == [1, 5, 0, 0, 0, 0, 0, 0, 0, 1]


@pytest.mark.parametrize("data", [normal(2, 4), torch.full((9,), 2.5), normal(8, scale=1e-30)])
def test_a_sparse_histogram_is_searched_in_few_tensor_operations(data: torch.Tensor) -> None:
    # PyTorch steps through 100 000 quantiles, with several operations for each.
    observer = HistogramObserver()
    observer(data)
    with CountedOperations() as counted:
        observer.calculate_qparams()
    assert 0 < counted.count < 500
