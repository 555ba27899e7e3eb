"""What a lint reads from configs alone: fused modules, dtypes and weights that lead nowhere."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

from torch import nn

from fusion_core.configs import ObservationType, QConfig, QConfigMapping
from fusion_core.nn.reference import REFERENCE_OF
from fusion_core.passes.groups import completed_qconfig
from fusion_core.passes.mappings import mapping_for
from fusion_core.patterns import anchors_of
from fusion_core.registry import Backend, PatternEntry
from fusion_core.report.findings import Finding, Severity


def config_findings(backend: Backend) -> Iterator[Finding]:
    """What is wrong with each entry of ``backend``, read without a model."""
    quantized = tuple(_quantized_types(backend))
    mappings = (mapping_for(backend), *backend.qconfig_mappings.values())
    qconfigs = tuple(each for mapping in mappings for each in _qconfigs(mapping))
    for entry in backend.entries:
        if entry.config.fuser_method is not None:
            yield from _unquantized(entry, quantized)
        elif not entry.config.dtype_configs:
            yield from _without_dtypes(entry)
        else:
            yield from _unsatisfied(entry, qconfigs)
            yield from _without_reference(entry)


def finding(entry: PatternEntry, severity: Severity, message: str, remedy: str) -> Finding:
    """A finding about ``entry``."""
    return Finding(severity, str(entry), entry.index, message, remedy)


def _quantized_types(backend: Backend) -> Iterator[type[nn.Module]]:
    """Module types that some config quantizes as they stand."""
    for entry in backend.entries:
        if entry.config.fuser_method is None and entry.config.dtype_configs:
            yield from _anchored_types(entry)


def _anchored_types(entry: PatternEntry) -> Iterator[type[nn.Module]]:
    """Module types that the pattern of ``entry`` may end in."""
    for anchor in anchors_of(entry.pattern):
        target = getattr(getattr(anchor, "operator", None), "target", None)
        if inspect.isclass(target) and issubclass(target, nn.Module):
            yield target


def _unquantized(entry: PatternEntry, quantized: tuple[type[nn.Module], ...]) -> Iterator[Finding]:
    config = entry.config
    fused = config.fused_module or config.fuser_method
    if not inspect.isclass(fused) or any(issubclass(each, fused) for each in quantized):
        return
    yield finding(
        entry,
        "warning",
        f"it is fused into {fused.__name__}, which no config quantizes, so it stays in float",
        f"add BackendPatternConfig({fused.__name__}, dtype_configs=...)",
    )


def _without_dtypes(entry: PatternEntry) -> Iterator[Finding]:
    if entry.config.observation_type is ObservationType.INPUT_OUTPUT_NOT_OBSERVED:
        return
    yield finding(
        entry,
        "warning",
        "it has neither a fuser method nor dtypes, so nothing ever uses it",
        "add dtype_configs, or a fuser method, or observe neither input nor output",
    )


def _unsatisfied(entry: PatternEntry, qconfigs: tuple[QConfig, ...]) -> Iterator[Finding]:
    configs, weighted = entry.config.dtype_configs, _is_weighted(entry)
    choices = [completed_qconfig(configs, each, weighted=weighted) for each in qconfigs]
    problems = [each for each in choices if isinstance(each, str)]
    if len(problems) < len(choices) or not choices:
        return
    yield finding(
        entry,
        "warning",
        f"no qconfig of the backend's mappings fits its dtypes: {problems[0]}",
        "correct the dtype configs, or the hooks fusion_default_qconfig_mapping and fusion_qconfig_mappings",
    )


def _is_weighted(entry: PatternEntry) -> bool:
    """Whether what the pattern stands for has a weight, as far as its config and types tell."""
    config = entry.config
    types = _anchored_types(entry)
    return (
        config.root_module is not None
        or "weight" in config.input_type_to_index
        or any(each in REFERENCE_OF for each in types)
    )


def _without_reference(entry: PatternEntry) -> Iterator[Finding]:
    root = entry.config.root_module
    if root is None or root in REFERENCE_OF or entry.config.reference_quantized_module:
        return
    yield finding(
        entry,
        "error",
        f"its weights are in {root.__name__}, which no reference module is known for",
        "give reference_quantized_module",
    )


def _qconfigs(mapping: QConfigMapping) -> Iterator[QConfig]:
    """Every qconfig of ``mapping``, whatever it is for."""
    tables = (
        mapping.object_type_qconfigs,
        mapping.module_name_regex_qconfigs,
        mapping.module_name_qconfigs,
        mapping.module_name_object_type_order_qconfigs,
    )
    every = [mapping.global_qconfig, *(each for table in tables for each in table.values())]
    yield from (each for each in every if each is not None)
