"""The documentation is true: its code runs, and nothing a plugin author or a user meets is missing."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

import fusion_core as core
from fusion_core import errors
from fusion_core.hookspecs import HookSpecs

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)

HOOKS = {name: hook for name, hook in vars(HookSpecs).items() if name.startswith("fusion_")}
ERRORS = [
    name
    for name, value in vars(errors).items()
    if inspect.isclass(value) and issubclass(value, errors.FusionError)
]


def program(text: str) -> str:
    """The code of a page as one program, whose line numbers are those of the page."""
    lines = [""] * len(text.splitlines())
    for block in BLOCK.finditer(text):
        code = block[1].splitlines()
        first = text.count("\n", 0, block.start(1))
        lines[first : first + len(code)] = code
    return "\n".join(lines)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_code_of_a_page_runs_from_top_to_bottom(page, monkeypatch) -> None:
    code = program(page.read_text("utf-8"))
    if not code.strip():
        pytest.skip("no code to run")
    # A real module, because pages register themselves as plugins by their name.
    module = ModuleType(f"page_{page.stem.lower()}")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    core.refresh()  # what other tests put on the path is gone by now
    undo: list[Callable[[], None]] = []
    register = core.register_backend

    def register_for_this_page(name: str, plugin: object) -> Callable[[], None]:
        undo.append(register(name, plugin))
        return undo[-1]

    monkeypatch.setattr(core, "register_backend", register_for_this_page)
    try:
        exec(compile(code, str(page), "exec"), vars(module))  # noqa: S102 - the documentation's own code
    finally:
        for each in undo:
            each()


def test_each_rule_of_the_readme_points_to_tests_that_exist() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    held = [
        row.split("|")[2] for row in text.splitlines() if row.startswith("| ") and "tests/" in row
    ]
    assert held
    for pointer in ";".join(held).split(";"):
        path, *names = re.findall(r"`([^`]+)`", pointer)
        code = (ROOT / path).read_text("utf-8")
        assert names
        assert [name for name in names if f"def {name}(" not in code] == []


@pytest.mark.parametrize("name", HOOKS)
def test_each_hook_has_a_heading_with_its_signature(name) -> None:
    page = (ROOT / "docs" / "write_a_backend.md").read_text("utf-8")
    returns = inspect.signature(HOOKS[name]).return_annotation
    assert f"\n### `{name}() -> {returns}`\n" in page


@pytest.mark.parametrize("name", ERRORS)
def test_each_error_is_explained(name) -> None:
    pages = ("quantize.md", "write_a_backend.md")
    text = "".join((ROOT / "docs" / page).read_text("utf-8") for page in pages)
    assert f"`{name}`" in text
