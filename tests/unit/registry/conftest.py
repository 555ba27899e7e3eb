"""Plugins made in a line, and distributions that are nothing but their metadata."""

from __future__ import annotations

from types import ModuleType

import pytest

from fusion_core.hookspecs import hookimpl
from fusion_core.registry import Registry


def make_plugin(**answers):
    """A plugin whose hooks, named without ``fusion_``, return what is given here."""
    module = ModuleType("a_plugin")
    for name, answer in answers.items():
        setattr(module, f"fusion_{name}", hookimpl(lambda answer=answer: answer))
    return module


@pytest.fixture
def plugin():
    return make_plugin


@pytest.fixture
def registry():
    """A registry of the test's own, so that nothing it registers outlives it."""
    return Registry()


@pytest.fixture
def merged(registry):
    """The backend that plugins, given by name, make together."""

    def merge(**plugins):
        for name, each in plugins.items():
            registry.register_backend(name.replace("__", "."), each)
        return registry.get_backend(next(iter(plugins)))

    return merge


@pytest.fixture
def distribution(tmp_path, monkeypatch):
    """Puts a distribution's metadata into a folder on the path; the last folder comes first."""

    def install(name, *points, requires=(), raw=None, **place):
        version, folder = place.get("version", "1.0"), place.get("folder", "site")
        kind = place.get("kind", "dist-info")
        site = tmp_path / folder
        metadata = site / f"{name.replace('-', '_')}-{version}.{kind}"
        metadata.mkdir(parents=True)
        fields = [f"Name: {name}", f"Version: {version}"]
        fields += [f"Summary: {place['summary']}"] if "summary" in place else []
        fields += [f"Requires-Dist: {requirement}" for requirement in requires]
        text = "\n".join(["Metadata-Version: 2.1", *fields, ""])
        (metadata / ("METADATA" if kind == "dist-info" else "PKG-INFO")).write_text(text)
        lines = raw or "\n".join(["[fusion.backends]", *points])
        (metadata / "entry_points.txt").write_text(lines)
        monkeypatch.syspath_prepend(site)
        return site

    return install
