"""The keys of what ``to_dict`` returns, which is what ``--json`` prints."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

import fusion_core as core

# Their keys are names that plugins and users chose.
_FREE = {"functions", "gaps", "qconfigs"}


class _Sketch:
    """A backend with something of everything that documents can show."""

    @core.hookimpl
    def fusion_pattern_configs(self) -> list[core.BackendPatternConfig]:
        int8 = core.DTypeConfig(
            input_dtype=torch.quint8, output_dtype=torch.quint8, weight_dtype=torch.qint8
        )
        again = core.BackendPatternConfig((nn.Conv2d, nn.ReLU), fuser_method=nn.Sequential)
        return [*core.catalog.conv([int8], dims=[2]), again]

    @core.hookimpl
    def fusion_lowering_rules(self) -> list[core.LoweringRule]:
        return core.kernels.native_rules("fbgemm")

    @core.hookimpl
    def fusion_default_qconfig_mapping(self) -> core.QConfigMapping:
        return core.QConfigMapping(global_qconfig=core.catalog.static_qconfig())

    @core.hookimpl
    def fusion_backend_info(self) -> core.BackendInfo:
        return core.BackendInfo(gaps={"lstm": "none"})


def documents() -> Iterator[str]:
    """A line for each key of each document."""
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.GELU()).eval()
    images = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    undo = core.register_backend("document_sketch", _Sketch())
    try:
        backend = core.get_backend("document_sketch")
        quantized = core.quantize(
            model, backend, calibration=[images], reference=True, adaptive_rounding=False
        )
        made = {
            "coverage": core.coverage(model, [backend], example_inputs=(images,)),
            "describe": core.describe(backend),
            "explain": core.explain(model, backend, example_inputs=(images,)),
            "lint": core.lint(backend),
            "report": core.report(quantized),
        }
    finally:
        undo()
    for name, document in made.items():
        yield from {f"key {name}:{path}" for path in _paths(document.to_dict())}


def _paths(value: Any, path: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        free = path.rpartition(".")[2] in _FREE
        for key, below in value.items():
            yield (place := f"{path}.{'*' if free else key}")
            yield from _paths(below, place)
    elif isinstance(value, (list, tuple)):
        for below in value:
            yield from _paths(below, f"{path}[]")
