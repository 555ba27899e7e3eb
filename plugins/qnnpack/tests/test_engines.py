"""The result has the same bits whichever engine the process has selected, and whenever."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  the name everyone knows it by
from torch import nn

import fusion_core as core

ENGINES = torch.backends.quantized.supported_engines


class EveryKernel(nn.Module):
    """Every kind of kernel once, on sizes at which engines differ where they can."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(3, 8, 3, padding=1)
        self.depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.volume = nn.Conv3d(8, 8, (1, 3, 3))
        self.rows = nn.Conv1d(8, 8, 3)
        self.up = nn.ConvTranspose2d(8, 8, 2, stride=2)
        self.head = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        a, b = F.relu6(self.first(x)), self.second(x)
        total, product = F.relu(a + b), a * b
        pooled = F.max_pool2d(total, 1) + F.avg_pool2d(total, 3, 1, 1, count_include_pad=False)
        clamped = F.max_pool2d(self.depthwise(pooled), 2).clamp(-0.3, 0.4)
        deep = self.volume(clamped.unsqueeze(2)).squeeze(2)
        rows = F.avg_pool1d(self.rows(deep.flatten(2)), 2)
        up = self.up(deep)
        mean = F.adaptive_avg_pool2d(up, 1).flatten(1)
        return [
            *(a, total, product, clamped, rows, up),
            *(self.head(mean), up.mean((2, 3)), F.adaptive_avg_pool1d(rows, 2)),
        ]


@pytest.fixture(scope="module")
def model() -> nn.Module:
    torch.manual_seed(0)
    return EveryKernel().eval()


@pytest.fixture(scope="module")
def images() -> torch.Tensor:
    return torch.randn(4, 3, 12, 12, generator=torch.Generator().manual_seed(1))


def quantized(model, images) -> nn.Module:
    return core.quantize(
        model, "qnnpack", calibration=[images], adaptive_rounding=False, bias_correction=False
    )


def same_bits(left, right) -> bool:
    return all(torch.equal(a, b) for a, b in zip(left, right, strict=True))


def test_every_operation_of_the_model_runs_in_a_kernel(model, images):
    ledger = core.report(quantized(model, images)).ledger

    assert {line.status for line in ledger} == {core.Status.INT8}, [*ledger]


@pytest.mark.usefixtures("engine")
def test_the_engine_selected_before_quantizing_changes_no_bit(model, images):
    results = []
    for name in ENGINES:
        torch.backends.quantized.engine = name
        lowered = quantized(model, images)
        assert torch.backends.quantized.engine == name
        results.append(lowered(images))

    assert all(same_bits(results[0], each) for each in results[1:])


@pytest.mark.usefixtures("engine")
def test_the_engine_selected_between_quantizing_and_running_changes_no_bit(model, images):
    lowered = quantized(model, images)
    wanted = lowered(images)
    for name in ENGINES:
        torch.backends.quantized.engine = name
        for each in (lowered, copy.deepcopy(lowered), pickle.loads(pickle.dumps(lowered))):  # noqa: S301  ours
            assert same_bits(each(images), wanted), name


IN_A_FRESH_PROCESS = """
import pickle, sys
from pathlib import Path
import torch

stored = Path(sys.argv[1])
images, results = torch.load(stored / "images.pt"), {}
for name in torch.backends.quantized.supported_engines:
    torch.backends.quantized.engine = name
    model = pickle.loads((stored / "model.pickle").read_bytes())
    results[name] = model(images)
torch.save(results, stored / "results.pt")
"""


def test_the_engine_selected_before_unpickling_in_a_fresh_process_changes_no_bit(
    model, images, tmp_path: Path
):
    lowered = quantized(model, images)
    (tmp_path / "model.pickle").write_bytes(pickle.dumps(lowered))
    torch.save(images, tmp_path / "images.pt")
    command = [sys.executable, "-c", IN_A_FRESH_PROCESS, str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True)
    results, wanted = torch.load(tmp_path / "results.pt"), lowered(images)

    assert set(results) == set(ENGINES)
    for name, result in results.items():
        assert same_bits(result, wanted), name


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.Conv1d(3, 4, 3), (2, 3, 8)),
        (nn.Conv2d(3, 4, 3), (2, 3, 8, 8)),
        (nn.Conv3d(3, 4, 3), (2, 3, 4, 4, 4)),
        (nn.ConvTranspose1d(3, 4, 3), (2, 3, 8)),
        (nn.ConvTranspose2d(3, 4, 3), (2, 3, 4, 4)),
        (nn.Linear(3, 4), (2, 3)),
    ],
    ids=["conv1d", "conv2d", "conv3d", "transposed 1d", "transposed 2d", "linear"],
)
def test_reading_a_weight_before_the_first_run_changes_no_bit(layer, shape):
    x = torch.randn(shape)
    lowered = quantized(nn.Sequential(layer).eval(), x)
    untouched = quantized(nn.Sequential(layer).eval(), x)
    pickled = pickle.loads(pickle.dumps(lowered))  # noqa: S301  ours

    assert torch.equal(lowered(x), untouched(x))
    assert torch.equal(pickled(x), untouched(x))


def test_a_state_dict_restores_every_weight_in_another_model(model, images):
    lowered = quantized(model, images)
    other = quantized(EveryKernel().eval(), images)
    weights = {name: state for name, state in lowered.state_dict().items() if "kernel" in name}
    other.load_state_dict(weights, strict=False)

    for name, state in other.state_dict().items():
        if "kernel" in name:
            assert torch.equal(state["codes"], weights[name]["codes"]), name
            assert torch.equal(state["bias"], weights[name]["bias"]), name
