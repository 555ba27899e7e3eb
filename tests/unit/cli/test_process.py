"""The command as a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys

import fusion_core as core


def test_it_runs_as_a_module_and_imports_no_plugin():
    code = (
        "import sys, runpy; sys.argv[:] = ['fusion', 'backends', '--json']\n"
        "try: runpy.run_module('fusion_core', run_name='__main__')\n"
        "finally: print([m for m in sys.modules if m.startswith('fusion_backend')], file=sys.stderr)"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert {each["name"] for each in json.loads(done.stdout)} == {
        each.name for each in core.backends()
    }
    assert done.stderr == "[]\n"


def test_its_exit_code_and_messages_reach_the_shell():
    command = [sys.executable, "-m", "fusion_core", "info", "nobody"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error: no backend is named 'nobody'.")
