"""Two callables timed in turn, so that a drift of the machine's speed meets both alike."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def compare(
    case: str, ours: Callable[[], object], theirs: Callable[[], object], *, rounds: int
) -> dict[str, Any]:
    """One row: medians in milliseconds of process time, and the median of the ratios by round.

    Args:
        case: What is timed.
        ours: Runs ours once.
        theirs: Runs the peer's once.
        rounds: How often each is run, after one run that does not count.
    """
    ours(), theirs()
    pairs = [(_milliseconds(ours), _milliseconds(theirs)) for _ in range(rounds)]
    ratios = sorted(peer / mine for mine, peer in pairs)
    return {
        "case": case,
        "ours_ms": statistics.median(mine for mine, _ in pairs),
        "theirs_ms": statistics.median(peer for _, peer in pairs),
        "ratio": statistics.median(ratios),
        "ratio_low": ratios[len(ratios) // 4],
        "ratio_high": ratios[-1 - len(ratios) // 4],
    }


def _milliseconds(call: Callable[[], object]) -> float:
    started = time.process_time()
    call()
    return (time.process_time() - started) * 1e3
