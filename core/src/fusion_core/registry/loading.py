"""Imports the chosen plugins, checks that they fit this core, torch and machine, merges them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import importlib_metadata
import pluggy
import torch
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from fusion_core.configs import API_VERSION
from fusion_core.hookspecs import PROJECT
from fusion_core.registry.blame import blaming, plugin_error, show, unavailable_error
from fusion_core.registry.contribution import CALLABLES, Contribution
from fusion_core.registry.hooks import hooks_of
from fusion_core.registry.merging import merge
from fusion_core.registry.versions import CORE, core_version

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fusion_core.configs import BackendInfo
    from fusion_core.registry.backend import Backend
    from fusion_core.registry.discovery import Source
    from fusion_core.registry.listing import Selection
    from fusion_core.registry.origin import PluginOrigin


def load(selection: Selection) -> Backend:
    """The backend made of the plugins in ``selection``, the backend's own first.

    Each plugin is imported and asked by itself, so that an error names the right one.

    Raises:
        PluginError: A plugin cannot be imported, does not fit, or answers wrongly.
        PatternConflictError: Two contributions contradict each other.
    """
    manager = pluggy.PluginManager(PROJECT)
    contributions = [_contribution(source, manager) for source in selection]
    return merge(contributions, core_version=core_version() or "unknown")


def _contribution(source: Source, manager: pluggy.PluginManager) -> Contribution:
    origin = source.origin
    if source.is_installed:
        _refuse_unmet_requirements(origin)
    with blaming(origin, f"importing it{f' from {source.location}' * source.is_installed} raised"):
        plugin = source.load()
    hooks = hooks_of(plugin, origin, manager)
    info = hooks.info()
    if info is not None:  # first, because a plugin for another core may have other hooks, too
        _refuse_versions(info, origin)
        _refuse_machine(info, origin)
    hooks.refuse_unknown()
    return Contribution(
        origin=origin,
        configs=hooks.pattern_configs(),
        callables={hook: hooks.table(hook) for hook in CALLABLES},
        rules=hooks.lowering_rules(),
        qconfig_mapping=hooks.qconfig_mapping(),
        qconfig_mappings=hooks.qconfig_mappings(),
        info=info,
    )


def _refuse_unmet_requirements(origin: PluginOrigin) -> None:
    """Compares the versions the distribution declares with those installed, before any import."""
    installed = {CORE: core_version(), "torch": torch.__version__}
    with blaming(origin, "its requirements cannot be read:"):
        requirements = tuple(_requirements(origin.distribution))
    for requirement in requirements:
        version = installed.get(canonicalize_name(requirement.name))
        if version is not None and not _contains(requirement.specifier, version):
            problem = (
                f"it requires {requirement}, but {requirement.name} {version} is installed; "
                f"get one that fits: pip install '{requirement.name}{requirement.specifier}'"
            )
            raise plugin_error(origin, problem)


def _requirements(distribution: str) -> Iterator[Requirement]:
    """What holds for a plain install: no extras, markers true on this machine."""
    for text in importlib_metadata.requires(distribution) or ():
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield requirement


def _refuse_versions(info: BackendInfo, origin: PluginOrigin) -> None:
    for field, what, allowed, version in (
        ("api", "the plugin interface of fusion-core", info.api, API_VERSION),
        ("torch", "torch", info.torch, torch.__version__),
    ):
        if not _contains(SpecifierSet(allowed), version):
            wanted = f"'torch{allowed}'" if field == "torch" else f"--upgrade {CORE}"
            problem = (
                f"field {field}: it supports versions {allowed} of {what}, this is {version}; "
                f"get one that fits: pip install {wanted}"
            )
            raise plugin_error(origin, problem, hook="fusion_backend_info")


def _refuse_machine(info: BackendInfo, origin: PluginOrigin) -> None:
    if info.unavailable is None:
        return
    hook = "fusion_backend_info"
    with blaming(origin, "field unavailable: calling it raised", hook=hook):
        missing = info.unavailable()
    if missing is None:
        return
    if not isinstance(missing, str):
        problem = (
            f"field unavailable: it returned {show(missing)}, neither None nor what is missing"
        )
        raise plugin_error(origin, problem, hook=hook)
    raise unavailable_error(origin, missing, hook=hook)


def _contains(allowed: SpecifierSet, version: str) -> bool:
    """Whether a version is in a range; a build from source (2.9.0a0+git) counts as its release."""
    return allowed.contains(Version(version).base_version, prereleases=True)
