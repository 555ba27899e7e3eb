"""How the time of each pass grows with the number of nodes, against prepare_fx and convert_fx in the same run."""

from __future__ import annotations

import copy
import gc
import math
import time
import warnings
from typing import TYPE_CHECKING, Any

import torch
from torch import fx, nn

import fusion_core as core

if TYPE_CHECKING:
    from collections.abc import Callable

NODES, LARGER = 300, 1200


def run(sizes: tuple[int, int] = (NODES, LARGER)) -> list[dict[str, Any]]:
    """One row per pass: seconds of process time at both sizes, and the exponent of the growth."""
    rows = []
    for measure in (_ours, _theirs):
        small, large = (measure(size) for size in sizes)
        rows += [
            {
                "pass": name,
                f"{sizes[0]} nodes": small[name],
                f"{sizes[1]} nodes": large[name],
                "exponent": math.log(large[name] / small[name], sizes[1] / sizes[0]),
            }
            for name in small
        ]
    return rows


def _chain(nodes: int) -> nn.Module:
    blocks = nodes // 2
    return nn.Sequential(
        *(layer for _ in range(blocks) for layer in (nn.Linear(4, 4), nn.ReLU()))
    ).eval()


def _ours(nodes: int) -> dict[str, float]:
    x, seconds = torch.randn(2, 4), {}
    traced = _timed(seconds, "trace", lambda: core.trace(_chain(nodes), x, backend="fbgemm"))
    fused = _timed(seconds, "fuse", lambda: core.fuse(traced, "fbgemm"))
    mapping = _minmax()
    prepared = _timed(seconds, "prepare", lambda: core.prepare(fused, "fbgemm", mapping))
    calibrated = core.calibrate(prepared, [x])
    converted = _timed(seconds, "convert", lambda: core.convert(calibrated))
    _timed(seconds, "lower", lambda: core.lower(converted, "fbgemm"))
    return seconds


def _theirs(nodes: int) -> dict[str, float]:
    from torch.ao.quantization.quantize_fx import convert_fx, convert_to_reference_fx, prepare_fx

    x, seconds, model, mapping = torch.randn(2, 4), {}, _chain(nodes), _minmax()
    _timed(seconds, "peer: symbolic_trace alone", lambda: fx.symbolic_trace(model))
    prepared = _timed(seconds, "peer: prepare_fx", lambda: prepare_fx(model, mapping, (x,)))
    prepared(x)
    again = copy.deepcopy(prepared)
    _timed(seconds, "peer: convert_to_reference_fx", lambda: convert_to_reference_fx(again))
    _timed(seconds, "peer: convert_fx", lambda: convert_fx(prepared))
    return seconds


def _minmax() -> Any:
    """The same qconfig for both; the peer's search in histograms alone would take minutes."""
    from torch.ao.quantization import (
        QConfig,
        QConfigMapping,
        default_observer,
        default_weight_observer,
    )

    return QConfigMapping().set_global(QConfig(default_observer, default_weight_observer))


def _timed(seconds: dict[str, float], name: str, call: Callable[[], Any]) -> Any:
    gc.collect()
    started = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = call()
    seconds[name] = time.process_time() - started
    return result
