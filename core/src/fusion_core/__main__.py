"""``python -m fusion_core`` is the command ``fusion``."""

from __future__ import annotations

from fusion_core.cli import app

if __name__ == "__main__":
    app()
