"""Commands about what is installed: ``backends``, ``info``, ``doctor``, ``lint``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import RenderableType
from rich.text import Text

import fusion_core as core
from fusion_core.cli.output import FINE, FOUND, Answer, Json, answering, note
from fusion_core.registry import BackendRecord
from fusion_core.report.tables import table

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of a backend.")]

_STYLES = {"installed": "green", "registered": "green", "disabled": "dim"}


@answering
def backends(*, _as_json: Json = False) -> Answer:
    """List the backends that are installed; none of them is imported."""
    records = core.backends()
    return Answer(_listing(records), [asdict(each) for each in records])


def _listing(records: Sequence[BackendRecord]) -> RenderableType:
    if not records:
        return Text("No backend is installed; one for x86 CPUs: pip install fusion-backend-fbgemm")
    columns = ["backend", "distribution", "state", "summary"]
    has_extensions = any(each.extensions for each in records)
    has_problems = any(each.problem for each in records)
    columns += ["extensions"] * has_extensions + ["problem"] * has_problems
    drawn = table("", columns)
    for each in records:
        cells = [
            Text(each.name),
            Text(f"{each.distribution} {each.version}"),
            Text(each.state, style=_STYLES.get(each.state, "red")),
            Text(each.summary),
        ]
        cells += [Text(", ".join(each.extensions))] * has_extensions
        cells += [Text(each.problem or "")] * has_problems
        drawn.add_row(*cells)
    return drawn


@answering
def info(name: Name, *, _as_json: Json = False) -> Answer:
    """Show what a backend is and supports: patterns, kernels, dtypes, gaps, and where each comes from."""
    description = core.describe(name)
    return Answer(description, description.to_dict())


@answering
def doctor(
    *,
    timeout: Annotated[
        float, typer.Option(min=1, help="Seconds to wait for each backend to load.")
    ] = 120.0,
    _as_json: Json = False,
) -> Answer:
    """Try every backend in a process of its own, and say what is wrong and what to do.

    Exits with 1 if a plugin is broken. One that cannot run on this machine is none.
    """
    diagnosis = core.doctor(timeout=timeout, progress=lambda name: note(f"loading {name} ..."))
    return Answer(diagnosis, diagnosis.to_dict(), FOUND if diagnosis.errors else FINE)


@answering
def lint(
    name: Name,
    *,
    strict: Annotated[bool, typer.Option("--strict", help="Let warnings count as errors.")] = False,
    _as_json: Json = False,
) -> Answer:
    """Look for mistakes in the patterns and rules of a backend.

    Exits with 1 if there are errors.
    """
    found = core.lint(name)
    counted = found.errors or (strict and found.warnings)
    return Answer(found, found.to_dict(), FOUND if counted else FINE)
