"""Latency of quantized models, batch 1, one thread, against PyTorch's FX mode on the same engine."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import torch
from timing import compare

import fusion_core as core


def run() -> list[dict[str, Any]]:
    """One row per model; the ratio is theirs / ours.

    Raises:
        ImportError: torchvision, whose models are timed, is not installed.
    """
    from torchvision import models

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return [_row(name, getattr(models, name)) for name in ("resnet18", "mobilenet_v2")]
    finally:
        torch.set_num_threads(threads)


def _row(name: str, build: Any) -> dict[str, Any]:
    torch.manual_seed(0)
    model, image = build(weights=None).eval(), torch.randn(1, 3, 224, 224)
    ours = core.quantize(model, "fbgemm", calibration=[image], adaptive_rounding=False)
    theirs = _theirs(copy.deepcopy(model), image)
    with torch.inference_mode():
        return compare(name, lambda: ours(image), lambda: theirs(image), rounds=15)


def _theirs(model: torch.nn.Module, image: torch.Tensor) -> torch.nn.Module:
    from torch.ao.quantization import get_default_qconfig_mapping
    from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

    before = torch.backends.quantized.engine
    torch.backends.quantized.engine = "fbgemm"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            prepared = prepare_fx(model, get_default_qconfig_mapping("fbgemm"), (image,))
            prepared(image)
            return convert_fx(prepared)
    finally:
        torch.backends.quantized.engine = before
