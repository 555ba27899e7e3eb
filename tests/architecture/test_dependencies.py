"""What core declares is what its code imports: nothing missing, nothing idle."""

from __future__ import annotations

import ast
import sys
from importlib.metadata import packages_distributions, requires
from typing import TYPE_CHECKING

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

if TYPE_CHECKING:
    from collections.abc import Iterator


def top_level_imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module.split(".")[0]


@pytest.fixture(scope="module")
def imported(core_sources) -> set[str]:
    """The distributions, other than itself and Python, that core imports."""
    names = {name for source in core_sources for name in top_level_imports(source.tree)}
    owners = packages_distributions()
    return {
        canonicalize_name(owner)
        for name in names - sys.stdlib_module_names - {"fusion_core", "tomllib"}  # new in 3.11
        for owner in owners.get(name, [name])
    }


@pytest.fixture(scope="module")
def declared() -> set[str]:
    requirements = map(Requirement, requires("fusion-core"))
    return {
        canonicalize_name(requirement.name)
        for requirement in requirements
        if requirement.marker is None or "extra" not in str(requirement.marker)
    }


def test_every_import_is_declared(imported, declared) -> None:
    # pytest is there whenever fusion_core.testing is imported.
    assert imported - {"pytest", "hypothesis"} <= declared


def test_every_declared_dependency_is_imported(imported, declared) -> None:
    assert declared <= imported
