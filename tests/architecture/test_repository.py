"""Facts of the checkout as a whole: what may be in a tracked file, and what each folder has."""

from __future__ import annotations

import re
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

# Someone's own folders, and where packages come from: both are the machine's business. The
# brackets keep this file from finding itself.
FORBIDDEN = re.compile(
    r"""
    (?<![\w.$}])/[(]?(home|root|Users|work|opt)[)]?/\w
    | pypi[.]org | python[h]osted | [-]-(extra-)?index-url | [-]-find-links | [-]-trusted-host
    """,
    re.VERBOSE,
)
FRAGMENT = re.compile(r"(\d+|\+\w+)\.(added|changed|deprecated|removed|fixed)(\.\d+)?\.md")


@pytest.fixture(scope="module")
def tracked(root: Path) -> list[Path]:
    """What git tracks or would track; an unpacked archive has no such list."""
    git = shutil.which("git")
    if git is None or not (root / ".git").exists():
        pytest.skip("not a git checkout")
    listing = subprocess.run(
        [git, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        check=True,
        capture_output=True,
        text=True,
    )
    return [root / name for name in listing.stdout.split("\0") if name and (root / name).is_file()]


@pytest.mark.parametrize(
    "text",
    [
        "cd /home" + "/me",
        "path = '/work" + "/x'",
        "https://pypi" + ".org/simple",
        "--index" + "-url",
    ],
)
def test_a_machine_path_or_a_registry_is_recognised(text: str) -> None:
    assert FORBIDDEN.search(text)


def test_no_tracked_file_names_a_machine_path_or_a_registry(tracked: list[Path]) -> None:
    found = [
        f"{path}:{number}: {line.strip()}"
        for path in tracked
        for number, line in enumerate(path.read_text("utf-8", "replace").splitlines(), start=1)
        if FORBIDDEN.search(line)
    ]
    assert not found


def test_each_fragment_has_an_allowed_name_and_says_which_distribution(root: Path) -> None:
    fragments = [path for path in (root / ".changes").iterdir() if path.name != "README.md"]
    assert not [path.name for path in fragments if not FRAGMENT.fullmatch(path.name)]
    assert not [
        path.name for path in fragments if not path.read_text("utf-8").startswith("`fusion-")
    ]


def test_each_distribution_carries_the_same_license(root: Path) -> None:
    text = (root / "LICENSE").read_text("utf-8")
    for project in [
        root / "core",
        *(path.parent for path in root.glob("plugins/*/pyproject.toml")),
    ]:
        assert (project / "LICENSE").read_text("utf-8") == text, project
