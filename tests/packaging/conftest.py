"""The plugins of ``tests/plugins_for_tests`` as wheels, and processes that see them installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROJECTS = Path(__file__).parents[1] / "plugins_for_tests"

# What pip does to build a wheel, for every folder in one process.
BUILD = """
import os, sys
from hatchling.build import build_wheel

target, *projects = sys.argv[1:]
for project in projects:
    os.chdir(project)
    build_wheel(target)
"""


def run_code(code, *arguments, path=()):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))}
    command = [sys.executable, "-W", "error", "-c", code, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="session")
def wheels(tmp_path_factory):
    target = tmp_path_factory.mktemp("wheels")
    run_code(BUILD, target, *sorted(path.parent for path in PROJECTS.glob("*/pyproject.toml")))
    return sorted(target.glob("*.whl"))


def install_wheels(wheels, target):
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    pip += ["--no-compile", "--disable-pip-version-check", "--target", target]
    subprocess.run([*pip, *wheels], check=True, capture_output=True)
    return target


@pytest.fixture(scope="session")
def run():
    """Runs a program in a process of its own, with folders in front of its path."""
    return run_code


@pytest.fixture(scope="session")
def install():
    """Installs wheels into a folder, as pip does."""
    return install_wheels
