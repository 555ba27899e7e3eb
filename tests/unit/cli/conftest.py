"""The command, called in this process; a backend that is registered, and models in a folder of their own."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import fusion_core as core
from fusion_core.cli import app

NETS = '''
"""Models for the command line."""

import torch
from torch import nn

print("importing prints")


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.gate = nn.SiLU()

    def forward(self, x):
        return self.gate(self.conv(x))


def with_inputs():
    return Small(), torch.zeros(1, 3, 8, 8)


def raising():
    raise KeyError("no weights")


def three():
    return 3


def in_double():
    return Small().double()


model = Small()
number = 3
'''


@pytest.fixture
def fusion(monkeypatch):
    """Runs the command and checks its exit code."""
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("FUSION_TRACEBACK", raising=False)

    def fusion(*arguments, code=0):
        result = CliRunner().invoke(app, [str(each) for each in arguments])
        assert result.exit_code == code, result.output
        return result

    return fusion


@pytest.fixture
def nets(tmp_path, monkeypatch):
    """The current folder, with ``nets.py`` in it; what is imported from it is forgotten again."""
    (tmp_path / "nets.py").write_text(NETS)
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "deep.py").write_text("from nets import Small\n\nmodel = Small()\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.fixture
def acme():
    """A backend that takes convolutions, registered for one test."""
    quint8, qint8 = torch.quint8, torch.qint8
    dtypes = core.DTypeConfig(input_dtype=quint8, output_dtype=quint8, weight_dtype=qint8)
    plugin = ModuleType("acme_plugin", "Convolutions on the Acme chip.")
    answers = {
        "fusion_pattern_configs": lambda: [
            core.BackendPatternConfig(nn.Conv2d, dtype_configs=[dtypes], root_module=nn.Conv2d)
        ],
        "fusion_backend_info": lambda: core.BackendInfo(
            summary="int8 for the Acme chip", gaps={"conv3d": "it has two dimensions"}
        ),
    }
    for name, answer in answers.items():
        setattr(plugin, name, core.hookimpl(answer))
    undo = core.register_backend("acme", plugin)
    yield "acme"
    undo()
