"""Tells pytest of ``--fusion-backend``; imports fusion-core, and with it torch, only if asked to."""  # noqa: INP001  a module of its own

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the conformance kit."""
    group = parser.getgroup("fusion", "conformance of backends for fusion-core")
    group.addoption(
        "--fusion-backend",
        action="append",
        default=[],
        metavar="NAME",
        help="run the conformance checks on this backend (may be given several times)",
    )
    group.addoption(
        "--fusion-matrix",
        action="append",
        default=[],
        metavar="FILE",
        help="write what the backends support: .json, .md or .txt (may be given several times)",
    )
    group.addoption(
        "--fusion-badge",
        action="append",
        default=[],
        metavar="FILE",
        help="write a badge: .svg, or .json for services that draw badges (several times)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Load the kit if it is asked for."""
    options = ("fusion_backend", "fusion_matrix", "fusion_badge")
    if any(map(config.getoption, options)):
        config.pluginmanager.import_plugin("fusion_core.testing.pytest_plugin")
