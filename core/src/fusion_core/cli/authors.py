"""Commands for authors of backends: ``new-backend`` and ``conformance``."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

import fusion_core as core
from fusion_core.cli.output import FINE, FOUND, USAGE, Answer, Json, answering
from fusion_core.errors import MissingPackageError
from fusion_core.registry.discovery import plugin_name
from fusion_core.scaffold import write_backend

STDERR = 2
"""The file descriptor."""

# By pytest's exit codes.
_CODES = {0: FINE, 4: USAGE, 5: USAGE}
_VERDICTS = {
    0: "it does what it claims",
    1: "it does not do what it claims; the failed checks are above",
    4: "pytest was called wrongly",
    5: "no check was selected",
}


@answering
def new_backend(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the backend, such as acme.")],
    *,
    into: Annotated[
        Path, typer.Option("--into", metavar="FOLDER", help="Where its folder is made.")
    ] = Path(),
    _as_json: Json = False,
) -> Answer:
    """Write a new backend: a project that installs, works and passes its tests, to start from."""
    folder = write_backend(name, into)
    files = sorted(
        each.relative_to(folder).as_posix() for each in folder.rglob("*") if each.is_file()
    )
    backend = (plugin_name(name) or name).partition(".")[0]  # what an extension belongs to
    steps = [
        f"pip install --editable '{folder}[test]'",
        f"python -m pytest {folder}",
        f"fusion lint {backend}",
        f"fusion conformance {backend}",
    ]
    lines = ["Next:", *(f"  {each}" for each in steps)]
    shown = Text("\n".join([f"Wrote {folder}:", *(f"  {each}" for each in files), *lines]))
    return Answer(shown, {"folder": str(folder), "files": files, "next": steps})


@answering
def conformance(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of a backend.")],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="[-- PYTEST-ARGUMENT...]", help="Passed on to pytest."),
    ] = None,
    *,
    matrix: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Write the support matrix; again for another format."),
    ] = None,
    badge: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a badge with the result.")
    ] = None,
    _as_json: Json = False,
) -> Answer:
    """Check that a backend does what it claims, with pytest.

    Exits with 1 if a check fails.
    """
    if importlib.util.find_spec("pytest") is None:
        raise MissingPackageError("fusion conformance", "pytest", "'fusion-core[testing]'")
    backend = core.get_backend(name)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "matrix.json"
        options = ["--fusion-backend", backend.name]
        for each in [*(matrix or []), file]:
            options += ["--fusion-matrix", str(each)]
        options += [] if badge is None else ["--fusion-badge", str(badge)]
        code = _pytest(*options, *(arguments or []))
        verdict = (
            f"{backend.name}: {_VERDICTS.get(code, 'pytest was interrupted or failed itself')}"
        )
        data: Any = {"error": {"type": "pytest", "message": verdict}}
        if file.exists():
            data = json.loads(file.read_text("utf-8"))
    return Answer(Text(verdict), data, _CODES.get(code, FOUND))


def _pytest(*arguments: str) -> int:
    """Run pytest, which talks on standard error; returns its exit code."""
    command = [sys.executable, "-m", "pytest", *arguments]
    return subprocess.run(command, check=False, stdout=STDERR).returncode  # noqa: S603  the user's
