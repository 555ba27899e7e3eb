"""The command ``fusion``: the public functions of the library, for a shell."""

from fusion_core.cli.app import app

__all__ = ["app"]
