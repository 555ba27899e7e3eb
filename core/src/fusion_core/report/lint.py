"""``lint``: what is wrong with a backend's patterns that loading it cannot tell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from fusion_core.registry import Backend, get_backend
from fusion_core.report.findings import Finding
from fusion_core.report.printing import Printable
from fusion_core.report.rivals import rival_findings
from fusion_core.report.soundness import config_findings
from fusion_core.report.tables import table

_STYLES = {"error": "red", "warning": "yellow", "note": "dim"}


@dataclass(frozen=True)
class Lint(Printable):
    """What :func:`lint` found.

    ``print`` shows it as text, ``rich.print`` in colour, a notebook as HTML.

    Attributes:
        backend: Name of the backend.
        findings: Errors first, then warnings, then notes.
        checked: How many patterns were looked at.
    """

    backend: str
    findings: tuple[Finding, ...]
    checked: int

    @property
    def errors(self) -> tuple[Finding, ...]:
        """What can never be meant."""
        return self._of("error")

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """What may be meant, but is usually a mistake."""
        return self._of("warning")

    def to_dict(self) -> dict[str, Any]:
        """Everything that was found, in values that JSON has."""
        return {
            "backend": self.backend,
            "checked": self.checked,
            "findings": [asdict(each) for each in self.findings],
        }

    def _of(self, severity: str) -> tuple[Finding, ...]:
        return tuple(each for each in self.findings if each.severity == severity)

    def _drawn(self) -> Iterator[RenderableType]:
        counts: Counter[str] = Counter(each.severity for each in self.findings)
        found = ", ".join(
            f"{counts[severity]} {severity}{'s' * (counts[severity] != 1)}" for severity in _STYLES
        )
        yield Text(f"Backend {self.backend}: {self.checked} patterns, {found}", style="bold")
        if not self.findings:
            return
        drawn = table("", ("", "pattern", "what", "what to do"))
        for each in self.findings:
            severity = Text(each.severity, style=_STYLES[each.severity])
            drawn.add_row(severity, Text(each.entry), Text(each.message), Text(each.remedy))
        yield drawn


def lint(backend: str | Backend) -> Lint:
    """Look for mistakes in a backend that are valid all the same.

    Each pattern is tried on small models made from itself. Dead patterns, which another always
    beats, are errors; so are weighted layers that no reference module is known for. Warnings are
    patterns beaten on some of their models, overlaps between plugins that nobody has settled,
    fused modules that nothing quantizes, configs without dtypes, and dtypes that the default
    qconfig mapping never gives. Notes are patterns that no model could be made for.

    Args:
        backend: Name of an installed or registered backend, or the backend.

    Returns:
        The findings, as a value that prints.

    Raises:
        UnknownBackendError: No backend has that name.
        PluginError: The backend's plugin is broken.
        PatternConflictError: Two of its contributions contradict each other.
    """
    chosen = get_backend(backend)
    findings = [*rival_findings(chosen), *config_findings(chosen)]
    order = list(_STYLES)
    findings.sort(key=lambda each: order.index(each.severity))
    return Lint(chosen.name, tuple(findings), len(chosen.entries))
