"""The search of the clipped range against PyTorch's, on arbitrary histograms and data."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fusion_core.nn import HistogramObserver

oracle = pytest.importorskip("torch.ao.quantization.observer")

BINS = st.sampled_from([2, 7, 64, 300, 2048])
LEVELS = st.sampled_from([2, 16, 128, 256])
counts = st.one_of(
    st.integers(0, 5).map(float),
    st.floats(0, 1e6, width=32),
    st.sampled_from([0.0, 1.0, 1e6, 2.0**25]),
)
ends = st.one_of(
    st.floats(-1e8, 1e8, width=32),
    st.floats(-1, 1, width=32),
    st.sampled_from([0.0, 1.0, 2.0**-149, -1e-40, 1e-30, 2.0**-126, -1e-12]),
).map(lambda end: torch.tensor(end, dtype=torch.float32).item())


@st.composite
def histograms(draw: st.DrawFn, bins: int) -> torch.Tensor:
    """From nearly empty to full; never without a value."""
    histogram = torch.zeros(bins)
    places = st.integers(0, bins - 1)
    if draw(st.booleans()):
        generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
        spread = draw(st.sampled_from([0.5, 0.1, 0.01]))
        data = torch.randn(draw(st.integers(1, 20_000)), generator=generator) * spread
        histogram += torch.histc(data, bins, -1, 1)
    for place, count in draw(st.lists(st.tuples(places, counts), max_size=12)):
        histogram[place] += count
    histogram[draw(places)] += 1
    return histogram


def observers(bins: int, levels: int) -> tuple[HistogramObserver, Any]:
    ours, theirs = (
        HistogramObserver(bins=bins, quant_max=levels - 1),
        oracle.HistogramObserver(bins),
    )
    theirs.dst_nbins = levels
    return ours, theirs


@settings(max_examples=12, deadline=None)
@given(data=st.data(), bins=BINS, levels=LEVELS, low=ends, high=ends)
def test_the_clipped_range_is_pytorchs_to_the_last_bit(
    data: st.DataObject, bins: int, levels: int, low: float, high: float
) -> None:
    histogram = data.draw(histograms(bins))
    pair = observers(bins, levels)
    for observer in pair:
        observer.histogram.copy_(histogram)
        observer.min_val.fill_(min(low, high))
        observer.max_val.fill_(max(low, high))
    ours, theirs = pair
    assert ours.clipped_range() == theirs._non_linear_param_search()


batches = st.lists(
    st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=30).map(torch.tensor),
    min_size=1,
    max_size=5,
)


@settings(max_examples=25, deadline=None)
@given(sequence=batches, bins=BINS, levels=LEVELS)
def test_any_sequence_of_batches_gives_pytorchs_histogram_and_parameters(
    sequence: list[torch.Tensor], bins: int, levels: int
) -> None:
    ours, theirs = observers(bins, levels)
    theirs.quant_max = levels - 1
    for batch in sequence:
        ours(batch)
        theirs(batch)
    assert torch.equal(ours.histogram, theirs.histogram)
    assert (ours.min_val, ours.max_val) == (theirs.min_val, theirs.max_val)
    (scale, zero_point), (their_scale, their_zero) = (
        ours.calculate_qparams(),
        theirs.calculate_qparams(),
    )
    assert torch.equal(scale, their_scale)
    assert zero_point.tolist() == their_zero.tolist()


@settings(max_examples=25, deadline=None)
@given(one=batches, other=batches, bins=BINS)
def test_merging_keeps_the_number_of_values_and_the_whole_range(
    one: list[torch.Tensor], other: list[torch.Tensor], bins: int
) -> None:
    first, second = HistogramObserver(bins=bins), HistogramObserver(bins=bins)
    for batch in one:
        first(batch)
    for batch in other:
        second(batch)
    first.merge(second)
    everything = torch.cat(one + other)
    assert first.histogram.sum().item() == pytest.approx(len(everything), rel=1e-4)
    assert (first.min_val, first.max_val) == (everything.min(), everything.max())
