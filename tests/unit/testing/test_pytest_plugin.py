"""What pytest's command line does with backends, matrices and badges."""

from __future__ import annotations

import json
import subprocess
import sys
from xml.etree import ElementTree as ET

import pytest

from fusion_core.configs import CAPABILITIES

ADOPTED = """
from fusion_core.testing import BackendConformance

class TestAcme(BackendConformance):
    backend = "acme"

def test_another_thing():
    pass
"""


def test_several_backends_run_without_a_file(plugin, registered, run_pytest):
    registered("acme", plugin())
    registered("acme_two", plugin())
    run = run_pytest(
        "--fusion-backend", "acme", "--fusion-backend", "Acme-Two", "-k", "linear and test_cap"
    )

    assert run.code == 0
    assert set(run.matrix["backends"]) == {"acme", "acme_two"}
    assert run.cell("acme_two", "linear")["status"] == "supported"
    assert run.cell("acme_two", "conv2d") == {"status": "not checked", "reason": None}
    assert (
        "TestAcmeTwo" in run_pytest("--fusion-backend", "acme_two", "--collect-only", "-q").output
    )


def test_the_summary_shows_the_matrix_of_what_was_asked_for(whole_run):
    run, _ = whole_run

    assert "conformance of backends for fusion-core" in run.output
    assert f"acme: capabilities 10 supported, {len(CAPABILITIES) - 10} gap" in run.output
    assert all(name in run.output for name in CAPABILITIES)


def test_a_test_file_with_the_class_runs_the_kit_and_sums_it_up_in_a_line(
    plugin, registered, run_pytest, tmp_path
):
    registered("acme", plugin())
    file = tmp_path / "test_acme.py"
    file.write_text(ADOPTED)
    run = run_pytest(file, "-k", "(linear and test_cap) or another")

    assert run.code == 0
    assert run.cell("acme", "linear.relu")["status"] == "supported"
    others = len(CAPABILITIES) - 7
    assert f"\nacme: capabilities 6 supported, 1 gap, {others} not checked" in run.output
    assert "conv_transpose" not in run.output


def test_files_get_the_format_of_their_suffix(whole_run):
    _, folder = whole_run
    matrix = json.loads((folder / "sub" / "m.json").read_text())
    picture = ET.fromstring((folder / "b.svg").read_text())  # noqa: S314  our own

    assert "| `linear` | supported |" in (folder / "m.md").read_text()
    assert "linear.relu" in (folder / "m.txt").read_text()
    assert matrix["backends"]["acme"]["totals"]["supported"] == 10
    assert json.loads((folder / "b.json").read_text())["message"] == f"acme 10/{len(CAPABILITIES)}"
    assert f"acme 10/{len(CAPABILITIES)}" in "".join(picture.itertext())


@pytest.mark.parametrize(
    ("option", "file"), [("--fusion-matrix", "m.pdf"), ("--fusion-badge", "b.png")]
)
def test_a_suffix_without_a_format_is_a_mistake_in_the_command(run_pytest, option, file):
    run = run_pytest(option, file)

    assert run.code == pytest.ExitCode.USAGE_ERROR


def test_pytest_imports_torch_only_if_the_kit_is_asked_for(tmp_path):
    (tmp_path / "test_mine.py").write_text("def test_mine():\n    pass\n")
    program = (
        "import sys, pytest\n"
        "code = pytest.main(['-q', '-p', 'no:cacheprovider', sys.argv[1]])\n"
        "print(int(code), 'torch' in sys.modules, 'fusion_core_pytest' in sys.modules)\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)

    assert done.stdout.splitlines()[-1] == "0 False True"
