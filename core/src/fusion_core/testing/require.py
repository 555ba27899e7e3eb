"""How a check ends: with a sentence and without a traceback, since the fault is not in the kit."""

from __future__ import annotations

from typing import NoReturn

import pytest

GAP = "declared gap: "
"""How the reason of a skip begins that a backend declared itself."""


def require(condition: bool, message: str) -> None:  # noqa: FBT001  what is required
    """Fail the running check with ``message`` unless ``condition`` holds."""
    if not condition:
        pytest.fail(message, pytrace=False)


def require_none(problem: str | None, where: str = "") -> None:
    """Fail the running check if there is a problem.

    Args:
        problem: What is wrong, or None.
        where: What it is wrong with, put in front.
    """
    if problem is not None:
        pytest.fail(f"{where}: {problem}" if where else problem, pytrace=False)


def skip_gap(reason: str) -> NoReturn:
    """Skip the running check, because the backend says itself that it lacks this."""
    pytest.skip(f"{GAP}{reason}")
