"""The whole contract between core and a plugin: eight hooks, none with arguments, all but the first optional.

A plugin is a module (or any object) with functions marked ``@hookimpl``. Hooks return plain values;
core validates, merges and sorts them. A plugin named ``<backend>.<extension>`` adds to
``<backend>``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pluggy

from fusion_core.configs import BackendInfo, BackendPatternConfig, LoweringRule, QConfigMapping

PROJECT = "fusion"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)
"""Marks a plugin's function as the implementation of the hook of its name."""


class HookSpecs:
    """Every hook, with what it returns."""

    @hookspec
    def fusion_pattern_configs(self) -> Iterable[BackendPatternConfig]:
        """The patterns the backend supports."""

    @hookspec
    def fusion_fuser_methods(self) -> Mapping[Any, Callable[..., Any]]:
        """Fuser methods by pattern, for configs that carry none, of this plugin or of the one it extends."""

    @hookspec
    def fusion_root_node_getters(self) -> Mapping[Any, Callable[..., Any]]:
        """Root-node getters by pattern, for configs that carry none."""

    @hookspec
    def fusion_extra_inputs_getters(self) -> Mapping[Any, Callable[..., Any]]:
        """Extra-inputs getters by pattern, for configs that carry none."""

    @hookspec
    def fusion_lowering_rules(self) -> Iterable[LoweringRule]:
        """Rules that replace parts of a reference graph by the backend's kernels."""

    @hookspec
    def fusion_default_qconfig_mapping(self) -> QConfigMapping:
        """The qconfig mapping used when the user gives none."""

    @hookspec
    def fusion_qconfig_mappings(self) -> Mapping[str, QConfigMapping]:
        """Further mappings by name: of the modes, and presets that users choose by their names."""

    @hookspec
    def fusion_backend_info(self) -> BackendInfo:
        """Summary, version ranges, and what the backend needs of the machine."""
