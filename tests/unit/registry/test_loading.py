"""Importing installed plugins, and refusing before the import what cannot fit."""

from __future__ import annotations

import subprocess
import sys

import pytest

from fusion_core.errors import PluginError

CHIP = """
from torch import nn
from fusion_core.configs import BackendPatternConfig
from fusion_core.hookspecs import hookimpl

class Chip:
    @hookimpl
    def fusion_pattern_configs(self):
        return [BackendPatternConfig(nn.Linear)]

chip = Chip()
"""


@pytest.fixture
def installed(distribution):
    """Installs the distribution ``acme`` with this code; modules are forgotten afterwards."""
    before = set(sys.modules)

    def install(code, point="acme = acme_module", **metadata):
        site = distribution("fusion-backend-acme", point, **metadata)
        (site / "acme_module.py").write_text(code)
        return site

    yield install
    for name in set(sys.modules) - before:
        if name.startswith("acme_"):
            del sys.modules[name]


def test_an_entry_point_may_name_an_object(registry, installed):
    installed(CHIP, "acme = acme_module:chip")
    backend = registry.get_backend("acme")
    assert [entry.label for entry in backend.entries] == ["acme: Linear"]
    assert str(backend.origins[0]) == "acme (fusion-backend-acme 1.0)"


def test_a_plugin_may_live_in_a_namespace_package(registry, installed):
    site = installed("", "acme = acme_vendor.chips.first:chip")
    (site / "acme_vendor" / "chips").mkdir(parents=True)
    (site / "acme_vendor" / "chips" / "first.py").write_text(CHIP)
    assert [entry.label for entry in registry.get_backend("acme").entries] == ["acme: Linear"]
    assert getattr(sys.modules["acme_vendor"], "__file__", None) is None


def test_a_plugin_that_is_run_as_a_program_finds_itself(installed):
    main = """
if __name__ == "__main__":
    import fusion_core
    print([entry.label for entry in fusion_core.get_backend("acme").entries])
"""
    site = installed(CHIP + main, "acme = acme_module:chip")
    command = [sys.executable, "-m", "acme_module"]
    done = subprocess.run(command, cwd=site, check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "['acme: Linear']"


def test_an_error_names_version_place_and_the_ways_out(registry, installed):
    site = installed("import sys; sys.exit()", version="1.2")
    with pytest.raises(PluginError) as caught:
        registry.get_backend("acme")
    assert str(caught.value) == (
        f"backend 'acme' (fusion-backend-acme 1.2): importing it from {site} raised SystemExit. "
        "Upgrade it (pip install --upgrade fusion-backend-acme) or tell its authors; "
        "FUSION_DISABLED_BACKENDS=acme leaves it out"
    )
    assert isinstance(caught.value.__cause__, SystemExit)


def test_an_entry_point_that_names_nothing_is_an_error_of_the_plugin(registry, installed):
    installed(CHIP, "acme = acme_module:chap")
    with pytest.raises(PluginError, match=r"raised AttributeError: module .* has no attribute"):
        registry.get_backend("acme")


def test_the_user_can_interrupt_an_import(registry, installed):
    installed("raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        registry.get_backend("acme")


def test_a_requirement_that_is_not_met_is_refused_before_the_import(registry, installed):
    installed(CHIP, "acme = acme_module:chip", requires=["numpy", "Torch>=99"])
    with pytest.raises(PluginError, match=r"it requires Torch>=99, but Torch .* is installed"):
        registry.get_backend("acme")
    assert "acme_module" not in sys.modules


@pytest.mark.parametrize(
    "requirement",
    ["torch", "torch>=2", 'torch>=99; extra == "gpu"', 'torch>=99; python_version < "3"', "xyz>=9"],
)
def test_other_requirements_are_pips_business(registry, installed, requirement):
    installed(CHIP, "acme = acme_module:chip", requires=[requirement])
    assert registry.get_backend("acme").name == "acme"


def test_requirements_that_cannot_be_read_are_an_error_of_the_plugin(registry, installed):
    installed(CHIP, "acme = acme_module:chip", requires=["torch >=> 2"])
    with pytest.raises(PluginError, match="its requirements cannot be read: InvalidRequirement"):
        registry.get_backend("acme")


def test_a_plugin_installed_later_is_seen_after_a_refresh(registry, installed):
    registry.backends()
    installed(CHIP, "acme = acme_module:chip")
    registry.refresh()
    assert registry.get_backend("acme").name == "acme"


def test_a_plugin_whose_import_asks_for_what_is_missing_is_to_blame(registry, installed):
    installed(
        "from fusion_core.registry import get_backend\nget_backend('acme_')\n",
        "acme = acme_module",
    )
    with pytest.raises(
        PluginError, match="raised UnknownBackendError: no backend is named 'acme_'"
    ):
        registry.get_backend("acme")
