"""Where a contribution comes from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class PluginOrigin:
    """Where a contribution comes from.

    Attributes:
        backend: Name of the backend it belongs to.
        name: The plugin's own name: the backend's, or ``<backend>.<extension>``.
        distribution: What was installed with pip.
        version: Version of the distribution.
    """

    backend: str
    name: str
    distribution: str
    version: str

    def __str__(self) -> str:
        return f"{self.name} ({self.distribution} {self.version})"

    def to_dict(self) -> dict[str, str]:
        """Name, distribution and version, for reports as data."""
        return {
            "name": self.name,
            "distribution": self.distribution,
            "version": self.version,
        }
