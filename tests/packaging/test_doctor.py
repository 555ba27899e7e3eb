"""The doctor tries installed plugins, real wheels, each in a process that may hang or end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fusion_core import registry
from fusion_core.report.probe import load_apart

CORE = Path(registry.__file__).parents[2]
PLUGINS = ("absent", "duplicate", "duplicate_too", "good", "extension", "import_error", "killing")

pytestmark = pytest.mark.slow


def named(wheels, *names):
    wanted = {f"fusion_test_{name}" for name in names}
    return [each for each in wheels if each.name.partition("-")[0] in wanted]


@pytest.fixture(scope="module")
def diagnosis(wheels, install, tmp_path_factory):
    """What ``fusion doctor --json`` prints, and its exit code, with nothing else installed."""
    site = install(named(wheels, *PLUGINS), tmp_path_factory.mktemp("doctored"))
    others = ",".join(each.name for each in registry.backends())
    path = os.pathsep.join(map(str, (site, CORE)))
    environment = {**os.environ, "PYTHONPATH": path, "FUSION_DISABLED_BACKENDS": others}
    done = subprocess.run(
        [sys.executable, "-m", "fusion_core", "doctor", "--json"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    return {each["name"]: each for each in json.loads(done.stdout)["plugins"]}


def test_a_good_plugin_is_loaded_with_its_extensions(diagnosis):
    good = diagnosis["good"]
    assert (good["health"], good["extensions"], good["problem"]) == ("fine", ["good.conv"], "")
    assert good["seconds"] >= 0


def test_a_broken_import_is_told_with_the_pip_line(diagnosis):
    broken = diagnosis["import_error"]
    assert broken["health"] == "broken"
    assert "ModuleNotFoundError: No module named 'package_" in broken["problem"]
    assert broken["remedy"].startswith(
        "Upgrade it (pip install --upgrade fusion-test-import-error)"
    )


def test_one_that_ends_the_process_is_told_with_its_last_words(diagnosis):
    killing = diagnosis["killing"]
    assert killing["health"] == "broken"
    assert killing["problem"] == (
        "loading it ended the whole process, with exit code 7, its last words: the driver gave up"
    )
    assert "pip uninstall fusion-test-killing" in killing["remedy"]
    assert "FUSION_DISABLED_BACKENDS=killing leaves it out" in killing["remedy"]


def test_a_machine_without_the_chip_is_no_error(diagnosis):
    absent = diagnosis["absent"]
    assert absent["health"] == "unavailable"
    assert "no such chip" in absent["problem"]


def test_a_name_claimed_twice_is_told_without_loading_either(diagnosis):
    claimed = diagnosis["claimed"]
    assert (claimed["health"], claimed["seconds"]) == ("broken", None)
    assert "uninstall all but one of them" in claimed["problem"]


def test_one_that_hangs_is_given_up(wheels, install, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(install(named(wheels, "slow_import"), tmp_path))
    loaded = load_apart("slow_import", timeout=8)
    assert (loaded.outcome, loaded.seconds) == ("broken", None)
    assert loaded.problem == "loading it has not come to an end after 8 s"
