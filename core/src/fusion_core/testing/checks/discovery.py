"""A backend is found by its entry point, and importing it costs and disturbs nobody."""

from __future__ import annotations

import pytest

from fusion_core.registry import backends
from fusion_core.registry.discovery import plugin_name
from fusion_core.testing.installed import (
    FreshImport,
    entry_point_of,
    fresh_import,
    is_installed,
    metadata_of,
)
from fusion_core.testing.measures import equal
from fusion_core.testing.outcome import Outcome
from fusion_core.testing.require import require
from fusion_core.testing.subject import Subject
from fusion_core.testing.whole import whole_outcome

MOST_OF_CORE = 1.0
"""Importing a plugin, torch and core being there, may take as long as importing these: seconds."""

MOST_MODULES = 400
"""Modules that importing a plugin may import beyond core's; core itself, with torch, has some 2500."""

FIELDS = ("version", "summary", "license", "requirement of fusion-core")
_MODEL = "depthwise separable"


class DiscoveryChecks:
    """What is installed, and what happens when it is imported."""

    def test_it_is_listed(self, subject: Subject) -> None:
        """``fusion_core.backends()`` has it as one that can be chosen."""
        states = {each.name: each.state for each in backends()}
        name = subject.backend.name
        require(
            states.get(name) in {"installed", "registered"},
            f"fusion_core.backends() has {name!r} as {states.get(name)!r}; it lists {sorted(states)}",
        )

    def test_its_name_is_spelt_as_names_are(self, subject: Subject) -> None:
        """Lower case with underscores, as the listing shows it and as others must type it."""
        _need_distribution(subject)
        point = entry_point_of(subject.backend)
        require(point is not None, f"no entry point gives {subject.backend.name!r}")
        if point is not None:
            name = plugin_name(point.name)
            require(
                point.name == name, f"the entry point is called {point.name!r}; call it {name!r}"
            )

    @pytest.mark.parametrize("field", FIELDS)
    def test_its_distribution_says(self, subject: Subject, field: str) -> None:
        """What an index and an installer must know."""
        _need_distribution(subject)
        value = metadata_of(subject.backend)[field]
        distribution = subject.backend.origins[0].distribution
        require(bool(value), f"the distribution {distribution} has no {field} in its metadata")

    def test_importing_core_does_not_import_it(self, subject: Subject) -> None:
        """Plugins are imported when they are chosen."""
        require(not _fresh(subject).seen["imported by core"], "importing fusion_core imported it")

    def test_importing_it_is_quick(self, subject: Subject) -> None:
        """In a fresh process, beside the time that core and torch take there."""
        seen = _fresh(subject).seen
        require(
            seen["ratio"] <= MOST_OF_CORE and seen["modules"] <= MOST_MODULES,
            f"importing it takes {seen['ratio']:.2f} times as long as importing fusion_core, and "
            f"{seen['modules']} modules more; at most {MOST_OF_CORE:g} times and {MOST_MODULES} are "
            "expected. Import what is heavy where it is used",
        )

    def test_importing_it_warns_of_nothing(self, subject: Subject) -> None:
        """Users run with warnings as errors."""
        warned = _fresh(subject).seen["warned"]
        require(not warned, f"importing it warned: {'; '.join(warned)}")

    def test_importing_it_leaves_torch_ao_alone(self, subject: Subject) -> None:
        """It is deprecated, and may be gone from the next torch."""
        found = _fresh(subject).seen["deprecated"]
        require(not found, f"importing it imported {', '.join(found[:5])}")

    def test_a_saved_model_runs_in_a_fresh_process(self, subject: Subject) -> None:
        """One that has not imported the plugin before; it gives the same bits."""
        fresh = _fresh(subject)
        want = _outcome(subject).from_kernels
        require(equal(fresh.output, want), "a saved model gives something else in a fresh process")


def _need_distribution(subject: Subject) -> None:
    if not is_installed(subject.backend):
        pytest.skip("it was registered at run time, and has no distribution to look at")


def _fresh(subject: Subject) -> FreshImport:
    """What a fresh process sees of it; one process for all checks."""
    _need_distribution(subject)
    fresh: FreshImport = subject.kept("fresh process", lambda: _import(subject))
    require(not fresh.problem, f"a fresh process that imports it and runs a model: {fresh.problem}")
    return fresh


def _import(subject: Subject) -> FreshImport:
    point = entry_point_of(subject.backend)
    if point is None:
        return FreshImport(f"no entry point gives {subject.backend.name!r}", {}, None)
    return fresh_import(point, _outcome(subject))


def _outcome(subject: Subject) -> Outcome:
    return whole_outcome(subject, _MODEL).outcome
