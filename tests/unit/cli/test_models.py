"""``explain`` and ``coverage`` take a model from the user's own code."""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.usefixtures("nets")


def words(text):
    return " ".join(text.split())


def test_explain_takes_inputs_from_the_command_line(fusion, acme):
    text = fusion("explain", "nets:model", "--backend", acme, "--input", "1x3x8x8").stdout
    assert "conv Conv2d in conv quantized, by the pattern Conv2d" in words(text)
    assert "stays in float: no pattern of acme matches SiLU here" in text
    assert "Traced without example_inputs" not in text


def test_explain_does_without_inputs(fusion, acme):
    assert "Traced without" in fusion("explain", "nets:model", "--backend", acme).stdout


def test_explain_shows_one_node_in_full(fusion, acme):
    shown = fusion("explain", "nets:with_inputs", "gate", "--backend", acme, "--json").stdout
    assert [each["node"] for each in json.loads(shown)["nodes"]] == ["gate"]
    said = fusion("explain", "nets:with_inputs", "gat", "--backend", acme, code=2).stderr
    assert "Did you mean 'gate'?" in said


def test_explain_shows_every_candidate_on_request(fusion, acme):
    short = fusion("explain", "nets:with_inputs", "--backend", acme).stdout
    full = fusion("explain", "nets:with_inputs", "--backend", acme, "--full").stdout
    assert "qconfig mapping: global" in full
    assert "qconfig mapping: global" not in short


def test_coverage_compares_the_backends_that_were_named(fusion, acme):
    options = ("--backend", acme, "--backend", "fbgemm", "--json")
    shown = json.loads(fusion("coverage", "nets:with_inputs", *options).stdout)
    assert [each["backend"] for each in shown["backends"]] == [acme, "fbgemm"]
    for each in shown["backends"]:
        assert (each["operations"], each["quantized_operations"]) == (2, 1)
        assert each["macs"] == each["quantized_macs"] == 4 * 6 * 6 * 3 * 9


def test_coverage_compares_all_backends_if_none_is_named(fusion, acme):
    text = fusion("coverage", "nets:with_inputs").stdout
    assert f"Stays in float with {acme}" in text
    assert "Stays in float with fbgemm" in text


def test_coverage_asks_for_an_input(fusion):
    said = fusion("coverage", "nets:model", code=2).stderr
    assert "nets:model: one input is needed: --input 1x3x224x224" in said


def test_a_model_that_fails_on_the_input_is_a_message(fusion, acme):
    options = ("--backend", acme, "--input", "1x4x8x8")
    said = fusion("coverage", "nets:model", *options, code=1).stderr
    assert "the model fails at conv on example_inputs: RuntimeError: Given groups=1" in said
    assert "Traceback" not in said
