"""What results of checks say together, as text, Markdown and JSON, and as a badge."""

from __future__ import annotations

import json
from xml.etree import ElementTree as ET

import pytest

from fusion_core.configs import CAPABILITIES
from fusion_core.testing import Cell, CheckResult, Support, support_matrix
from fusion_core.testing.badge import EMPTY, FAILING, PASSING, badge_color, badge_json, badge_svg
from fusion_core.testing.require import GAP

RESULTS = [
    CheckResult("beta", "test_capability[add]", "passed", "add"),
    CheckResult("acme", "test_capability[conv2d]", "passed", "conv2d"),
    CheckResult("acme", "test_the_kernel[conv2d]", "failed", "conv2d", "3 steps off\nat the end"),
    CheckResult("acme", "test_capability[add]", "passed", "add"),
    CheckResult("acme", "test_the_kernel[add]", "skipped", "add", f"{GAP}no kernels at all"),
    CheckResult("acme", "test_capability[mul]", "skipped", "mul", f"{GAP}no multiplier"),
    CheckResult("acme", "test_capability[cat]", "skipped", "cat", "nothing before it"),
    CheckResult("acme", "test_it_is_listed", "passed"),
]


@pytest.fixture
def matrix():
    return support_matrix(RESULTS)


@pytest.mark.parametrize(
    ("name", "cell"),
    [
        ("conv2d", Cell(Support.FAILED, "3 steps off\nat the end")),
        ("add", Cell(Support.SUPPORTED)),
        ("mul", Cell(Support.GAP, "no multiplier")),
        ("cat", Cell(Support.NOT_CHECKED, "nothing before it")),
        ("lstm", Cell(Support.NOT_CHECKED)),
    ],
)
def test_a_capability_is_what_its_worst_check_says(matrix, name, cell):
    assert matrix.cells["acme"][name] == cell


def test_every_backend_has_every_capability_and_backends_are_sorted(matrix):
    assert matrix.backends == ("acme", "beta")
    assert all(list(cells) == list(CAPABILITIES) for cells in matrix.cells.values())
    assert sum(matrix.totals("acme").values()) == len(CAPABILITIES)


def test_the_order_of_results_does_not_count(matrix):
    assert support_matrix(RESULTS[::-1]).cells == matrix.cells


def test_checks_are_counted_whatever_they_are_about(matrix):
    assert matrix.checks("acme") == {"passed": 3, "failed": 1, "skipped": 3}
    assert [each.check for each in matrix.failures("acme")] == ["test_the_kernel[conv2d]"]


def test_the_text_has_every_capability_and_every_reason(matrix):
    text = str(matrix)

    assert all(name in text for name in CAPABILITIES)
    assert "no multiplier" in text
    others = len(CAPABILITIES) - 3
    assert f"acme: capabilities 1 supported, 1 gap, 1 failed, {others} not checked" in text


def test_markdown_is_a_table_of_backends_with_the_reasons_below(matrix):
    lines = matrix.to_markdown().splitlines()

    assert lines[0] == "| capability | acme | beta |"
    assert "| `add` | supported | supported |" in lines
    assert "* gap: `mul`: no multiplier" in lines
    assert "* failed: `conv2d`: 3 steps off at the end" in lines


def test_json_has_status_and_reason(matrix):
    acme = json.loads(json.dumps(matrix.to_dict()))["backends"]["acme"]

    assert acme["capabilities"]["mul"] == {"status": "gap", "reason": "no multiplier"}
    assert acme["capabilities"]["add"] == {"status": "supported", "reason": None}
    assert acme["failures"][0]["check"] == "test_the_kernel[conv2d]"


@pytest.mark.parametrize(
    ("results", "color"),
    [(RESULTS, FAILING), (RESULTS[:2], PASSING), ([], EMPTY)],
    ids=["failed", "passed", "nothing ran"],
)
def test_a_badge_is_red_as_soon_as_a_check_failed(results, color):
    assert badge_color(support_matrix(results)) == color


def test_a_badge_says_the_same_as_a_picture_and_as_data(matrix):
    picture = ET.fromstring(badge_svg(matrix))  # noqa: S314  our own
    data = json.loads(badge_json(matrix))

    assert data["message"] == f"acme 1/{len(CAPABILITIES)}, beta 1/{len(CAPABILITIES)}"
    assert f"{data['label']}: {data['message']}" in [each.text for each in picture]
    assert data["color"] in badge_svg(matrix)
