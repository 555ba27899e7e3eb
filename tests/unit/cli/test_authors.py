"""``new-backend`` and ``conformance`` serve whoever writes a backend."""

from __future__ import annotations

import json
import sys

import pytest

import fusion_core as core


def test_conformance_without_pytest_says_how_to_get_it(fusion, acme, monkeypatch):
    monkeypatch.setitem(sys.modules, "pytest", None)  # as if it were not installed
    said = fusion("conformance", acme, code=2).stderr
    assert "needs pytest, which is not installed: pip install 'fusion-core[testing]'" in said


def test_conformance_of_a_backend_that_does_not_exist_starts_nothing(fusion):
    said = fusion("conformance", "nobody", code=2).stderr
    assert "no backend is named 'nobody'" in said


@pytest.mark.slow
def test_conformance_passes_arguments_on_and_prints_the_matrix_as_json(fusion, tmp_path):
    matrix = tmp_path / "matrix.md"
    options = ("--json", "--matrix", matrix, "--", "-k", "relu6", "-q")
    result = fusion("conformance", "fbgemm", *options)
    assert "fbgemm" in json.dumps(json.loads(result.stdout))
    assert "fbgemm" in matrix.read_text()


@pytest.mark.slow
def test_conformance_without_a_check_is_misuse(fusion):
    fusion("conformance", "fbgemm", "--", "-k", "no_such_check", code=2)


def test_new_backend_writes_a_folder_and_says_what_is_next(fusion, tmp_path):
    shown = json.loads(fusion("new-backend", "acme-npu", "--into", tmp_path, "--json").stdout)
    folder = tmp_path / shown["folder"]
    assert shown["files"]
    assert all((folder / each).is_file() for each in shown["files"])
    assert "fusion conformance acme_npu" in shown["next"]


def test_new_backend_never_overwrites(fusion, tmp_path):
    fusion("new-backend", "acme", "--into", tmp_path)
    said = fusion("new-backend", "acme", "--into", tmp_path, code=2).stderr
    assert said.startswith("error: ")


def test_lint_shows_what_is_found_and_counts_warnings_on_request(fusion, acme):
    found = core.lint(acme)
    code = 1 if found.errors else 0
    assert json.loads(fusion("lint", acme, "--json", code=code).stdout) == json.loads(
        json.dumps(found.to_dict())
    )
    fusion("lint", acme, "--strict", code=1 if found.errors or found.warnings else 0)
