"""Times the histogram observer's search of a range against PyTorch's, on the same histograms.

Run as a file, or through ``run``, which returns one row per kind of data and one for all. Both
sides are timed in turn within each round; a row gives medians, and the ratio is theirs / ours.
"""

from __future__ import annotations

import math
import statistics
import time
import warnings
from typing import TYPE_CHECKING, Any

import torch

from fusion_core.nn import HistogramObserver

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDS = 7


def _data() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)

    def normal(count: int) -> torch.Tensor:
        return torch.randn(count, generator=generator)

    return {
        "batch 2x4": normal(8),
        "normal, 1e3": normal(1_000),
        "normal, 1e6": normal(1_000_000),
        "relu, 1e5": normal(100_000).relu(),
        "cubed, 1e5": normal(100_000) ** 3,
        "uniform, 1e6": torch.rand(1_000_000, generator=generator),
        "one outlier": torch.cat([normal(20_000), torch.tensor([50.0])]),
        "tiny": normal(1_000) * 1e-16,
        "constant": torch.full((100,), 2.5),
    }


def _milliseconds(call: Callable[[], object]) -> float:
    started = time.process_time()
    call()
    return (time.process_time() - started) * 1e3


def _compare(name: str, data: torch.Tensor, theirs: Any) -> dict[str, Any]:
    ours = HistogramObserver()
    ours(data)
    theirs(data)
    equal = ours.clipped_range() == theirs._non_linear_param_search()
    rounds = [
        (_milliseconds(theirs._non_linear_param_search), _milliseconds(ours.clipped_range))
        for _ in range(ROUNDS)
    ]
    return {
        "case": name,
        "torch_ao_ms": statistics.median(slow for slow, _ in rounds),
        "ours_ms": statistics.median(fast for _, fast in rounds),
        "ratio": statistics.median(slow / fast for slow, fast in rounds),
        "equal": equal,
    }


def run() -> list[dict[str, Any]]:
    """One row per kind of data, then ``geometric mean``; every time is CPU time of one thread."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from torch.ao.quantization.observer import (  # only here is it needed
            HistogramObserver as TorchObserver,
        )
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        rows = [_compare(name, data, TorchObserver()) for name, data in _data().items()]
    finally:
        torch.set_num_threads(threads)
    mean = math.exp(statistics.fmean(math.log(row["ratio"]) for row in rows))
    equal = all(row["equal"] for row in rows)
    return [*rows, {"case": "geometric mean", "ratio": mean, "equal": equal}]


if __name__ == "__main__":
    for row in run():
        print(row)
