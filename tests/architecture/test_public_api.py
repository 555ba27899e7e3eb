"""The public interface changes only when somebody means it to: its text is kept in a file."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .changes import changes
from .public_api import MODULES, SNAPSHOT, public_api

RENEW = "python -m tests.architecture.public_api"


def test_the_public_interface_is_the_recorded_one() -> None:
    breaks, additions = changes(SNAPSHOT.read_text("utf-8"), public_api())
    if not (breaks or additions):
        return
    said = [f"the public interface is not the one in {SNAPSHOT.name}."]
    if breaks:
        said += [
            "",
            "These break code that relies on them (docs/stability.md says when that may be):",
        ]
        said += [f"  {each}" for each in breaks]
    if additions:
        said += ["", "These are additions:", *(f"  {each}" for each in additions)]
    said += ["", f"If they are meant, renew the file: {RENEW}"]
    pytest.fail("\n".join(said), pytrace=False)


@pytest.mark.parametrize("name", MODULES)
def test_each_public_module_is_in_the_snapshot(name) -> None:
    assert re.search(rf"^\w+ {re.escape(name)}\.", SNAPSHOT.read_text("utf-8"), re.MULTILINE)


def test_the_page_on_stability_names_each_public_module() -> None:
    page = (Path(__file__).parents[2] / "docs" / "stability.md").read_text("utf-8")
    assert not [name for name in MODULES if f"`{name}`" not in page]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("function f(a) -> int", "function f(a, b=1) -> int"),
        ("function f(a) -> int", "function f(a, *, b: int=1) -> int"),
        ("method C.f(self, *, a=1)", "method C.f(self, *, b=2, a=1)"),
        ("class C()", "class C()\nfield C.a: int = 1"),
        ("class C()", "class C()\nmethod C.f(self)"),
        ("member E.A = 1", "member E.A = 1\nmember E.B = 2"),
        ("api minor = 0", "api minor = 1"),
        (
            "option fusion:lint:--json flag",
            "option fusion:lint:--json flag\noption fusion:lint:--all",
        ),
    ],
)
def test_what_nobody_has_to_know_is_an_addition(before, after) -> None:
    breaks, additions = changes(before, after)
    assert (breaks, len(additions)) == ([], 1)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("function f(a)", ""),
        ("function f(a)", "function f(b)"),
        ("function f(a)", "function f(a, b)"),
        ("function f(a, b=1)", "function f(a, c=1, b=1)"),
        ("function f(a, b=1)", "function f(a, b=2)"),
        ("function f(a, b=1)", "function f(a, *, b=1)"),
        ("function f(a) -> int", "function f(a) -> str"),
        ("class C(A, B)", "class C(A)"),
        ("class C()", "class C()\nfield C.a: int"),
        ("field C.a: int = 1", "field C.a: int = 2"),
        ("member E.A = 1", "member E.A = 2"),
        ("hook fusion_pattern_configs() -> int", "hook fusion_pattern_configs() -> str"),
        ("argument fusion:info:name", "argument fusion:info:name required"),
        ("command fusion:info", "command fusion:info\nargument fusion:info:name required"),
        ("api major = 1", "api major = 2"),
    ],
)
def test_what_others_rely_on_is_a_break(before, after) -> None:
    breaks, additions = changes(before, after)
    assert (len(breaks), additions) == (1, [])


def test_the_same_is_no_change() -> None:
    text = public_api()
    assert changes(text, text) == ([], [])
