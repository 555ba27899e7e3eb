"""What a command answers, how it is shown, and what becomes of errors."""

from __future__ import annotations

import functools
import json
import shutil
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass
from typing import Annotated, Any, ParamSpec

import typer
from rich.console import Console, RenderableType
from rich.text import Text
from typer.core import TyperGroup

from fusion_core.errors import (
    DuplicateBackendError,
    FusionError,
    MissingPackageError,
    ModelTargetError,
    ScaffoldError,
    UnknownBackendError,
    UnknownNodeError,
)

FINE, FOUND, USAGE = 0, 1, 2
"""Exit codes: all is well; something was found, or failed; what was asked for does not exist."""

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document, and nothing else.")]

_USAGE_ERRORS = (
    DuplicateBackendError,
    MissingPackageError,
    ModelTargetError,
    ScaffoldError,
    UnknownBackendError,
    UnknownNodeError,
)
_NARROWEST, _FALLBACK = 60, (100, 24)

P = ParamSpec("P")


@dataclass(frozen=True)
class Answer:
    """What a command found.

    Attributes:
        shown: For people.
        data: The same for programs, in values that JSON has.
        code: Exit code.
    """

    shown: RenderableType
    data: Any
    code: int = FINE


class FusionGroup(TyperGroup):
    """Commands whose errors are a message and an exit code; a traceback only on request."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was asked for."""
        try:
            return super().invoke(ctx)
        except FusionError as error:
            if ctx.params.get("traceback"):
                raise
            said = Text.assemble(("error: ", "bold red"), str(error))
            Console(stderr=True).print(said, soft_wrap=True)
            raise typer.Exit(_code(error)) from error


def answering(command: Callable[P, Answer]) -> Callable[P, None]:
    """``command`` as typer calls it: shows the answer, as JSON where its ``_as_json`` says so.

    What a model or a plugin prints on standard output meanwhile goes to standard error.
    """

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        as_json = bool(kwargs.get("_as_json"))
        try:
            with redirect_stdout(sys.stderr):
                answer = command(*args, **kwargs)
        except FusionError as error:
            if as_json:
                typer.echo(_json({"error": {"type": type(error).__name__, "message": str(error)}}))
            raise
        if as_json:
            typer.echo(_json(answer.data))
        else:
            _show(answer.shown)
        raise typer.Exit(answer.code)

    return run


def note(text: str) -> None:
    """Say how things go, on standard error."""
    typer.echo(text, err=True)


def _show(shown: RenderableType) -> None:
    """Print for people: in colour on a terminal, without blanks at the ends of lines into a pipe."""
    columns = shutil.get_terminal_size(_FALLBACK).columns
    console = Console(width=max(columns, _NARROWEST), highlight=False)
    if console.is_terminal:
        console.print(shown)
        return
    with console.capture() as printed:
        console.print(shown)
    typer.echo("\n".join(line.rstrip() for line in printed.get().splitlines()))


def _json(data: Any) -> str:
    return json.dumps(data, indent=2)


def _code(error: FusionError) -> int:
    return USAGE if isinstance(error, _USAGE_ERRORS) else FOUND
