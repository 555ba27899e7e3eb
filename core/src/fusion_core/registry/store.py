"""The registry itself: the one place that remembers what was found, registered and loaded."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from threading import RLock

from fusion_core.errors import (
    DuplicateBackendError,
    FusionError,
    PluginError,
    UnknownBackendError,
)
from fusion_core.registry.backend import Backend
from fusion_core.registry.blame import DISABLED_BACKENDS, RUN_TIME, plugin_error
from fusion_core.registry.discovery import Fault, Source, plugin_name, scan
from fusion_core.registry.listing import BackendRecord, Failure, Listing, Selection
from fusion_core.registry.loading import load
from fusion_core.registry.origin import PluginOrigin


class Registry:
    """Installed and registered plugins, and the backends made of them so far.

    The process has one, whose methods are the functions of :mod:`fusion_core.registry`. All may be
    called from several threads. No lock is held while a plugin is imported or asked, because it
    may import what another thread is importing; of two backends built at once, one is kept.
    """

    def __init__(self) -> None:
        self._lock = RLock()
        self._found: tuple[Source | Fault, ...] | None = None
        self._registered: dict[str, Source] = {}
        self._backends: dict[Selection, Backend] = {}
        self._failures: dict[Selection, Failure] = {}

    def backends(self) -> tuple[BackendRecord, ...]:
        """Every backend, installed or registered, sorted by name; imports no plugin.

        Returns:
            A record each, also for what cannot be used, with the reason.
        """
        return self._listing().records()

    def get_backend(self, backend: str | Backend) -> Backend:
        """The backend of this name, with its extensions; the same object each time.

        Args:
            backend: A name in any spelling: case does not count, dashes are underscores. A
                ``Backend`` is returned as it is.

        Returns:
            The merged backend. Its plugins are imported at the first call.

        Raises:
            UnknownBackendError: No backend of that name can be used; says which can.
            DuplicateBackendError: Two distributions claim the name, or that of an extension.
            PluginError: The plugin, or one of its extensions, is broken or cannot run here.
            PatternConflictError: Two contributions contradict each other.
        """
        if isinstance(backend, Backend):
            return backend
        selection = self._listing().select(backend)
        with self._lock:
            known = self._backends.get(selection)
        return self._load(selection) if known is None else known

    def register_backend(self, name: str, plugin: object) -> Callable[[], None]:
        """Adds a plugin that is not installed, for notebooks and tests.

        Args:
            name: Name of the backend, or ``<backend>.<extension>`` to extend one there is.
            plugin: A module, or any object, with functions marked ``@hookimpl``. Its
                ``__version__`` is recorded, if it has one.

        Returns:
            A function that takes the plugin out again; calling it twice does no harm.

        Raises:
            DuplicateBackendError: The name is taken by an installed or registered plugin.
            UnknownBackendError: The name is an extension's and its backend does not exist.
            PluginError: The name is not a name.
        """
        spelled = plugin_name(name)
        version = str(getattr(plugin, "__version__", "0"))
        origin = PluginOrigin(
            (spelled or name).partition(".")[0], spelled or name, RUN_TIME, version
        )
        if spelled is None:
            raise plugin_error(origin, "the name has characters other than letters, digits and _")
        source = Source(origin, "", lambda: plugin, _first_line(plugin))
        with self._lock:
            self._refuse_taken(origin)
            self._registered[spelled] = source
        return lambda: self._unregister(source)

    def refresh(self) -> None:
        """Looks for installed plugins again, and forgets what was loaded.

        For plugins installed while the process runs. What was registered at run time stays.
        """
        importlib.invalidate_caches()
        with self._lock:
            self._found = None
            self._backends.clear()
            self._failures.clear()

    def _load(self, selection: Selection) -> Backend:
        try:
            built = load(selection)
        except FusionError as error:
            guilty = error.backend if isinstance(error, PluginError) else selection[0].origin.name
            with self._lock:
                self._failures[selection] = Failure(guilty, str(error))
            raise
        with self._lock:
            self._failures.pop(selection, None)
            return self._backends.setdefault(selection, built)

    def _listing(self) -> Listing:
        with self._lock:
            if self._found is None:
                self._found = scan()
            found = (*self._found, *self._registered.values())
            failures = dict(self._failures)
        return Listing(
            sources=tuple(each for each in found if isinstance(each, Source)),
            faults=tuple(each for each in found if isinstance(each, Fault)),
            disabled=_disabled(),
            failures=failures,
        )

    def _refuse_taken(self, origin: PluginOrigin) -> None:
        listing = self._listing()
        holders = listing.claims(origin.name)
        if holders:
            names = [f"{each.origin.distribution} {each.origin.version}" for each in holders]
            raise DuplicateBackendError(origin.name, (*names, f"{RUN_TIME} {origin.version}"))
        if origin.name != origin.backend and not listing.claims(origin.backend):
            raise UnknownBackendError(origin.backend, listing.available, listing.unusable)

    def _unregister(self, source: Source) -> None:
        with self._lock:
            if self._registered.get(source.origin.name) is not source:
                return
            del self._registered[source.origin.name]
            for selection in [each for each in self._backends if source in each]:
                del self._backends[selection]
            for selection in [each for each in self._failures if source in each]:
                del self._failures[selection]


def _first_line(plugin: object) -> str:
    """What a plugin that was not installed says of itself without being asked: its docstring's first line."""
    text = getattr(plugin, "__doc__", None)
    return text.strip().partition("\n")[0] if isinstance(text, str) else ""


def _disabled() -> frozenset[str]:
    """Read at each question, so that it can be set at any time."""
    names = map(plugin_name, os.environ.get(DISABLED_BACKENDS, "").split(","))
    return frozenset(name for name in names if name)
