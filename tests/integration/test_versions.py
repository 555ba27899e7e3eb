"""What docs/stability.md says of models, plugins and versions that meet later."""

from __future__ import annotations

import copy
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from packaging.version import Version
from torch import nn

import fusion_core as core
from fusion_core import errors, registry

CORE = Path(registry.__file__).parents[2]

PLUGIN = '''
"""Linear layers in reference form, and ReLU on a kernel of the plugin's own."""

import torch
from torch import nn

from fusion_core import BackendPatternConfig, DTypeConfig, LoweringRule, QConfigMapping, Replacement
from fusion_core import catalog, hookimpl, ops
from fusion_core.qops import dequantize_per_tensor, quantize_per_tensor

__version__ = "1.4"
SAME = DTypeConfig(input_dtype=torch.quint8, output_dtype=torch.quint8)
WEIGHTED = SAME.model_copy(update={"weight_dtype": torch.qint8})


class Relu(nn.Module):
    def __init__(self, zero_point):
        super().__init__()
        self.zero_point = zero_point

    def forward(self, codes):
        return codes.clamp(min=self.zero_point)


@hookimpl
def fusion_pattern_configs():
    layers = BackendPatternConfig(nn.Linear, dtype_configs=[WEIGHTED])
    return [layers, *catalog.activation([SAME])]


@hookimpl
def fusion_lowering_rules():
    def lower(node_pattern, modules):
        quantize, (relu, dequantize) = node_pattern
        return Replacement(Relu(dequantize.args[2]), (dequantize.args[0],))

    pattern = (quantize_per_tensor, (ops.relu, (dequantize_per_tensor, ...)), ...)
    return [LoweringRule(complex_pattern=pattern, lower=lower)]


@hookimpl
def fusion_default_qconfig_mapping():
    return QConfigMapping(global_qconfig=catalog.static_qconfig())
'''

# Where the plugin is not installed.
LOAD = """
import pickle, sys

import torch

import fusion_core as core

for path in sys.argv[1:]:
    with open(path, "rb") as file:
        model, images, wanted = pickle.load(file)
    assert torch.equal(model(images), wanted)
    document = core.report(model).to_dict()
    print(document["stage"], document["plugins"], document["fusion_core"])
"""


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    (tmp_path / "plugin_of_acme.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(tmp_path)
    import plugin_of_acme  # noqa: PLC0415  written just now

    yield plugin_of_acme
    del sys.modules["plugin_of_acme"]


@pytest.fixture
def images():
    return torch.randn(2, 4, generator=torch.Generator().manual_seed(0))


def quantized(plugin, images, **settings):
    undo = core.register_backend("acme", plugin)
    try:
        model = nn.Sequential(nn.Linear(4, 4), nn.ReLU()).eval()
        return core.quantize(model, "acme", calibration=[images], **settings)
    finally:
        undo()


def test_a_model_names_the_plugins_and_versions_it_was_quantized_with(plugin, images) -> None:
    model = quantized(plugin, images)
    plugin.__version__ = "2.0"
    again = pickle.loads(pickle.dumps(model))  # noqa: S301  ours
    assert [(each.name, each.version) for each in core.report(again).plugins] == [("acme", "1.4")]
    assert torch.equal(again(images), model(images))


def test_only_a_model_with_modules_of_its_plugin_needs_it(plugin, images, tmp_path) -> None:
    models = quantized(plugin, images, reference=True), quantized(plugin, images)
    assert [any(isinstance(each, plugin.Relu) for each in model.modules()) for model in models] == [
        False,
        True,
    ]
    files = tmp_path / "reference.pickle", tmp_path / "lowered.pickle"
    for model, file in zip(models, files, strict=True):
        file.write_bytes(pickle.dumps((model, images, model(images))))
    environment = {**os.environ, "PYTHONPATH": str(CORE)}
    command = [sys.executable, "-c", LOAD, *files]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.startswith("converted [{'name': 'acme', "), done.stderr
    assert "'version': '1.4'" in done.stdout
    assert "lowered" not in done.stdout
    assert "ModuleNotFoundError: No module named 'plugin_of_acme'" in done.stderr


def test_a_model_is_lowered_for_the_backend_that_is_installed_then(plugin, images) -> None:
    reference = pickle.loads(pickle.dumps(quantized(plugin, images, reference=True)))  # noqa: S301
    del plugin.fusion_lowering_rules  # what a later version no longer has
    undo = core.register_backend("acme", plugin)
    try:
        lowered = core.lower(reference)
    finally:
        undo()
    assert {each.status for each in core.report(lowered).ledger} == {core.Status.REFERENCE}


def test_loading_a_model_with_other_versions_warns_of_each(plugin, images, monkeypatch) -> None:
    first = quantized(plugin, images)
    data, here = pickle.dumps(first), torch.__version__
    monkeypatch.setattr(torch, "__version__", "99.1.0")
    with pytest.warns(errors.OtherVersionWarning, match=rf"torch {re.escape(here)}, here 99\.1\.0"):
        model = pickle.loads(data)  # noqa: S301  ours
    assert core.report(model).to_dict()["torch"] == here
    assert torch.equal(model(images), first(images))


def test_a_patch_release_is_no_other_version(plugin, images, monkeypatch) -> None:
    data = pickle.dumps(quantized(plugin, images))
    release = Version(torch.__version__).release
    monkeypatch.setattr(torch, "__version__", f"{release[0]}.{release[1]}.99")
    pickle.loads(data)  # noqa: S301  ours


def test_a_copy_in_one_process_compares_nothing(plugin, images, monkeypatch) -> None:
    model = quantized(plugin, images)
    monkeypatch.setattr(torch, "__version__", "99.1.0")
    copy.deepcopy(model)
