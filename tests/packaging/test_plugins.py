"""Installed plugins, real wheels in a real process: the broken ones harm nobody but themselves."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from fusion_core import registry

CORE = Path(registry.__file__).parents[2]

# Lists, chooses the good backend, then every other one, and prints what happened. Spoilt metadata
# get onto the path after the imports: torch and pydantic, when imported, do not survive them.
USE = """
import json, sys

import importlib_metadata

scans = []
distributions = importlib_metadata.distributions
importlib_metadata.distributions = lambda: scans.append(1) or distributions()

from fusion_core import registry
from fusion_core.errors import FusionError

spoilt, *names = sys.argv[1:]
sys.path.insert(0, spoilt)

def imported():
    return sorted(name for name in sys.modules if name.startswith("fusion_test_"))

def records():
    return [
        (each.name, each.distribution, each.state, each.problem, each.extensions)
        for each in registry.backends()
        if "fusion-test-" in each.distribution
    ]

def choose(name):
    try:
        return repr(registry.get_backend(name))
    except FusionError as error:
        return [type(error).__name__, str(error), type(error.__cause__).__name__]

seen = {"scans at import": len(scans), "listed": records(), "imported to list": imported()}
good = registry.get_backend("good")
seen["good"] = [entry.label for entry in good.entries]
seen["imported for good"] = imported()
seen["chosen"] = {name: choose(name) for name in names}
seen["listed later"] = records()
seen["scans"] = len(scans)
print(json.dumps(seen))
"""

BROKEN = [
    "import_error",
    "system_exit",
    "misspelt_hook",
    "wrong_signature",
    "raising_hook",
    "wrong_return_type",
    "invalid_pattern",
    "wrong_api",
    "needs_other_torch",
]


def is_unrelated(wheel):
    return wheel.name.startswith("fusion_test_unrelated-")


@pytest.fixture(scope="session")
def site(wheels, install, tmp_path_factory):
    """A folder with every plugin installed."""
    plugins = [wheel for wheel in wheels if not is_unrelated(wheel)]
    return install(plugins, tmp_path_factory.mktemp("site"))


@pytest.fixture(scope="session")
def spoilt(wheels, install, tmp_path_factory):
    """A folder with a distribution whose entry points nothing can parse."""
    target = install(filter(is_unrelated, wheels), tmp_path_factory.mktemp("spoilt"))
    (metadata,) = target.glob("*.dist-info/entry_points.txt")
    metadata.write_text("[some.other_group]\nnot an entry point at all\n")
    return target


@pytest.fixture(scope="session")
def seen(run, site, spoilt):
    """What a process sees in which all these plugins are installed."""
    names = [*BROKEN, "claimed", "spelling-of-names", "nup"]
    return json.loads(run(USE, spoilt, *names, path=[site, CORE]))


def record(records, name):
    return next(each for each in records if each[0] == name)


def test_listing_imports_no_plugin(seen):
    assert seen["imported to list"] == []


def test_every_plugin_is_listed_with_what_its_metadata_tell(seen):
    states = {(name, state) for name, _, state, _, _ in seen["listed"]}
    assert states == {
        *((name, "installed") for name in BROKEN),
        ("8-bit/chip", "broken"),
        ("claimed", "duplicate"),
        ("absent", "installed"),
        ("good", "installed"),
        ("killing", "installed"),
        ("slow_import", "installed"),
        ("spelling_of_names", "installed"),
    }
    assert record(seen["listed"], "good")[4] == ["good.conv"]


def test_a_good_backend_works_and_only_its_own_plugins_are_imported(seen):
    assert seen["good"] == ["good: Linear -> ReLU", "good.conv: Conv2d"]
    assert seen["imported for good"] == ["fusion_test_extension", "fusion_test_good"]


@pytest.mark.parametrize(
    ("name", "cause", "words"),
    [
        ("import_error", "ModuleNotFoundError", "ModuleNotFoundError: No module named 'package_"),
        ("system_exit", "SystemExit", "raised SystemExit: this chip is not supported"),
        ("misspelt_hook", "NoneType", "hook fusion_fuser_method): there is no hook of this name"),
        ("wrong_signature", "NoneType", "take no arguments, this one takes model"),
        ("raising_hook", "KeyError", "hook fusion_pattern_configs): raised KeyError: 'conv'"),
        ("wrong_return_type", "NoneType", "item 1 is (<class 'torch.nn.modules.conv.Conv2d'>, <"),
        ("invalid_pattern", "PatternError", "3 is neither a module type, a function nor a method"),
        ("wrong_api", "NoneType", "field api: it supports versions ~=99.0 of the plugin interfa"),
        ("needs_other_torch", "NoneType", "pip install 'torch>=99'"),
    ],
)
def test_choosing_a_broken_plugin_names_it_and_says_what_to_do(seen, name, cause, words):
    kind, message, chained = seen["chosen"][name]
    distribution = f"fusion-test-{name.replace('_', '-')}"
    assert (kind, chained) == ("PluginError", cause)
    assert message.startswith(f"backend {name!r} ({distribution} 1.0")
    assert words in message
    assert f"pip install --upgrade {distribution}" in message
    assert f"FUSION_DISABLED_BACKENDS={name} leaves it out" in message


def test_what_failed_is_listed_with_its_error_from_then_on(seen):
    for name in BROKEN:
        _, _, state, problem, _ = record(seen["listed later"], name)
        assert (state, problem) == ("broken", seen["chosen"][name][1])
    assert record(seen["listed later"], "good")[2] == "installed"


def test_a_name_that_two_distributions_claim_cannot_be_chosen(seen, site):
    kind, message, _ = seen["chosen"]["claimed"]
    assert kind == "DuplicateBackendError"
    assert f"by fusion-test-duplicate 1.0 (in {site}) and fusion-test-duplicate-too 1.0" in message


def test_a_name_may_be_spelt_with_dashes_and_capitals(seen):
    assert seen["chosen"]["spelling-of-names"].startswith("Backend(name='spelling_of_names'")


def test_an_unknown_name_gets_what_is_there_and_what_is_broken(seen):
    kind, message, _ = seen["chosen"]["nup"]
    assert kind == "UnknownBackendError"
    assert "no backend is named 'nup'" in message
    assert "'good'" in message
    assert "Installed, but not usable: " in message
    assert "'8-bit/chip' ('8-bit/chip' is not a name" in message


def test_metadata_are_read_once_and_not_at_import(seen):
    assert (seen["scans at import"], seen["scans"]) == (0, 1)


def test_a_plugin_may_be_a_zip_archive_on_the_path(wheels, monkeypatch):
    (archive,) = [wheel for wheel in wheels if wheel.name.startswith("fusion_test_good-")]
    monkeypatch.syspath_prepend(archive)
    monkeypatch.delitem(sys.modules, "fusion_test_good", raising=False)
    backend = registry.Registry().get_backend("good")
    assert [entry.label for entry in backend.entries] == ["good: Linear -> ReLU"]
    assert sys.modules.pop("fusion_test_good").__file__.startswith(str(archive))
