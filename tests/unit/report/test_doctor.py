"""What the doctor makes of plugins that need no process of their own; tests/packaging has those that do."""

from __future__ import annotations

import json
import platform
from types import ModuleType

import pytest
import torch

import fusion_core as core
from fusion_core.configs import API_VERSION
from fusion_core.report.probe import load_apart


def words(text):
    return " ".join(text.split())


def no_patterns():
    return []


@pytest.fixture
def register(monkeypatch):
    """Registers plugins; the installed ones are disabled, since trying each takes seconds."""
    installed = [each.name for each in core.backends() if each.state == "installed"]
    monkeypatch.setenv("FUSION_DISABLED_BACKENDS", ",".join(installed))
    undo = []

    def register(name, **answers):
        plugin = ModuleType(f"{name}_plugin")
        for hook, answer in {"pattern_configs": no_patterns, **answers}.items():
            setattr(plugin, f"fusion_{hook}", core.hookimpl(answer))
        undo.append(core.register_backend(name, plugin))

    yield register
    for each in undo:
        each()


def found(diagnosis, name):
    (plugin,) = (each for each in diagnosis.plugins if each.name == name)
    return plugin


def test_it_knows_versions_and_engines(register):
    register("fine")
    diagnosis = core.doctor()
    assert diagnosis.versions["torch"] == torch.__version__
    assert diagnosis.versions["Python"] == platform.python_version()
    assert diagnosis.versions["plugin interface"] == API_VERSION
    assert diagnosis.versions["fusion-core"] == core.get_backend("fine").core_version
    assert set(diagnosis.engines) == set(torch.backends.quantized.supported_engines) - {"none"}


def test_a_plugin_in_order_is_fine_and_a_disabled_one_is_no_error(register):
    register("fine")
    diagnosis = core.doctor()
    assert found(diagnosis, "fine").health == "fine"
    assert found(diagnosis, "fbgemm").health == "disabled"
    assert "FUSION_DISABLED_BACKENDS" in found(diagnosis, "fbgemm").problem
    assert diagnosis.errors == diagnosis.warnings == ()


def test_a_machine_that_lacks_something_is_no_fault_of_the_plugin(register):
    register("absent", backend_info=lambda: core.BackendInfo(unavailable=lambda: "no chip"))
    diagnosis = core.doctor()
    plugin = found(diagnosis, "absent")
    assert plugin.health == "unavailable"
    assert plugin.problem == "hook fusion_backend_info: it cannot run on this machine: no chip"
    assert plugin.remedy == "Choose another backend, or a machine that has it"
    assert diagnosis.errors == ()
    assert diagnosis.warnings == (plugin,)


def test_a_broken_plugin_is_an_error_with_what_to_do(register):
    register("broken", pattern_configs=lambda: 3)
    diagnosis = core.doctor()
    (plugin,) = diagnosis.errors
    assert plugin.problem.startswith("hook fusion_pattern_configs: ")
    assert plugin.remedy == "Correct the object that was given to register_backend('broken', ...)"
    text = words(diagnosis.text(160))
    assert f"1 of {len(diagnosis.plugins)} is broken." in text
    assert f"broken: {plugin.problem} to do: {plugin.remedy}" in text


def test_an_extension_that_breaks_its_backend_is_named(register):
    register("whole")
    register("whole.part", pattern_configs=lambda: 3)
    (plugin,) = (each for each in core.doctor().errors if each.name == "whole")
    assert plugin.problem.startswith("its extension whole.part: hook fusion_pattern_configs: ")


def test_progress_names_each_backend_that_is_tried(register):
    register("one")
    register("two")
    named = []
    core.doctor(progress=named.append)
    assert sorted(named) == ["one", "two"]


def test_it_is_ready_for_json(register):
    register("fine")
    shown = json.loads(json.dumps(core.doctor().to_dict()))
    assert shown["is_healthy"] is True
    assert {each["name"] for each in shown["plugins"]} >= {"fine", "fbgemm"}


def test_without_any_backend_it_says_how_to_get_one():
    text = words(core.Diagnosis({"torch": "2"}, (), ()).text())
    assert "pip install fusion-backend-fbgemm" in text
    assert "quantized engines none" in text


@pytest.mark.slow
def test_a_backend_is_loaded_in_another_process_that_sees_the_same_path(monkeypatch, tmp_path):
    metadata = tmp_path / "elsewhere-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: elsewhere\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[fusion.backends]\nelsewhere = elsewhere_plugin\n")
    (tmp_path / "elsewhere_plugin.py").write_text(
        "import time\nfrom fusion_core import hookimpl\nprint('noise')\ntime.sleep(0.3)\n"
        "fusion_pattern_configs = hookimpl(lambda: [])\nfusion_pattern_configs.__name__ = 'f'\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    loaded = load_apart("elsewhere", timeout=120)
    assert (loaded.outcome, loaded.problem) == ("loaded", "")
    assert loaded.seconds > 0.3
    assert loaded.core_seconds > 0
