"""The commands, put together."""

from __future__ import annotations

from typing import Annotated

import torch
import typer

from fusion_core.cli import authors, backends, models
from fusion_core.cli.output import FusionGroup
from fusion_core.registry import core_version

app = typer.Typer(
    name="fusion",
    cls=FusionGroup,
    no_args_is_help=True,
    # A traceback of ours is asked for, and then it is Python's own.
    pretty_exceptions_enable=False,
)
app.command("backends")(backends.backends)
app.command("info")(backends.info)
app.command("doctor")(backends.doctor)
app.command("explain")(models.explain)
app.command("coverage")(models.coverage)
app.command("new-backend")(authors.new_backend)
app.command("lint")(backends.lint)
app.command("conformance")(authors.conformance)


def _show_version(*, wanted: bool) -> None:
    if wanted:
        typer.echo(f"fusion-core {core_version() or '(not installed)'}, torch {torch.__version__}")
        raise typer.Exit


@app.callback()
def fusion(
    *,
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the versions.", callback=_show_version, is_eager=True),
    ] = False,
    traceback: Annotated[
        bool,
        typer.Option(
            "--traceback", envvar="FUSION_TRACEBACK", help="Show where an error was raised."
        ),
    ] = False,
) -> None:
    """Quantize PyTorch models with backends that are installed with pip.

    Exit codes: 0, all is well; 1, something was found, or failed; 2, what was asked for does not exist.
    """
