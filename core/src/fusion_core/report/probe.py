"""Loads one backend in a process of its own, so that whatever its plugins do ends there."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fusion_core.errors import BackendUnavailableError, FusionError, PluginError
from fusion_core.registry import get_backend

# The path first: the other process shall find what this one finds. Then the clock.
_PROGRAM = """
import json, sys, time
sys.path[:] = json.loads(sys.argv[1])
begun = time.perf_counter()
from fusion_core.report.probe import answer
answer(sys.argv[2], sys.argv[3], time.perf_counter() - begun)
"""
_TAIL = 3


@dataclass(frozen=True, slots=True)
class Loaded:
    """How loading a backend went.

    Attributes:
        outcome: ``"loaded"``, ``"unavailable"`` on this machine, or ``"broken"``.
        plugin: Name of the plugin to blame, where it is known.
        problem: What is wrong; empty if nothing is.
        remedy: What to do about it.
        kind: Type of the error; empty where there was none, or none could be seen.
        seconds: How long it took; None if it did not come to an end.
        core_seconds: How long importing fusion-core, and with it torch, took in the same process.
    """

    outcome: str
    plugin: str = ""
    problem: str = ""
    remedy: str = ""
    kind: str = ""
    seconds: float | None = None
    core_seconds: float | None = None


def load_here(name: str, get: Callable[[str], object] = get_backend) -> Loaded:
    """Load a backend in this process.

    Args:
        name: Name of the backend.
        get: What loads it.
    """
    begun = time.perf_counter()
    try:
        get(name)
    except FusionError as error:
        return _failed(error, time.perf_counter() - begun)
    return Loaded("loaded", seconds=time.perf_counter() - begun)


def load_apart(name: str, timeout: float) -> Loaded:
    """Load a backend in another Python process, which a plugin may hang or kill.

    Args:
        name: Name of the backend.
        timeout: How long to wait for an answer, in seconds, once the process has been started.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "answer.json"
        command = [sys.executable, "-c", _PROGRAM, json.dumps(sys.path), name, str(file)]
        try:
            ended = subprocess.run(  # noqa: S603  our own program, in our own interpreter
                command, capture_output=True, timeout=timeout, check=False, stdin=subprocess.DEVNULL
            )
        except subprocess.TimeoutExpired:
            return Loaded(
                "broken", problem=f"loading it has not come to an end after {timeout:g} s"
            )
        if file.exists():
            facts: dict[str, Any] = json.loads(file.read_text("utf-8"))
            return Loaded(**facts)
    last = ended.stderr.decode("utf-8", "replace").strip().splitlines()[-_TAIL:]
    said = f", its last words: {' / '.join(last)}" if last else ""
    return Loaded(
        "broken",
        problem=f"loading it ended the whole process, with {_ending(ended.returncode)}{said}",
    )


def answer(name: str, file: str, core_seconds: float) -> None:
    """Load a backend and write to ``file`` how that went; what :func:`load_apart` runs.

    Args:
        name: Name of the backend.
        file: Where the answer goes, as JSON; standard output is the plugin's.
        core_seconds: How long importing fusion-core took.
    """
    loaded = {**asdict(load_here(name)), "core_seconds": core_seconds}
    Path(file).write_text(json.dumps(loaded), "utf-8")


def _failed(error: FusionError, seconds: float) -> Loaded:
    kind = type(error).__name__
    if not isinstance(error, PluginError):
        return Loaded("broken", problem=str(error), kind=kind, seconds=seconds)
    outcome = "unavailable" if isinstance(error, BackendUnavailableError) else "broken"
    hook = f"hook {error.hook}: " if error.hook else ""
    return Loaded(
        outcome, error.backend, f"{hook}{error.problem}", error.remedy, kind, seconds=seconds
    )


def _ending(code: int) -> str:
    """POSIX gives the number of a signal as a negative code."""
    return f"signal {-code}" if code < 0 else f"exit code {code}"
