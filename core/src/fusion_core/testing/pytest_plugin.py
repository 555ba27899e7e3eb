"""Runs the kit for backends named on pytest's command line, and says what came out."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from fusion_core.testing import kit
from fusion_core.testing.badge import badge_json, badge_svg
from fusion_core.testing.conformance import BackendConformance, name_of
from fusion_core.testing.matrix import SupportMatrix, support_matrix
from fusion_core.testing.results import CheckResult

_NARROWEST = 60
_PROPERTY = "fusion"
_WRITERS: Mapping[str, Mapping[str, Callable[[SupportMatrix], str]]] = {
    "--fusion-matrix": {
        ".json": lambda matrix: json.dumps(matrix.to_dict(), indent=2) + "\n",
        ".md": SupportMatrix.to_markdown,
        ".txt": lambda matrix: matrix.text(width=100) + "\n",
    },
    "--fusion-badge": {".svg": badge_svg, ".json": badge_json},
}
"""By option and suffix, what turns a matrix into a file's text."""


def pytest_configure(config: pytest.Config) -> None:
    """Collect the kit where backends are named and files are not; listen to results.

    Raises:
        pytest.UsageError: A file to write has a suffix that stands for no format.
    """
    files = _files(config)
    backends: list[str] = config.getoption("fusion_backend")
    kit.offer(backends)
    if backends and config.args_source is not pytest.Config.ArgsSource.ARGS:
        config.args[:] = [str(Path(kit.__file__))]
    config.pluginmanager.register(_Listener(files, is_asked=bool(backends)), "fusion-listener")


def _files(config: pytest.Config) -> list[tuple[str, Path]]:
    files = [("--fusion-matrix", Path(each)) for each in config.getoption("fusion_matrix")]
    files += [("--fusion-badge", Path(each)) for each in config.getoption("fusion_badge")]
    for option, path in files:
        if path.suffix not in _WRITERS[option]:
            known = ", ".join(_WRITERS[option])
            msg = f"{option} {path}: the suffix says what is written; there are {known}"
            raise pytest.UsageError(msg)
    return files


class _Listener:
    """Hears how each check ended, and writes it down at the end."""

    def __init__(self, files: list[tuple[str, Path]], *, is_asked: bool) -> None:
        self._files = files
        self._is_asked = is_asked
        self._results: list[CheckResult] = []

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Let the reports of each check say which backend and capability it is about."""
        for item in items:
            kind = getattr(item, "cls", None)
            if kind is None or not issubclass(kind, BackendConformance):
                continue
            parameters = item.callspec.params if hasattr(item, "callspec") else {}
            about = {"backend": name_of(kind), "capability": parameters.get("capability")}
            # Properties of a report reach the listener from other processes, too.
            item.user_properties.append((_PROPERTY, about))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep what a check came to."""
        about: Any = dict(report.user_properties).get(_PROPERTY)
        if about is None or not (report.when == "call" or not report.passed):
            return
        self._results.append(
            CheckResult(
                check=report.nodeid.rpartition("::")[2],
                outcome=report.outcome,
                reason=_reason(report),
                **about,
            )
        )

    def pytest_sessionfinish(self) -> None:
        """Write the files that were asked for."""
        matrix = support_matrix(self._results)
        for option, path in self._files:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(_WRITERS[option][path.suffix](matrix), encoding="utf-8")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Show the matrix, or where nobody asked for a backend by name a line for each."""
        if not self._results:
            return
        matrix = support_matrix(self._results)
        terminalreporter.section("conformance of backends for fusion-core")
        if not self._is_asked:
            for backend in matrix.backends:
                terminalreporter.write_line(matrix.summary(backend))
        else:
            terminalreporter.write_line(_in_colour(matrix, terminalreporter))
        for _, path in self._files:
            terminalreporter.write_line(f"wrote {path}")


def _reason(report: pytest.TestReport) -> str:
    if report.passed:
        return ""
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2]).removeprefix("Skipped: ")
    return str(report.longreprtext).strip()


def _in_colour(matrix: SupportMatrix, reporter: pytest.TerminalReporter) -> str:
    console = Console(
        width=max(shutil.get_terminal_size().columns, _NARROWEST),
        force_terminal=reporter.hasmarkup,
        color_system="standard" if reporter.hasmarkup else None,
    )
    with console.capture() as captured:
        console.print(matrix)
    return captured.get().rstrip()
