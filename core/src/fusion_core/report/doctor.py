"""``doctor``: tries every plugin, each in a process of its own, and says what is wrong and what to do."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch

from fusion_core.configs import API_VERSION
from fusion_core.registry import BackendRecord, backends, core_version
from fusion_core.registry.blame import DISABLED_BACKENDS
from fusion_core.report.diagnosis import Diagnosis, Health, PluginDiagnosis
from fusion_core.report.probe import Loaded, load_apart, load_here

_SLOWEST = 1.0
"""A plugin is slow if loading it takes longer than this, in seconds, and than importing core with torch."""

_AT_ONCE = 4


def doctor(*, timeout: float = 120.0, progress: Callable[[str], object] | None = None) -> Diagnosis:
    """Try every backend, and say what is wrong with it and what to do.

    Each installed one is loaded in a process of its own, with its extensions, so that one that
    hangs, crashes or is slow harms nobody. Those registered at run time are loaded in this one.

    Args:
        timeout: How long to wait for each, in seconds.
        progress: Called with the name of each backend that is about to be tried; not always from
            the calling thread.

    Returns:
        Versions, the quantized engines of this PyTorch, and the health of each backend.
    """
    records = backends()

    def diagnose(record: BackendRecord) -> PluginDiagnosis:
        if progress is not None and record.state not in {"disabled", "duplicate"}:
            progress(record.name)
        return _diagnosis(record, _tried(record, timeout))

    at_once = min(_AT_ONCE, os.cpu_count() or 1)
    with ThreadPoolExecutor(at_once) as threads:
        plugins = tuple(threads.map(diagnose, records))
    return Diagnosis(_versions(), tuple(_engines()), plugins)


def _versions() -> dict[str, str]:
    return {
        "fusion-core": core_version() or "not installed",
        "plugin interface": API_VERSION,
        "torch": torch.__version__,
        "Python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
    }


def _engines() -> list[str]:
    return [each for each in torch.backends.quantized.supported_engines if each != "none"]


def _tried(record: BackendRecord, timeout: float) -> Loaded | None:
    """How loading went; None for what is not to be tried."""
    if record.state == "registered":
        return load_here(record.name)
    # What failed before may do better in a process of its own, or say more.
    return load_apart(record.name, timeout) if record.state in {"installed", "broken"} else None


def _diagnosis(record: BackendRecord, loaded: Loaded | None) -> PluginDiagnosis:
    health, problem, remedy = _finding(record, loaded)
    return PluginDiagnosis(
        *(record.name, record.distribution, record.version, record.extensions, health),
        problem=problem,
        remedy=remedy,
        seconds=None if loaded is None else loaded.seconds,
    )


def _finding(record: BackendRecord, loaded: Loaded | None) -> tuple[Health, str, str]:
    """Health, what is wrong, and what to do."""
    if record.state == "disabled":
        return "disabled", record.problem or "", ""
    if (
        loaded is None or loaded.kind == "UnknownBackendError"
    ):  # known to be no use, without loading it
        return "broken", record.problem or "", _replacing(record)
    if loaded.outcome == "loaded":
        return _speed(loaded)
    blamed = f"its extension {loaded.plugin}: " if loaded.plugin not in {"", record.name} else ""
    health: Health = "unavailable" if loaded.outcome == "unavailable" else "broken"
    return health, f"{blamed}{loaded.problem}", loaded.remedy or _remedy(record)


def _speed(loaded: Loaded) -> tuple[Health, str, str]:
    if loaded.seconds is None or loaded.core_seconds is None:
        return "fine", "", ""
    ratio = loaded.seconds / loaded.core_seconds
    if loaded.seconds < _SLOWEST or ratio < 1:
        return "fine", "", ""
    problem = f"loading it takes {ratio:.1f} times as long as importing fusion-core with torch"
    return "slow", problem, "Tell its authors; what is heavy can be imported when it is used"


def _remedy(record: BackendRecord) -> str:
    """For what the registry has no remedy for."""
    names = " or ".join((record.name, *record.extensions))
    return f"{_replacing(record)}; {DISABLED_BACKENDS}={names} leaves it out"


def _replacing(record: BackendRecord) -> str:
    name = record.distribution
    return f"Upgrade it (pip install --upgrade {name}), remove it (pip uninstall {name}) or tell its authors"
