"""Finds installed plugins by their entry points. Only metadata are read; no plugin is imported."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import importlib_metadata
from packaging.utils import canonicalize_name

from fusion_core.registry.blame import RUN_TIME
from fusion_core.registry.origin import PluginOrigin

if TYPE_CHECKING:
    from importlib_metadata import EntryPoint, IDistribution

GROUP = "fusion.backends"
"""The entry-point group. An entry point's name is the backend's, or ``<backend>.<extension>``."""

NAME = re.compile(r"[a-z_]\w*(\.[a-z_]\w*)?", re.ASCII)


@dataclass(frozen=True, eq=False)
class Source:
    """A plugin that can be loaded; two are the same only if they are the same object.

    Attributes:
        origin: Its names, distribution and version.
        location: Folder or archive it is installed in; empty if registered at run time.
        load: Imports and returns the plugin.
        summary: One line on what it is: the summary of its distribution.
    """

    origin: PluginOrigin
    location: str
    load: Callable[[], object]
    summary: str = ""

    @property
    def is_installed(self) -> bool:
        """Whether it was found by its entry point, not registered at run time."""
        return self.origin.distribution != RUN_TIME


@dataclass(frozen=True)
class Fault:
    """An entry point, or a whole distribution, that cannot be used.

    Attributes:
        name: The entry point's name, or that of the distribution if none can be read.
        distribution: The distribution's name.
        version: Its version.
        problem: What is wrong, in words.
    """

    name: str
    distribution: str
    version: str
    problem: str


def plugin_name(text: str) -> str | None:
    """``text`` in the one spelling of plugin names; None if it is not a name.

    Case does not count; dashes and blanks are underscores. ``Example-NPU`` is ``example_npu``.
    """
    name = re.sub(r"[-\s]+", "_", text.strip().lower())
    return name if NAME.fullmatch(name) else None


def scan() -> tuple[Source | Fault, ...]:
    """Everything installed under the entry-point group.

    Of a distribution that is on the path several times (an editable install beside its metadata,
    ``lib`` and ``lib64``, two versions in two folders) the first counts, as it does for import.
    A distribution of no concern to us is not parsed, so whatever is wrong with it does no harm.
    """
    found: dict[str, tuple[Source | Fault, ...]] = {}
    for distribution in importlib_metadata.distributions():
        name = _name_if_plugin(distribution)
        if name is not None and name not in found:
            found[name] = tuple(_first_on_path(name, distribution))
    return tuple(item for items in found.values() for item in items)


def _name_if_plugin(distribution: IDistribution) -> str | None:
    """The distribution's normalised name if it mentions the group."""
    try:
        if GROUP not in (distribution.read_text("entry_points.txt") or ""):
            return None
        return str(canonicalize_name(distribution.name))
    except Exception:  # noqa: BLE001 - unreadable or nameless: not a plugin, and nobody's business
        return None


def _first_on_path(name: str, seen: IDistribution) -> Iterator[Source | Fault]:
    version = "unknown"
    try:
        winner = importlib_metadata.distribution(name)
        version = winner.version or version
        points = tuple(winner.entry_points.select(group=GROUP))
        location = str(winner.locate_file(""))
        summary = str(winner.metadata.get("Summary") or "")
    except Exception as error:  # noqa: BLE001 - each kind of broken metadata has its own exception
        where = seen.locate_file("")
        yield Fault(name, name, version, f"its metadata in {where} cannot be read ({error!r})")
        return
    found = (_plugin(point, winner.name or name, version) for point in points)
    yield from _unique(
        each if isinstance(each, Fault) else replace(each, location=location, summary=summary)
        for each in found
    )


def _plugin(point: EntryPoint, distribution: str, version: str) -> Source | Fault:
    name = plugin_name(point.name)
    if name is None:
        problem = (
            f"{point.name!r} is not a name: a letter, then letters, digits and underscores, "
            "and at most one dot, before the name of an extension"
        )
        return Fault(point.name, distribution, version, problem)
    if not point.pattern.match(point.value):
        problem = f"its entry point {point.value!r} is not 'module' or 'module:object'"
        return Fault(name, distribution, version, problem)
    origin = PluginOrigin(name.partition(".")[0], name, distribution, version)
    return Source(origin, "", point.load)


def _unique(plugins: Iterator[Source | Fault]) -> Iterator[Source | Fault]:
    """Replaces what one distribution offers again under the same name in another spelling."""
    names: set[str] = set()
    for plugin in plugins:
        if isinstance(plugin, Fault):
            yield plugin
        elif plugin.origin.name not in names:
            names.add(plugin.origin.name)
            yield plugin
        else:
            origin = plugin.origin
            problem = f"it offers {origin.name!r} more than once; only the first counts"
            yield Fault(origin.name, origin.distribution, origin.version, problem)
