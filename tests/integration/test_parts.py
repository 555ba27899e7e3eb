"""Whole models with parts of their own, own methods and own containers, through all passes for fbgemm."""

from __future__ import annotations

import copy
import io
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import fx, nn

import fusion_core as core
from fusion_core.configs import CustomConfig, Standalone
from fusion_core.testing.measures import sqnr

X = torch.randn(8, 3, 8, 8)


class Branching(nn.Module):
    """Control flow on values, lists of layers, and a layer that some data never reach."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU())
        self.steps = nn.ModuleList([nn.Conv2d(8, 8, 1) for _ in range(2)])
        self.head = nn.Linear(8, 5)
        self.labels = list("abcde")

    def forward(self, x):
        x = self.stem(x)
        for step in self.steps:
            if x.abs().max() > 1e-6:
                x = torch.relu(step(x))
        return self.head(x.mean((2, 3)))

    def decode(self, y):
        return [self.labels[index] for index in y.argmax(1)]

    @property
    def classes(self):
        return len(self.labels)

    @staticmethod
    def twice(x):
        return 2 * x


def saved(model):
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.fixture(scope="module")
def branching():
    torch.manual_seed(0)
    model = Branching().eval()
    return model, core.quantize(model, "fbgemm", calibration=[X, X[:4] * 2])


def test_a_model_with_control_flow_runs_in_kernels(branching):
    model, quantized = branching
    report = core.report(quantized)

    assert report.ledger.macs().fraction == 1.0
    assert sqnr(model(X).detach(), quantized(X).detach()) > 25
    assert "its forward runs as Python" in str(report)


# S6
@pytest.mark.parametrize(
    "again",
    [lambda m: m, copy.deepcopy, saved, lambda m: copy.deepcopy(saved(m))],
    ids=["", "copy", "saved", "copy of saved"],
)
def test_methods_of_the_users_class_are_reachable(branching, again):
    model, quantized = branching
    copied = again(quantized)

    assert copied.decode(copied(X)) == quantized.decode(quantized(X))
    assert copied.classes == 5
    assert copied.twice(2) == 4
    assert torch.equal(copied(X), quantized(X))
    with pytest.raises(AttributeError, match="nonsense"):
        _ = copied.nonsense
    assert model.labels is not copied.labels


def test_attributes_that_are_asked_for_are_kept():
    model = Guarded().eval()
    model.tokenizer, model.spare = len, nn.Linear(2, 2).eval()
    config = CustomConfig(preserved_attributes=("tokenizer", "spare"))
    quantized = core.quantize(model, "fbgemm", calibration=[torch.randn(8, 4)], custom=config)

    for each in (quantized, saved(quantized), copy.deepcopy(quantized)):
        assert each.tokenizer is len
        assert torch.equal(each.spare.weight, model.spare.weight)
    with pytest.raises(core.errors.CustomConfigError, match=r"has no such attribute.*'tokenizer'"):
        core.trace(
            model,
            torch.randn(8, 4),
            custom=CustomConfig(preserved_attributes=("tokeniser",)),
        )


class Guards(nn.Module):
    """No layer: it checks an input, and gives nothing."""

    def forward(self, x):
        if x.abs().max() > 1e6:
            raise ValueError("too large")


class Guarded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.guards, self.fc = Guards(), nn.Linear(4, 4)

    def forward(self, x):
        self.guards(x)
        return self.fc(x)


# T3
def test_a_call_in_a_graph_that_is_no_layer_is_copied():
    class Keeping(fx.Tracer):
        def is_leaf_module(self, m, module_qualified_name):
            return isinstance(m, Guards) or super().is_leaf_module(m, module_qualified_name)

    model = Guarded().eval()
    graph = fx.GraphModule(model, Keeping().trace(model)).eval()
    quantized = core.quantize(graph, "fbgemm", calibration=[torch.randn(8, 4)])

    assert core.report(quantized).ledger["fc"].status is core.Status.INT8
    with pytest.raises(ValueError, match="too large"):
        quantized(torch.full((1, 4), 1e7))


class Rounding(nn.Module):
    """It quantizes a tensor itself, with a scale that depends on it."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        scale = float(x.abs().max() / 127)
        return self.fc(torch.quantize_per_tensor(x, scale, 0, torch.qint8).dequantize())


# T4
def test_a_model_that_quantizes_a_tensor_itself_is_quantized_and_the_line_is_named():
    quantized = core.quantize(Rounding().eval(), "fbgemm", calibration=[torch.randn(8, 4)])
    lines = {line.path: line for line in core.report(quantized).ledger}
    line = Rounding.forward.__code__.co_firstlineno + 1

    assert f"test_parts.py:{line} (TypeError" in lines[""].reason
    assert lines["fc"].status is core.Status.INT8


def test_a_standalone_module_has_kernels_of_its_own_backend():
    model = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.ReLU())).eval()
    config = CustomConfig(standalone={"1": Standalone(backend="qnnpack")})
    quantized = core.quantize(model, "fbgemm", calibration=[torch.randn(8, 4)], custom=config)
    plugins = {line.path: line.plugin for line in core.report(quantized).ledger}

    assert plugins["0"].startswith("fbgemm")
    assert plugins["1.0"].startswith("qnnpack")


PROCESS = """
import sys
import torch
from torch import distributed, nn
import fusion_core as core
from fusion_core.nn import HistogramObserver

file, rank, case = sys.argv[1], int(sys.argv[2]), sys.argv[3]
distributed.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=2)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)).eval()
data = torch.randn(6, 8, 4)
backend = core.get_backend("fbgemm")
mapping = backend.qconfig_mapping.model_copy(deep=True)
observer = core.ObserverSpec(core.nn.MinMaxObserver, dtype=torch.quint8, quant_min=0, quant_max=127)
mapping.set_module_name("2", core.QConfig(activation=observer, weight=mapping.global_qconfig.weight))

def prepared():
    return core.prepare(core.fuse(core.trace(model, data[0], backend=backend), backend), backend, mapping)

mine = prepared()
share = list(data[rank::2])
if case == "failing" and rank == 1:
    share[0] = torch.full((8, 4), float("nan"))
try:
    core.calibrate(mine, share)
except core.errors.CalibrationError as error:
    print(type(error).__name__, error)
    sys.exit(3)
distributed.destroy_process_group()
alone = core.calibrate(prepared(), list(data))
kinds = {type(mine.get_submodule(path)) for path in mine.fusion_record.observers}
assert kinds == {HistogramObserver, core.nn.MinMaxObserver}
for path in mine.fusion_record.observers:
    one, other = mine.get_submodule(path), alone.get_submodule(path)
    assert torch.equal(one.min_val, other.min_val), path
    assert torch.equal(one.max_val, other.max_val), path
    if isinstance(one, HistogramObserver):
        assert one.histogram.sum() == other.histogram.sum(), path
print([float(mine.get_submodule(path).calculate_qparams()[0]) for path in mine.fusion_record.observers])
"""


def run_in_two(tmp_path: Path, case: str):
    script = tmp_path / "process.py"
    script.write_text(PROCESS)
    started = [
        subprocess.Popen(
            [sys.executable, str(script), str(tmp_path / "meeting"), str(rank), case],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    texts = [each.communicate(timeout=120)[0] for each in started]
    return [each.returncode for each in started], texts


@pytest.mark.slow
def test_processes_that_calibrate_together_see_all_data(tmp_path):
    codes, texts = run_in_two(tmp_path, "whole")

    assert codes == [0, 0], texts
    assert texts[0].splitlines()[-1] == texts[1].splitlines()[-1]


@pytest.mark.slow
def test_a_process_whose_calibration_fails_keeps_none_waiting(tmp_path):
    codes, texts = run_in_two(tmp_path, "failing")

    assert codes == [3, 3], texts
    assert "CalibrationError calibration failed in process 1: NonFiniteActivationError" in texts[0]
    assert "NonFiniteActivationError" in texts[1]
