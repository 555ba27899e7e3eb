"""The report says everything the ledger knows, at any width, in every form."""

from __future__ import annotations

import io
import json
from dataclasses import fields

import pytest
import torch
from rich.console import Console

import fusion_core as core
from fusion_core import Ledger, LedgerEntry, Report, Status
from fusion_core.errors import ModelStateError


def words(text: str) -> str:
    return " ".join(text.split())


def ledger_of(*entries: LedgerEntry) -> Ledger:
    ledger = Ledger("some")
    for entry in entries:
        ledger.open(entry)
    return ledger


def refused(node: str, **facts: object) -> LedgerEntry:
    return LedgerEntry(node, "torch.fft", **{"path": node, "reason": "nobody can", **facts})


def test_it_names_backend_plugin_versions_and_shares(quantized) -> None:
    text = str(core.report(quantized))
    (origin,) = core.get_backend("fbgemm").origins
    assert "Model lowered for fbgemm" in text
    assert f"{origin.distribution} {origin.version}" in text
    assert f"torch {torch.__version__}" in text
    assert "int8: 66.6 % of 6 operations" in text
    assert "multiply-accumulates" in text


def test_it_shows_the_notes(quantized) -> None:
    (note,) = core.report(quantized).ledger.notes
    assert note in str(core.report(quantized))


def test_it_says_what_is_not_int8_and_why(quantized) -> None:
    text = words(core.report(quantized).text(width=160))
    assert "float 1 SiLU silu no pattern of fbgemm matches SiLU here" in text
    assert "removed 1 Dropout drop dropout does nothing in eval mode" in text


def test_what_is_not_int8_comes_first(quantized) -> None:
    text = str(core.report(quantized))
    assert text.index("Not int8") < text.index("fbgemm conv/linear")


@pytest.mark.parametrize("width", [20, 60, 80, 300])
@pytest.mark.parametrize("expanded", [False, True])
def test_reasons_and_near_misses_are_never_cut(width, expanded) -> None:
    reason = ", ".join(["its operand has a dtype that no kernel of this backend takes"] * 3)
    entry = refused("a", reason=reason, near_miss="Conv2d -> SiLU: no such activation")
    report = Report(ledger_of(entry), "lowered", is_expanded=expanded)
    lines = report.text(width).splitlines()
    rule = next(line for line in lines if "──" in line)
    start = next(line for line in lines if "its operand" in line).index("its operand")
    column = " ".join(line[start:] for line in lines[lines.index(rule) + 1 :])
    assert words(column) == f"{reason}; nearest: {entry.near_miss}"


def test_equal_refusals_make_one_row_with_all_places() -> None:
    report = Report(ledger_of(*(refused(f"block{i}") for i in range(3))), "lowered")
    assert "float 3 torch.fft block0, block1, block2 nobody can" in words(report.text(160))
    assert words(report.expanded().text(160)).count("nobody can") == 3


def test_the_most_costly_refusal_comes_first_and_what_was_removed_last() -> None:
    entries = (
        refused("gone", status=Status.REMOVED, reason="no effect"),
        refused("cheap"),
        refused("dear", macs=10**6, reason="nobody can afford it"),
    )
    text = Report(ledger_of(*entries), "lowered").text(160)
    assert text.index("dear") < text.index("cheap") < text.index("gone")


def test_expanded_it_has_a_row_for_each_operation_in_the_order_of_the_graph(quantized) -> None:
    report = core.report(quantized)
    lines = report.expanded().text(300).splitlines()
    rule = next(index for index, line in enumerate(lines) if "──" in line)
    shown = [line.split()[1] for line in lines[rule + 1 :] if line.strip()]
    assert shown == [entry.operation for entry in report.ledger]


def test_square_brackets_are_no_markup() -> None:
    report = Report(ledger_of(refused("a", reason="its shape is [bold][2, 3]")), "lowered")
    assert "its shape is [bold][2, 3]" in report.text(160)


def test_a_little_short_of_all_is_not_shown_as_all() -> None:
    entries = [refused(f"n{i}", status=Status.INT8, macs=1, pattern="p") for i in range(9999)]
    text = str(Report(ledger_of(*entries, refused("last", macs=1)), "lowered"))
    assert "99.9 % of 10000 operations" in text
    assert "100 %" not in text


def test_it_is_ready_for_json_and_complete(quantized) -> None:
    report = core.report(quantized)
    facts = json.loads(json.dumps(report.to_dict()))
    assert facts["backend"] == "fbgemm"
    assert facts["stage"] == "lowered"
    assert facts["plugins"][0].keys() == {"name", "distribution", "version"}
    assert facts["torch"] == torch.__version__
    assert facts["fusion_core"] == core.get_backend("fbgemm").core_version
    assert facts["operations"] == {"int8": 4, "total": 6, "fraction": 4 / 6}
    assert len(facts["entries"]) == len(report.ledger)
    for shown, entry in zip(facts["entries"], report.ledger, strict=True):
        for each in fields(LedgerEntry):
            value = getattr(entry, each.name)
            assert shown[each.name] == (value.value if each.name == "status" else value)


def test_rich_prints_it_in_colour(quantized) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, color_system="standard", width=120)
    console.print(core.report(quantized))
    assert "\x1b[31mfloat" in console.file.getvalue()


def test_a_notebook_shows_it_as_html(quantized) -> None:
    html = core.report(quantized)._repr_html_()
    assert html.startswith("<pre")
    assert "no pattern of fbgemm" in html


def test_a_model_on_its_way_can_be_reported(small, data) -> None:
    traced = core.trace(small, data[0], backend="fbgemm")
    assert "not yet decided" in str(core.report(traced))
    reference = core.quantize(small, backend="fbgemm", calibration=data, reference=True)
    assert "and not yet lowered" in words(core.report(reference).text(300))


def test_a_model_that_no_pass_has_seen_is_refused(small) -> None:
    with pytest.raises(ModelStateError, match="report needs a traced model"):
        core.report(small)
