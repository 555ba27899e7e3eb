"""A way to run the kit on small backends, in this process."""

from __future__ import annotations

import io
import json
import os
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import fusion_core as core
from fusion_core import catalog
from fusion_core.configs import CAPABILITIES

INT8 = core.DTypeConfig(
    input_dtype=torch.quint8, output_dtype=torch.quint8, weight_dtype=torch.qint8
)
ACME_HAS = {
    *("linear", "linear.batched", "linear.no_bias", "linear.relu", "linear.batch_norm"),
    *("linear.function", "weights.per_channel", "weights.per_tensor"),
    *("activations.unsigned", "activations.affine"),
}
ACME_LACKS = {name: "the chip has none" for name in CAPABILITIES if name not in ACME_HAS}


def acme(**changes):
    """A plugin for linear layers without kernels, some of whose hooks answer otherwise."""
    gaps = changes.pop("gaps", ACME_LACKS)
    answers = {
        "fusion_pattern_configs": lambda: catalog.linear([INT8]),
        "fusion_default_qconfig_mapping": lambda: core.QConfigMapping(
            global_qconfig=catalog.static_qconfig()
        ),
        "fusion_backend_info": lambda: core.BackendInfo(summary="linear layers only", gaps=gaps),
    }
    hooks = {name: core.hookimpl(_named(name, hook)) for name, hook in (answers | changes).items()}
    return SimpleNamespace(**hooks)


def _named(name, hook):
    def answer():
        return hook()

    answer.__name__ = name
    return answer


@dataclass
class Run:
    """What a run of pytest came to."""

    code: int
    output: str
    matrix: dict[str, Any]

    def failure(self, check: str) -> str:
        """Why the check failed; empty if it did not."""
        found = [
            each["reason"]
            for backend in self.matrix["backends"].values()
            for each in backend["failures"]
            if each["check"] == check
        ]
        return "".join(found)

    def cell(self, backend: str, capability: str) -> dict[str, Any]:
        return self.matrix["backends"][backend]["capabilities"][capability]


def run_pytest_in(folder, *arguments):
    """Run pytest in a folder, within this process; the matrix is asked for, too."""
    file = folder / "its_matrix.json"
    file.unlink(missing_ok=True)
    options = ["--fusion-matrix", str(file), "--rootdir", str(folder), "-rs", "--color=no"]
    options += ["--import-mode=importlib", "--capture=sys", "-p", "no:cacheprovider"]
    here, output = Path.cwd(), io.StringIO()
    try:
        os.chdir(folder)
        with redirect_stdout(output), redirect_stderr(output):
            code = pytest.main([*map(str, arguments), *options, "-p", "no:randomly"])
    finally:
        os.chdir(here)
    matrix = json.loads(file.read_text()) if file.exists() else {}
    return Run(int(code), output.getvalue(), matrix)


@pytest.fixture
def plugin():
    """Makes a plugin for linear layers, with some answers changed."""
    return acme


@pytest.fixture
def lacks():
    """What that plugin lacks, with the reason."""
    return dict(ACME_LACKS)


@pytest.fixture
def registered():
    """Registers plugins as backends until the test is over."""
    undo = []
    yield lambda name, plugin: undo.append(core.register_backend(name, plugin))
    for unregister in undo:
        unregister()


@pytest.fixture
def run_pytest(tmp_path):
    """Runs pytest with some arguments in an empty folder."""
    return partial(run_pytest_in, tmp_path)


@pytest.fixture
def checks_of(registered, run_pytest):
    """Runs some checks on a plugin that is registered for it: those whose names fit an expression."""

    def run(plugin, expression):
        registered("acme", plugin)
        return run_pytest("--fusion-backend", "acme", "-k", expression)

    return run


@pytest.fixture(scope="session")
def whole_run(tmp_path_factory):
    """All checks of the plugin for linear layers, and the folder with all files it can write."""
    folder = tmp_path_factory.mktemp("whole")
    options = [("--fusion-matrix", name) for name in ("m.md", "m.txt", "sub/m.json")]
    options += [("--fusion-badge", name) for name in ("b.svg", "b.json")]
    unregister = core.register_backend("acme", acme())
    try:
        run = run_pytest_in(
            folder, "--fusion-backend", "acme", *(part for each in options for part in each)
        )
    finally:
        unregister()
    return run, folder
