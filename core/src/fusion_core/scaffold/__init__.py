"""Writes the project of a new backend, to start from: ``fusion new-backend``."""

from fusion_core.scaffold.write import write_backend

__all__ = ["write_backend"]
