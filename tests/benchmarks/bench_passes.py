"""trace, fuse and prepare against prepare_fx, which does the same, on chains of conv, norm and ReLU."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from timing import compare
from torch import nn

import fusion_core as core


def _chain(blocks: int) -> nn.Module:
    layers = [
        layer for _ in range(blocks) for layer in (nn.Conv2d(2, 2, 1), nn.BatchNorm2d(2), nn.ReLU())
    ]
    return nn.Sequential(*layers).eval()


def run() -> list[dict[str, Any]]:
    """One row per size; the ratio is theirs / ours."""
    from torch.ao.quantization import get_default_qconfig_mapping
    from torch.ao.quantization.quantize_fx import prepare_fx

    rows, mapping = [], get_default_qconfig_mapping("fbgemm")
    for blocks in (30, 100):
        model, example = _chain(blocks), torch.randn(1, 2, 4, 4)

        def ours(model: nn.Module = model, example: torch.Tensor = example) -> None:
            core.prepare(core.fuse(core.trace(model, example, backend="fbgemm"), "fbgemm"))

        def theirs(model: nn.Module = model, example: torch.Tensor = example) -> None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                prepare_fx(model, mapping, (example,))

        rows.append(compare(f"trace to prepare, {3 * blocks} nodes", ours, theirs, rounds=5))
    return rows
