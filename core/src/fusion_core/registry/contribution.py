"""What one plugin returned from its hooks, checked but not yet merged with others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeAlias

from fusion_core.configs import BackendInfo, BackendPatternConfig, LoweringRule, QConfigMapping
from fusion_core.registry.origin import PluginOrigin

Table: TypeAlias = Mapping[Any, Callable[..., Any]]
"""Callables by pattern, the pattern in whatever spelling the plugin chose."""

CALLABLES: Mapping[str, str] = MappingProxyType(
    {
        "fusion_fuser_methods": "fuser_method",
        "fusion_root_node_getters": "root_node_getter",
        "fusion_extra_inputs_getters": "extra_inputs_getter",
    }
)
"""Hooks that return callables by pattern, with the field of a pattern config that each fills."""


@dataclass(frozen=True)
class Contribution:
    """What one plugin adds to a backend.

    Attributes:
        origin: The plugin.
        configs: Its patterns, in its own order.
        callables: By hook, callables by pattern.
        rules: Its lowering rules, in its own order.
        qconfig_mapping: Its default qconfig mapping.
        qconfig_mappings: Its further qconfig mappings, by name.
        info: What it says of itself.
    """

    origin: PluginOrigin
    configs: tuple[BackendPatternConfig, ...] = ()
    callables: Mapping[str, Table] = field(default_factory=dict)
    rules: tuple[LoweringRule, ...] = ()
    qconfig_mapping: QConfigMapping | None = None
    qconfig_mappings: Mapping[str, QConfigMapping] = field(default_factory=dict)
    info: BackendInfo | None = None
