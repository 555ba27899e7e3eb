"""The page about the command line has every command, and every option of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.main import get_command

from fusion_core.cli import app

PAGE = (Path(__file__).parents[3] / "docs" / "command_line.md").read_text("utf-8")
COMMANDS = get_command(app).commands


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_has_a_section_with_its_usage_and_options(name):
    heading = f"## `fusion {name}`\n"
    assert heading in PAGE
    section = PAGE.partition(heading)[2].partition("\n## ")[0]
    assert re.search(rf"^fusion {name}\b", section, re.MULTILINE)
    for each in COMMANDS[name].params:
        for option in {*each.opts} - {"--json", "--help"}:
            shown = option if option.startswith("--") else each.metavar.strip("[]. ")
            assert shown in section


def test_the_options_of_all_commands_are_told_once():
    start = PAGE.partition("\n## ")[0]
    for option in ("--json", "--help", "--traceback", "--version", "--install-completion"):
        assert option in start
