"""What a new plugin is called: as backend, as distribution, as package."""

from __future__ import annotations

import re
from dataclasses import dataclass

from fusion_core.errors import ScaffoldError
from fusion_core.registry import BackendRecord, backends
from fusion_core.registry.discovery import plugin_name

# PEP 503 makes one dash of several, so these would give the distribution another name than the backend.
_STRAY_UNDERSCORE = re.compile(r"(^|\.)_|__|_(\.|$)")


@dataclass(frozen=True)
class Names:
    """The names of one plugin, all made from the first.

    Attributes:
        name: Name of the entry point: ``acme_npu``, or ``fbgemm.acme`` for an extension.
    """

    name: str

    @property
    def backend(self) -> str:
        """What users ask for: ``acme_npu``, ``fbgemm``."""
        return self.name.partition(".")[0]

    @property
    def is_extension(self) -> bool:
        """Whether it adds to a backend that there is."""
        return self.name != self.backend

    @property
    def identifier(self) -> str:
        """As a part of names in Python: ``acme_npu``, ``fbgemm_acme``."""
        return self.name.replace(".", "_")

    @property
    def package(self) -> str:
        """What is imported: ``fusion_backend_acme_npu``."""
        return f"fusion_backend_{self.identifier}"

    @property
    def distribution(self) -> str:
        """What is installed with pip, and the folder: ``fusion-backend-acme-npu``."""
        return self.package.replace("_", "-")

    @property
    def words(self) -> str:
        """As a part of names of classes: ``AcmeNpu``, ``FbgemmAcme``."""
        return "".join(part.capitalize() for part in self.identifier.split("_"))


def names_of(text: str) -> Names:
    """The names of the plugin that ``text`` names in any spelling: ``Acme-NPU`` is ``acme_npu``.

    Raises:
        ScaffoldError: It is not a name.
    """
    name = plugin_name(text)
    if name is None:
        problem = (
            "a name is a letter, then letters, digits and underscores, such as acme_npu; "
            "one with a dot, such as fbgemm.acme, extends the backend before the dot"
        )
        raise ScaffoldError(text, problem)
    if _STRAY_UNDERSCORE.search(name):
        problem = (
            "the name of a distribution cannot show underscores in front, behind or in a row; "
            "leave them out"
        )
        raise ScaffoldError(text, problem)
    return Names(name)


def record_extended_by(names: Names) -> BackendRecord | None:
    """The installed backend that an extension of these names adds to; None for a backend.

    Raises:
        ScaffoldError: The name is taken, or the backend to extend is not installed.
    """
    installed = {each.name: each for each in backends() if each.state != "registered"}
    record = installed.get(names.backend)
    if not names.is_extension:
        _refuse_taken(names, record)
        return None
    _refuse_taken(names, installed.get(names.name))
    if record is None:
        known = ", ".join(name for name in installed if "." not in name) or "none"
        problem = (
            f"it is to extend {names.backend!r}, which is not installed, so neither its patterns nor "
            f"its version can be known; installed are: {known}. Install it first"
        )
        raise ScaffoldError(names.name, problem)
    if record.problem is not None:
        raise ScaffoldError(names.name, f"{names.backend!r} cannot be extended: {record.problem}")
    if names.name in record.extensions:
        problem = "an extension of this name is installed; choose another name behind the dot"
        raise ScaffoldError(names.name, problem)
    return record


def _refuse_taken(names: Names, record: BackendRecord | None) -> None:
    if record is None:
        return
    problem = (
        f"{record.distribution} {record.version}, which is installed, has this name, and of two with "
        f"one name neither can be chosen. Take another name, or extend that backend: "
        f"fusion new-backend {names.backend}.<extension>"
    )
    raise ScaffoldError(names.name, problem)
