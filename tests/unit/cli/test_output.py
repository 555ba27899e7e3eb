"""What holds for every command: JSON and nothing else, messages without tracebacks, exit codes, plain pipes."""

from __future__ import annotations

import io
import json
import re

import pytest
import torch
from typer.main import get_command

import fusion_core as core
from fusion_core import errors
from fusion_core.cli import app
from fusion_core.cli.output import answering

ESCAPES = re.compile("\x1b\\[")


def options_of(command):
    return {option for each in command.params for option in each.opts}


def test_every_command_can_print_json():
    commands = get_command(app).commands
    assert commands
    assert [name for name, each in commands.items() if "--json" not in options_of(each)] == []


@pytest.mark.usefixtures("nets")
def test_json_is_one_document_and_notes_go_to_standard_error(fusion):
    result = fusion("explain", "nets:model", "--backend", "fbgemm", "--json")
    assert json.loads(result.stdout)["backend"] == "fbgemm"
    assert result.stderr == "importing prints\n"


def test_an_error_is_a_message_without_a_traceback(fusion):
    result = fusion("info", "fbgem", code=2)
    assert result.stdout == ""
    assert result.stderr.startswith("error: no backend is named 'fbgem'. Did you mean 'fbgemm'?")
    assert result.stderr.count("\n") == 1


def test_an_error_is_a_json_document_too(fusion):
    result = fusion("info", "fbgem", "--json", code=2)
    said = json.loads(result.stdout)["error"]
    assert said["type"] == "UnknownBackendError"
    assert f"error: {said['message']}\n" == result.stderr


@pytest.mark.parametrize("by_option", [True, False])
def test_a_traceback_is_shown_on_request(fusion, monkeypatch, by_option):
    if not by_option:
        monkeypatch.setenv("FUSION_TRACEBACK", "1")
    result = fusion(*["--traceback"] * by_option, "info", "nobody", code=1)
    assert isinstance(result.exception, errors.UnknownBackendError)


@pytest.mark.usefixtures("nets")
def test_failures_and_misuse_have_exit_codes_of_their_own(fusion):
    fusion("coverage", "nets:in_double", "--input", "1x3x8x8", "--backend", "fbgemm", code=1)
    fusion("coverage", "nets:with_inputs", "--backend", "nobody", code=2)
    fusion("coverage", "nets:nothing", code=2)
    fusion("info", code=2)
    fusion("no-such-command", code=2)


def test_a_pipe_gets_neither_colours_nor_blanks_at_the_ends_of_lines(fusion):
    text = fusion("info", "fbgemm").stdout
    assert not ESCAPES.search(text)
    assert [line for line in text.splitlines() if line != line.rstrip()] == []


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("no_color", [True, False])
def test_a_terminal_gets_colours_unless_they_are_not_wanted(monkeypatch, no_color):
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    if no_color:
        monkeypatch.setenv("NO_COLOR", "1")
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    with pytest.raises(SystemExit) as ended:
        app(["backends"])
    assert ended.value.code == 0
    assert ("\x1b[32minstalled" in terminal.getvalue()) is not no_color


@pytest.mark.usefixtures("nets")
def test_a_narrow_terminal_cuts_off_nothing(fusion, monkeypatch):
    wide = fusion("coverage", "nets:with_inputs", "--backend", "fbgemm").stdout
    monkeypatch.setenv("COLUMNS", "20")
    narrow = fusion("coverage", "nets:with_inputs", "--backend", "fbgemm").stdout
    reason = "no pattern of fbgemm matches SiLU here"
    assert reason in " ".join(wide.split())
    assert "…" not in narrow
    lines = narrow[narrow.index("Stays in float") :].splitlines()
    start = next(line.index("why") for line in lines if "why" in line)
    assert reason in " ".join(" ".join(line[start:] for line in lines).split())


def test_the_versions_are_shown(fusion):
    version = core.get_backend("fbgemm").core_version
    assert fusion("--version").stdout == f"fusion-core {version}, torch {torch.__version__}\n"


def test_only_errors_of_the_library_are_made_messages():
    @answering
    def broken():
        return 1 / 0

    with pytest.raises(ZeroDivisionError):
        broken()
