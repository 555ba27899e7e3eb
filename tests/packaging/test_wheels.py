"""What is inside the wheel of each distribution."""

from __future__ import annotations

import subprocess
import sys
from configparser import ConfigParser
from email.parser import HeaderParser
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parents[2]
PLUGINS = sorted(path.parent for path in ROOT.glob("plugins/*/pyproject.toml"))


@pytest.fixture(scope="session")
def wheel(tmp_path_factory):
    """Builds the wheel of a distribution's folder, once, and returns it opened."""
    built = {}

    def build(project: Path) -> ZipFile:
        if project not in built:
            target = tmp_path_factory.mktemp("wheel")
            command = [sys.executable, "-m", "build", "--wheel", "--no-isolation"]
            subprocess.run([*command, "--outdir", target, project], check=True, capture_output=True)
            (path,) = target.glob("*.whl")
            built[project] = ZipFile(path)
        return built[project]

    yield build
    for opened in built.values():
        opened.close()


def member(wheel: ZipFile, suffix: str) -> str:
    (name,) = [name for name in wheel.namelist() if name.endswith(suffix)]
    return wheel.read(name).decode()


def each_distribution():
    return pytest.mark.parametrize("project", [ROOT / "core", *PLUGINS], ids=lambda path: path.name)


@each_distribution()
def test_a_wheel_holds_one_typed_package_and_nothing_else(project: Path, wheel) -> None:
    sources = [path for path in (project / "src").iterdir() if path.name != "__pycache__"]
    (package,) = (path.name for path in sources if path.is_dir())
    names = wheel(project).namelist()
    tops = {name.split("/")[0] for name in names}
    # What pytest loads in every project is a module of its own, because the package imports torch.
    light = {path.name for path in sources if path.is_file()} & {"fusion_core_pytest.py"}
    assert {top for top in tops if not top.endswith(".dist-info")} == {package} | light
    assert f"{package}/py.typed" in names


@each_distribution()
def test_a_wheel_holds_every_source_file_and_no_tests(project: Path, wheel) -> None:
    sources = {str(path.relative_to(project / "src")) for path in (project / "src").rglob("*.py")}
    packed = {name for name in wheel(project).namelist() if name.endswith(".py")}
    assert packed == sources
    assert not [name for name in packed if "/tests/" in name or "/test_" in name]


@each_distribution()
def test_a_wheel_states_its_license_and_its_python(project: Path, wheel) -> None:
    text = member(wheel(project), ".dist-info/METADATA")
    metadata = HeaderParser().parsestr(text)
    assert metadata["License-Expression"] == "BSD-3-Clause"
    assert metadata["Requires-Python"] == ">=3.10"
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert "BSD 3-Clause" in member(wheel(project), ".dist-info/licenses/LICENSE")


@pytest.mark.parametrize("project", PLUGINS, ids=lambda path: path.name)
def test_a_plugin_offers_a_backend_named_like_its_folder(project: Path, wheel) -> None:
    parser = ConfigParser()
    parser.read_string(member(wheel(project), ".dist-info/entry_points.txt"))
    assert parser["fusion.backends"][project.name] == f"fusion_backend_{project.name}"
