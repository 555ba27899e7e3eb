"""Which plugins there are, which of them a name stands for, and why others cannot be used."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias

from fusion_core.errors import DuplicateBackendError, UnknownBackendError
from fusion_core.registry.blame import DISABLED_BACKENDS
from fusion_core.registry.discovery import Fault, Source, plugin_name

State: TypeAlias = Literal["installed", "registered", "disabled", "duplicate", "broken"]

Selection: TypeAlias = tuple[Source, ...]
"""A backend's own plugin, then its extensions by name."""


@dataclass(frozen=True, slots=True)
class BackendRecord:
    """One line of the list of backends.

    An extension that works is named by its backend's record; one that does not has its own.

    Attributes:
        name: What the backend is called.
        distribution: What was installed with pip.
        version: Version of the distribution.
        extensions: Names of the plugins that extend it, such as ``fbgemm.acme``.
        state: ``"installed"`` and ``"registered"`` ones can be chosen. Nothing is imported to
            list them, so a plugin that fails to load is ``"broken"`` only once that was tried.
        problem: Why it cannot be chosen; None if it can, as far as is known.
        summary: One line on what it is, as its distribution has it; empty if there is none.
    """

    name: str
    distribution: str
    version: str
    extensions: tuple[str, ...]
    state: State
    problem: str | None
    summary: str = ""


@dataclass(frozen=True)
class Failure:
    """A selection that could not be loaded: the name of the plugin to blame, and the message."""

    plugin: str
    problem: str


@dataclass(frozen=True, eq=False)
class Listing:
    """The plugins at one moment.

    Attributes:
        sources: Those that can be loaded, as far as is known.
        faults: Those that cannot.
        disabled: Names of installed plugins to leave out; a backend's stands for its extensions.
        failures: What loading has failed for.
    """

    sources: tuple[Source, ...]
    faults: tuple[Fault, ...]
    disabled: frozenset[str]
    failures: Mapping[Selection, Failure]

    def select(self, text: str) -> Selection:
        """The plugins to load for the backend that ``text`` names.

        Raises:
            UnknownBackendError: There is none, or it is disabled, or it is an extension.
            DuplicateBackendError: Two distributions claim its name, or that of an extension.
        """
        name = plugin_name(text)
        if name is None or "." in name or name not in self._claims:
            raise UnknownBackendError(name or text, self.available, self.unusable)
        for claimed in (name, *self._extensions(name)):
            self._refuse_duplicate(claimed)
        return self._selection(name)

    @property
    def available(self) -> tuple[str, ...]:
        """Names that can be chosen, as far as is known."""
        names = (each.name for each in self.records() if each.state in {"installed", "registered"})
        return tuple(names)

    @property
    def unusable(self) -> dict[str, str]:
        """Names that cannot be chosen, with the reason."""
        extensions = {
            name: f"it extends {name.partition('.')[0]!r}; choose that"
            for name in self._claims
            if "." in name
        }
        problems = {each.name: each.problem for each in self.records() if each.problem}
        return {
            name: problem
            for name, problem in (extensions | problems).items()
            if name not in self.available
        }

    def claims(self, name: str) -> Selection:
        """The plugins of this name that are not disabled."""
        return tuple(self._claims.get(name, ()))

    def records(self) -> tuple[BackendRecord, ...]:
        """One record for each backend, and for each extension that cannot be used."""
        records = [record for source in self.sources for record in self._records_of(source)]
        records += [
            BackendRecord(
                fault.name, fault.distribution, fault.version, (), "broken", fault.problem
            )
            for fault in self.faults
        ]
        return tuple(sorted(records, key=lambda each: (each.name, each.distribution)))

    @cached_property
    def _claims(self) -> dict[str, list[Source]]:
        claims = defaultdict(list)
        for source in self.sources:
            if not self._is_disabled(source):
                claims[source.origin.name].append(source)
        return dict(claims)

    def _is_disabled(self, source: Source) -> bool:
        names = {source.origin.name, source.origin.backend}
        return source.is_installed and bool(names & self.disabled)

    def _extensions(self, backend: str) -> list[str]:
        return sorted(name for name in self._claims if name.startswith(f"{backend}."))

    def _selection(self, backend: str) -> Selection:
        return tuple(self._claims[name][0] for name in (backend, *self._extensions(backend)))

    def _refuse_duplicate(self, name: str) -> None:
        claims = self._claims[name]
        if len(claims) > 1:
            raise DuplicateBackendError(name, _distributions(claims))

    def _records_of(self, source: Source) -> Iterable[BackendRecord]:
        origin = source.origin
        is_extension = origin.name != origin.backend
        state, problem = self._state(source)
        if is_extension and problem is None:
            return
        extensions = () if is_extension or state == "disabled" else self._extensions(origin.name)
        yield BackendRecord(
            name=origin.name,
            distribution=origin.distribution,
            version=origin.version,
            extensions=tuple(extensions),
            state=state,
            problem=problem,
            summary=source.summary,
        )

    def _state(self, source: Source) -> tuple[State, str | None]:
        name, backend = source.origin.name, source.origin.backend
        if self._is_disabled(source):
            return "disabled", f"disabled by the environment variable {DISABLED_BACKENDS}"
        if len(self._claims[name]) > 1:
            return "duplicate", self._clash(name)
        if backend not in self._claims:
            return "broken", f"it extends {backend!r}, which is not installed or is disabled"
        for extension in self._extensions(name):
            if len(self._claims[extension]) > 1:
                return "broken", f"its extension {extension!r} is {self._clash(extension)}"
        failure = self.failures.get(self._selection(backend))
        if failure is not None and name in {backend, failure.plugin}:
            return "broken", failure.problem
        return ("installed" if source.is_installed else "registered"), None

    def _clash(self, name: str) -> str:
        claimants = " and ".join(_distributions(self._claims[name]))
        return f"provided by {claimants}; uninstall all but one of them"


def _distributions(sources: Iterable[Source]) -> tuple[str, ...]:
    """Name, version and place of each; sorted, since the order on the path says nothing."""
    return tuple(
        sorted(
            f"{each.origin.distribution} {each.origin.version}"
            + (f" (in {each.location})" if each.location else "")
            for each in sources
        )
    )
