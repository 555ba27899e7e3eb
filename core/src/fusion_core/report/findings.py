"""What a lint says of one pattern."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Severity: TypeAlias = Literal["error", "warning", "note"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, or may be.

    Attributes:
        severity: ``"error"``, ``"warning"`` or ``"note"``.
        entry: The plugin with its version, and the pattern.
        index: Place of the pattern in that plugin's list.
        message: What was found.
        remedy: What to do about it.
    """

    severity: Severity
    entry: str
    index: int
    message: str
    remedy: str
