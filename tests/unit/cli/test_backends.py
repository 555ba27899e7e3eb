"""``backends``, ``info``, ``doctor`` and ``lint`` show what the functions of the library know."""

from __future__ import annotations

import json
from dataclasses import asdict

import fusion_core as core


def words(text):
    return " ".join(text.split())


def test_backends_lists_what_is_installed_and_registered(fusion, acme):
    rows = [words(line) for line in fusion("backends").stdout.splitlines()]
    assert f"{acme} registered at run time 0 registered Convolutions on the Acme chip." in rows
    assert any(row.startswith("fbgemm fusion-backend-fbgemm") for row in rows)


def test_backends_as_json_are_the_records(fusion, acme):
    shown = json.loads(fusion("backends", "--json").stdout)
    assert shown == json.loads(json.dumps([asdict(each) for each in core.backends()]))
    assert acme in {each["name"] for each in shown}


def test_backends_says_why_one_cannot_be_used(fusion, monkeypatch):
    monkeypatch.setenv("FUSION_DISABLED_BACKENDS", "fbgemm")
    monkeypatch.setenv("COLUMNS", "200")
    text = words(fusion("backends").stdout)
    assert "disabled" in text
    assert "disabled by the environment variable" in text


def test_info_shows_the_description(fusion, acme):
    text = fusion("info", acme).stdout
    assert text == f"{core.describe(acme).text(100)}\n"
    shown = json.loads(fusion("info", acme, "--json").stdout)
    assert shown == json.loads(json.dumps(core.describe(acme).to_dict()))


def test_doctor_shows_its_diagnosis_and_notes_what_it_tries(fusion, acme, monkeypatch):
    others = [each.name for each in core.backends() if each.state == "installed"]
    monkeypatch.setenv("FUSION_DISABLED_BACKENDS", ",".join(others))  # each would take seconds
    result = fusion("doctor", "--json")
    shown = json.loads(result.stdout)
    assert shown["is_healthy"]
    assert {each["name"]: each["health"] for each in shown["plugins"]} == {
        acme: "fine",
        **dict.fromkeys(others, "disabled"),
    }
    assert result.stderr == f"loading {acme} ...\n"
    assert "Nothing is wrong with any plugin." in fusion("doctor").stdout


def test_doctor_fails_if_a_plugin_is_broken(fusion, monkeypatch):
    others = [each.name for each in core.backends() if each.state == "installed"]
    monkeypatch.setenv("FUSION_DISABLED_BACKENDS", ",".join(others))
    undo = core.register_backend("hollow", object())
    try:
        text = words(fusion("doctor", code=1).stdout)
    finally:
        undo()
    assert "broken hollow" in text
    assert f"1 of {len(others) + 1} is broken." in text
