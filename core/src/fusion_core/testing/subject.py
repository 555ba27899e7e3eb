"""The backend under test, with what several checks want to know of it, computed once."""

from __future__ import annotations

from functools import cached_property, lru_cache
from typing import Any, TypeAlias

from fusion_core.configs import BackendInfo, QConfigMapping
from fusion_core.errors import BackendUnavailableError, FusionError
from fusion_core.registry import Backend, get_backend
from fusion_core.testing.modes import mapping_for
from fusion_core.testing.outcome import Outcome, quantized
from fusion_core.testing.zoo import PRODUCERS, Case, Producer

BATCHES = 4


class Subject:
    """A backend under test.

    Attributes:
        backend: The backend.
    """

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self._outcomes: dict[Any, Outcome | Exception] = {}

    @property
    def info(self) -> BackendInfo:
        """What the backend says of itself."""
        return self.backend.info

    @cached_property
    def producer(self) -> Producer | None:
        """What stands before an operation that is quantized only behind something quantized."""
        claimed = (each for each in PRODUCERS if self.info.gap(each.capability) is None)
        return next(claimed, None)

    def outcome(
        self, case: Case, key: object = None, mapping: QConfigMapping | None = None
    ) -> Outcome:
        """The model of ``case`` quantized; once for each ``key``, which names the mapping.

        Raises:
            Exception: What quantizing raised, each time anew.
        """
        found: Outcome = self.kept((id(case), key), lambda: self._quantized(case, mapping))
        return found

    def kept(self, key: object, make: Any) -> Any:
        """What ``make`` returned or raised when it was first called for ``key``."""
        if key not in self._outcomes:
            try:
                self._outcomes[key] = make()
            except Exception as error:  # noqa: BLE001  it is raised again below, for each who asks
                self._outcomes[key] = error
        found = self._outcomes[key]
        if isinstance(found, Exception):
            raise found
        return found

    def _quantized(self, case: Case, mapping: QConfigMapping | None) -> Outcome:
        producer = self.producer if case.is_behind else None
        chosen = mapping_for(self.backend, case.way) if mapping is None else mapping
        return quantized(case.model(producer), case.inputs(BATCHES), self.backend, chosen)


@lru_cache(maxsize=16)
def subject_of(backend: Backend) -> Subject:
    """The one subject of ``backend``; what it has computed stays."""
    return Subject(backend)


Loaded: TypeAlias = tuple[Subject | None, str, bool]
"""A subject, or None, why it cannot be loaded, and whether only the machine is to blame."""


def load(backend: str | Backend) -> Loaded:
    """The subject of the backend of this name."""
    try:
        return subject_of(get_backend(backend)), "", False
    except BackendUnavailableError as error:
        return None, str(error), True
    except FusionError as error:
        return None, str(error), False
