"""A badge that says how much of the vocabulary a backend supports."""

from __future__ import annotations

import json
from html import escape

from fusion_core.configs import CAPABILITIES
from fusion_core.testing.matrix import SupportMatrix
from fusion_core.testing.results import Support

LABEL = "fusion-core"
PASSING, FAILING, EMPTY = "#2e7d32", "#c62828", "#757575"

_CHARACTER = 6.6
_MARGIN = 12.0

_SVG = """\
<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="20" role="img" aria-label="{label}: {message}">
  <title>{label}: {message}</title>
  <clipPath id="round"><rect width="{width:.0f}" height="20" rx="3"/></clipPath>
  <g clip-path="url(#round)">
    <rect width="{left:.0f}" height="20" fill="#424242"/>
    <rect x="{left:.0f}" width="{right:.0f}" height="20" fill="{color}"/>
  </g>
  <g fill="#fff" font-family="Verdana, DejaVu Sans, sans-serif" font-size="11" text-anchor="middle">
    <text x="{label_at:.1f}" y="14">{label}</text>
    <text x="{message_at:.1f}" y="14">{message}</text>
  </g>
</svg>
"""


def badge_message(matrix: SupportMatrix) -> str:
    """How many capabilities each backend supports, of all: ``fbgemm 45/72``."""
    counts = (
        f"{name} {matrix.totals(name)[Support.SUPPORTED]}/{len(CAPABILITIES)}"
        for name in matrix.backends
    )
    return ", ".join(counts) or "no backend"


def badge_color(matrix: SupportMatrix) -> str:
    """Red if a check failed, grey if none ran, else green; as ``#rrggbb``."""
    if not matrix.results:
        return EMPTY
    return FAILING if any(map(matrix.failures, matrix.backends)) else PASSING


def badge_svg(matrix: SupportMatrix) -> str:
    """The badge as a picture."""
    message = badge_message(matrix)
    left, right = (len(text) * _CHARACTER + _MARGIN for text in (LABEL, message))
    return _SVG.format(
        width=left + right,
        left=left,
        right=right,
        color=badge_color(matrix),
        label=LABEL,
        message=escape(message),
        label_at=left / 2,
        message_at=left + right / 2,
    )


def badge_json(matrix: SupportMatrix) -> str:
    """The badge as JSON with label, message and colour, which services that draw badges read."""
    content = {
        "schemaVersion": 1,
        "label": LABEL,
        "message": badge_message(matrix),
        "color": badge_color(matrix),
    }
    return json.dumps(content, indent=2) + "\n"
