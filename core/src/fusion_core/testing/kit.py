"""Where pytest collects the checks of backends that were named on its command line."""

from __future__ import annotations

from collections.abc import Iterable

from fusion_core.testing.conformance import BackendConformance

_OFFERED: list[str] = []


def offer(backends: Iterable[str]) -> None:
    """Let this module have a class with all checks for each of ``backends``, and no others.

    Args:
        backends: Names, in any spelling.
    """
    while _OFFERED:
        del globals()[_OFFERED.pop()]
    for backend in dict.fromkeys(backends):
        parts = backend.replace(".", "_").replace("-", "_").split("_")
        name = f"Test{''.join(part.capitalize() for part in parts)}"
        members = {"backend": backend, "__module__": __name__}
        globals()[name] = type(name, (BackendConformance,), members)
        _OFFERED.append(name)
