"""The source files of the repository, read once for all tests of its architecture."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Source:
    """One Python file below a ``src`` folder."""

    path: Path

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, filename=str(self.path))

    @property
    def module(self) -> tuple[str, ...]:
        """The dotted name in parts: ``("fusion_core", "patterns", "grammar")``."""
        parts = self.path.with_suffix("").parts
        name = parts[len(parts) - parts[::-1].index("src") :]
        return name[:-1] if name[-1] == "__init__" else name

    def __str__(self) -> str:
        return str(self.path.relative_to(ROOT))


def _sources(*folders: Path) -> list[Source]:
    return [Source(path) for folder in folders for path in sorted(folder.rglob("*.py"))]


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def core_sources() -> list[Source]:
    return _sources(ROOT / "core" / "src")


@pytest.fixture(scope="session")
def plugin_sources() -> list[Source]:
    return _sources(*sorted(ROOT.glob("plugins/*/src")))
