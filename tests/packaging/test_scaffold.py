"""What ``fusion new-backend`` writes builds, installs, and passes its own tests and the conformance kit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from fusion_core import registry
from fusion_core.scaffold import write_backend

CORE = Path(registry.__file__).parents[2]

pytestmark = pytest.mark.slow

# What pip does to build a wheel.
BUILD = "import sys; from hatchling.build import build_wheel; print(build_wheel(sys.argv[1]))"


def python(*arguments, cwd, path=()):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, [*path, CORE]))}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def site(tmp_path):
    return tmp_path / "site"


@pytest.fixture
def built(site, install, tmp_path):
    """Writes a plugin, builds it and installs it into ``site``; returns its folder."""

    def build(name):
        folder = write_backend(name, tmp_path)
        wheel = python("-c", BUILD, tmp_path, cwd=folder).split()[-1]
        install([tmp_path / wheel], site)
        return folder

    return build


def test_the_wheel_of_core_has_every_template(tmp_path) -> None:
    project = Path(__file__).parents[2] / "core"
    wheel = python("-c", BUILD, tmp_path, cwd=project).split()[-1]
    source = project / "src"
    templates = {
        path.relative_to(source).as_posix()
        for path in (source / "fusion_core" / "scaffold" / "templates").rglob("*")
        if path.is_file()
    }
    with ZipFile(tmp_path / wheel) as opened:
        assert templates <= set(opened.namelist())
    assert all(path.endswith(".template") for path in templates)


def test_a_new_backend_passes_its_tests_and_the_kit_untouched(built, site) -> None:
    folder = built("Acme-NPU")
    told = python("-W", "error::DeprecationWarning", "-m", "pytest", "-q", cwd=folder, path=[site])
    assert "acme_npu: capabilities " in told
    assert " passed" in told.splitlines()[-1]


def test_a_new_extension_passes_its_tests_and_what_the_kit_asks_of_its_pattern(built, site) -> None:
    folder = built("fbgemm.acme")
    chosen = "test_fbgemm_acme or Threshold"
    told = python("-m", "pytest", "-q", "-k", chosen, cwd=folder, path=[site])
    assert "fbgemm: capabilities " in told
    assert " passed" in told.splitlines()[-1]
