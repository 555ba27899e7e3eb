"""``BackendConformance``: all checks of the kit as one class for the tests of a backend."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, MutableMapping
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import pytest
import torch

from fusion_core.configs import CAPABILITIES
from fusion_core.patterns import render
from fusion_core.registry import Backend, PatternEntry
from fusion_core.testing.checks.capabilities import CapabilityChecks
from fusion_core.testing.checks.discovery import DiscoveryChecks
from fusion_core.testing.checks.dtypes import DTypeChecks, combinations_of
from fusion_core.testing.checks.fusers import FuserChecks
from fusion_core.testing.checks.hooks import HookChecks, has_codes, is_observed
from fusion_core.testing.checks.patterns import PatternChecks
from fusion_core.testing.checks.weights import WeightChecks
from fusion_core.testing.checks.whole_models import WholeModelChecks
from fusion_core.testing.models import MODELS
from fusion_core.testing.require import require
from fusion_core.testing.subject import Loaded, Subject, load

LONGEST_ID = 48
PLUGIN = "fusion_core.testing.pytest_plugin"

Values = Callable[[Subject], Iterable[tuple[str, Any]]]


def _capabilities(_subject: Subject) -> Iterable[tuple[str, Any]]:
    return ((name, name) for name in CAPABILITIES)


def _globs(subject: Subject) -> Iterable[tuple[str, Any]]:
    return ((name, name) for name in subject.info.gaps if name not in CAPABILITIES)


def _models(_subject: Subject) -> Iterable[tuple[str, Any]]:
    return ((name, name) for name in MODELS)


def _entries(choose: Callable[[PatternEntry], object]) -> Values:
    """The patterns for which ``choose`` says yes, with their places and texts."""

    def values(subject: Subject) -> Iterable[tuple[str, Any]]:
        for index, entry in enumerate(subject.backend.entries):
            if choose(entry):
                yield f"{index} {_short(entry)}", entry

    return values


def _combinations(subject: Subject) -> Iterable[tuple[str, Any]]:
    for index, entry in enumerate(subject.backend.entries):
        found = combinations_of(entry) if is_observed(entry) else []
        for place, each in enumerate(found):
            yield f"{index}.{place} {_short(entry)}", each


def _short(entry: PatternEntry) -> str:
    """The text of a pattern, as far as it fits into the name of a check."""
    text = render(entry.pattern).replace("[", "(").replace("]", ")").replace("::", ".")
    return text if len(text) <= LONGEST_ID else f"{text[: LONGEST_ID - 3]}..."


_PARAMETERS: dict[str, Values] = {
    "entry": _entries(lambda _: True),
    "observed": _entries(lambda entry: is_observed(entry) and has_codes(entry)),
    "fusing": _entries(lambda entry: entry.config.fuser_method is not None),
    "rooted": _entries(lambda entry: entry.config.root_module is not None),
    "trained": _entries(lambda entry: entry.config.qat_module is not None),
    "combination": _combinations,
    "capability": _capabilities,
    "glob": _globs,
    "model": _models,
}
"""By the parameter of a check, the things that it is run on."""


class BackendConformance(
    DiscoveryChecks,
    HookChecks,
    PatternChecks,
    FuserChecks,
    WeightChecks,
    DTypeChecks,
    CapabilityChecks,
    WholeModelChecks,
):
    """Every check that a backend must pass; make a subclass that names yours.

    ::

        class TestAcme(BackendConformance):
            backend = "acme"

    Attributes:
        backend: Name of an installed backend, or of one registered when the tests are collected, or
            the backend itself.
    """

    backend: ClassVar[str | Backend] = ""

    @pytest.fixture
    def subject(self) -> Iterator[Subject]:
        """The backend under test; one thread computes, since on small tensors several get in each other's way."""
        subject, problem, _ = _loaded(type(self))
        if subject is None:
            pytest.skip(f"the backend cannot be loaded: {problem}")
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        yield subject
        torch.set_num_threads(threads)

    def test_the_backend_loads(self) -> None:
        """It has a name, is found, and nothing is wrong with its plugin."""
        require(
            bool(self.backend),
            f"{type(self).__name__} does not say which backend it is about; "
            "give the class an attribute backend, the name of one",
        )
        subject, problem, is_machine = _loaded(type(self))
        if is_machine:
            pytest.skip(problem)
        require(subject is not None, problem)

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Make one test of each check for each thing that it is about."""
        metafunc.config.pluginmanager.import_plugin(PLUGIN)
        wanted = [name for name in _PARAMETERS if name in metafunc.fixturenames]
        if not wanted:
            return
        (name,) = wanted
        subject, problem, _ = _loaded(type(self))
        if subject is None:
            skipped = pytest.mark.skip(reason=f"the backend cannot be loaded: {problem}")
            metafunc.parametrize(name, [pytest.param(None, id="not loaded", marks=skipped)])
            return
        values = [pytest.param(value, id=text) for text, value in _PARAMETERS[name](subject)]
        if not values:
            nothing = pytest.mark.skip(reason="the backend has nothing of this kind")
            values = [pytest.param(None, id="none", marks=nothing)]
        metafunc.parametrize(name, values)


_FOUND: MutableMapping[type, Loaded] = WeakKeyDictionary()


def _loaded(kind: type[BackendConformance]) -> Loaded:
    """The subject of a class, the same while the class is the same; or what hinders."""
    if kind not in _FOUND:
        named = bool(kind.backend)
        _FOUND[kind] = load(kind.backend) if named else (None, "the class names none", False)
    return _FOUND[kind]


def name_of(kind: type[BackendConformance]) -> str:
    """Name of the backend that a class is about."""
    subject, _, _ = _loaded(kind)
    return str(kind.backend) if subject is None else subject.backend.name
