"""Tells pytest of ``--fusion-backend``; imports fusion-core, and with it torch, only if that is given."""

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


def pytest_configure(config: pytest.Config) -> None:
    """Load the kit if it is asked for."""
    if config.getoption("fusion_backend"):
        config.pluginmanager.import_plugin("fusion_core.testing.pytest_plugin")
