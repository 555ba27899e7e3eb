"""Finds plugins, loads the chosen ones and merges what they contribute into a ``Backend``.

Importing this package reads nothing: installed plugins are looked up at the first question, once
per process. Listing imports none of them; choosing a backend imports it and its extensions.
"""

from fusion_core.registry.backend import (
    Backend,
    LoweringEntry,
    PatternEntry,
)
from fusion_core.registry.data_file import DataBackend, read_backend
from fusion_core.registry.listing import BackendRecord
from fusion_core.registry.origin import PluginOrigin
from fusion_core.registry.store import Registry
from fusion_core.registry.versions import BackendIdentity, core_version

__all__ = [
    "Backend",
    "BackendIdentity",
    "BackendRecord",
    "DataBackend",
    "LoweringEntry",
    "PatternEntry",
    "PluginOrigin",
    "Registry",
    "backends",
    "core_version",
    "get_backend",
    "read_backend",
    "refresh",
    "register_backend",
]

_registry = Registry()

backends = _registry.backends
get_backend = _registry.get_backend
register_backend = _registry.register_backend
refresh = _registry.refresh
