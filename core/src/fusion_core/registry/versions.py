"""The versions a model was quantized with, and those that are here."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import importlib_metadata
import torch
from packaging.version import InvalidVersion, Version

from fusion_core.errors import OtherVersionWarning
from fusion_core.registry.origin import PluginOrigin

CORE = "fusion-core"


@dataclass(frozen=True, slots=True)
class BackendIdentity:
    """Which backend a model was quantized for; small, and pickles with the model.

    Unpickling it warns where the versions that are here differ from those recorded.

    Attributes:
        name: Name of the backend.
        fingerprint: See :class:`Backend`.
        core_version: Version of fusion-core that merged it.
        origins: The plugins it was merged from.
        torch_version: Version of torch it was merged under.
    """

    name: str
    fingerprint: str
    core_version: str
    origins: tuple[PluginOrigin, ...]
    torch_version: str = str(torch.__version__)

    def __reduce__(self) -> tuple[Any, ...]:
        fields = (self.name, self.fingerprint, self.core_version, self.origins, self.torch_version)
        return _unpickled, fields

    def __copy__(self) -> BackendIdentity:
        return self

    def __deepcopy__(self, _memo: dict[int, Any]) -> BackendIdentity:
        return self


def _unpickled(*fields: Any) -> BackendIdentity:
    identity = BackendIdentity(*fields)
    changed = list(_changes(identity))
    if changed:
        message = (
            f"this model was quantized for {identity.name!r} with other versions: "
            f"{', '.join(changed)}; it may give other numbers than it did, so check it or quantize it again"
        )
        warnings.warn(message, OtherVersionWarning, stacklevel=2)
    return identity


def _changes(identity: BackendIdentity) -> Iterator[str]:
    """``torch 2.13.0, here 2.14.1`` for each version whose first two numbers have changed."""
    recorded = [
        (CORE, identity.core_version, core_version()),
        ("torch", identity.torch_version, torch.__version__),
        *(
            (each.distribution, each.version, installed(each.distribution))
            for each in identity.origins
        ),
    ]
    for what, then, now in recorded:
        if now is not None and _minor(then) != _minor(now):
            yield f"{what} {then}, here {now}"


def _minor(text: str) -> tuple[int, ...] | str:
    try:
        return Version(text).release[:2]
    except InvalidVersion:
        return text


@cache
def core_version() -> str | None:
    """Version of the installed fusion-core; None where it is used without being installed."""
    return installed(CORE)


def installed(distribution: str) -> str | None:
    """Version of an installed distribution; None if it is not installed."""
    try:
        return str(importlib_metadata.version(distribution))
    except (importlib_metadata.PackageNotFoundError, ValueError):
        return None
