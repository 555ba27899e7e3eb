"""Coverage counts operations and multiply-accumulates right, from shapes alone, and gives a reason for the rest."""

from __future__ import annotations

import json
from types import ModuleType

import pytest
import torch
from torch import nn
from torch.nn import functional

import fusion_core as core
from fusion_core.errors import PluginError, TrainingModeError, UnknownBackendError

META = torch.device("meta")


def plugin_of(*configs, **answers):
    module = ModuleType("coverage_plugin")
    for name, answer in {"pattern_configs": configs, **answers}.items():
        setattr(module, f"fusion_{name}", core.hookimpl(lambda answer=answer: answer))
    return module


@pytest.fixture
def register():
    undo = []
    yield lambda name, plugin: undo.append(core.register_backend(name, plugin))
    for each in undo:
        each()


def covered(model, *inputs):
    return core.coverage(model.eval(), "fbgemm", example_inputs=inputs)["fbgemm"]


def words(text):
    return " ".join(text.split())


class MatMul(nn.Module):
    def forward(self, x, y):
        return x @ y


class Attention(nn.Module):
    def forward(self, q, k, v):
        return functional.scaled_dot_product_attention(q, k, v)


@pytest.mark.parametrize(
    ("model", "shapes", "macs"),
    [
        # Each output element times what one filter sees.
        (nn.Conv2d(3, 8, 3, padding=1), [(2, 3, 5, 7)], 2 * 8 * 5 * 7 * (3 * 3 * 3)),
        (nn.Conv2d(4, 8, (1, 3), stride=2, groups=2), [(1, 4, 8, 9)], 8 * 4 * 4 * (2 * 3)),
        (nn.Conv1d(2, 4, 3, dilation=2), [(1, 2, 10)], 4 * 6 * (2 * 3)),
        (nn.Conv3d(2, 3, 2), [(1, 2, 4, 4, 4)], 3 * 27 * (2 * 8)),
        # Each input element times what it is spread to.
        (nn.ConvTranspose2d(3, 5, 2, stride=2), [(1, 3, 4, 4)], 3 * 16 * (5 * 4)),
        (nn.Linear(6, 7), [(2, 3, 6)], 2 * 3 * 6 * 7),
        (MatMul(), [(2, 3, 4), (2, 4, 5)], 2 * 3 * 4 * 5),
        # Scores and values; heads of 8.
        (Attention(), [(2, 4, 5, 8)] * 3, 2 * 4 * (5 * 8 * 5) * 2),
        # Four gates from the input and from the state, at each of five steps.
        (nn.LSTM(3, 6), [(5, 2, 3)], 5 * 2 * 4 * (3 * 6 + 6 * 6)),
        (nn.ReLU(), [(2, 3)], 0),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_multiply_accumulates_are_those_counted_by_hand(model, shapes, macs):
    wrapped = nn.Sequential(model) if len(shapes) == 1 else model
    assert covered(wrapped, *map(torch.zeros, shapes)).macs == macs


def test_operations_and_their_macs_are_counted_apart(small):
    found = core.coverage(small, "fbgemm", example_inputs=torch.zeros(2, 3, 8, 8))["fbgemm"]
    convolution, head = 2 * 4 * 6 * 6 * 27, 2 * 4 * 5
    # Of the six, SiLU and the mean behind it stay in float; dropout is gone.
    assert (found.operations, found.quantized_operations) == (6, 4)
    assert (found.macs, found.quantized_macs) == (convolution + head, convolution + head)
    assert {(row.operation, row.count) for row in found.left_in_float} == {
        ("SiLU", 1),
        (".mean", 1),
    }
    assert found.notes == ()


def test_what_would_be_quantized_is_what_is_quantized(small, quantized):
    ledger = core.report(quantized).ledger
    done = {each.operation for each in ledger if each.status is core.Status.INT8}
    left = {each.operation for each in ledger if each.status is core.Status.FLOAT}
    found = core.coverage(small, "fbgemm", example_inputs=torch.zeros(1, 3, 8, 8))["fbgemm"]
    assert {row.operation for row in found.left_in_float} == left
    assert found.quantized_operations == len(done)


def test_equal_refusals_are_one_row_and_the_dearest_comes_first():
    model = nn.Sequential(nn.SiLU(), nn.SiLU(), nn.SiLU(), nn.LSTM(4, 4))
    first, second = covered(model, torch.zeros(3, 4)).left_in_float
    assert (first.operation, first.macs) == ("LSTM", 3 * 4 * (16 + 16))
    assert (second.operation, second.count, second.places) == ("SiLU", 3, ("0", "1", "2"))


def test_a_model_that_has_no_values_will_do():
    with META:
        model = nn.Sequential(nn.Conv2d(3, 4096, 31), nn.ReLU(), nn.Linear(10**5, 10**6)).eval()
    found = covered(model, torch.zeros(1, 3, 31, 100030, device=META))
    assert found.quantized_operations == found.operations == 3
    assert found.quantized_macs == 4096 * 10**5 * (3 * 31 * 31) + 4096 * 10**11


def test_the_users_model_is_left_as_it_is(small):
    before = {name: value.clone() for name, value in small.state_dict().items()}
    core.coverage(small, "fbgemm", example_inputs=torch.zeros(1, 3, 8, 8))
    after = small.state_dict()
    assert all(torch.equal(value, after[name]) for name, value in before.items())
    assert {value.device.type for value in after.values()} == {"cpu"}


class Branches(nn.Module):
    """Cannot be traced, and cannot be run without values."""

    def forward(self, x):
        return x + 1 if x.sum() > 0 else x


def test_a_model_that_asks_for_values_is_run_on_them_and_that_is_noted():
    found = covered(nn.Sequential(nn.Linear(3, 3), Branches()), torch.ones(1, 3))
    assert (found.operations, found.quantized_operations) == (2, 1)
    (note,) = found.notes
    assert note.startswith("run once on real values, because without them the model fails at _1")


def test_a_model_without_values_that_asks_for_them_is_refused():
    with META:
        model = nn.Sequential(nn.Linear(3, 3), Branches())
    with pytest.raises(core.errors.ModelStateError, match="meta tensors"):
        covered(model, torch.ones(1, 3))


class Keeps(nn.Module):
    """Tensors that are neither parameters nor buffers, and one made on the way."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.shift = torch.ones(3) * nn.Parameter(torch.ones(3))

    def forward(self, x):
        return self.layer(x) + self.shift + torch.zeros(3)


def test_tensors_that_are_kept_or_made_on_the_way_need_no_values_either():
    found = covered(Keeps(), torch.ones(1, 3))
    assert found.notes == ()
    assert found.operations == 3


def test_inputs_may_be_by_name_and_nested():
    class Nested(nn.Module):
        def forward(self, pair, scale=2):
            return functional.relu(pair[0] + pair[1]) * scale

    inputs = {"pair": (torch.zeros(2), torch.zeros(2))}
    found = core.coverage(Nested().eval(), "fbgemm", example_inputs=inputs)["fbgemm"]
    assert found.notes == ()
    assert "torch.relu" not in {row.operation for row in found.left_in_float}


def test_a_pattern_that_asks_for_nothing_quantizes_nothing(register):
    unobserved = core.ObservationType.INPUT_OUTPUT_NOT_OBSERVED
    config = core.BackendPatternConfig(nn.SiLU, observation_type=unobserved)
    register("idle", plugin_of(config))
    model = nn.Sequential(nn.SiLU()).eval()
    found = core.coverage(model, "idle", example_inputs=torch.zeros(2))["idle"]
    assert found.quantized_operations == 0
    (row,) = found.left_in_float
    assert row.why == "the pattern SiLU asks for nothing to be quantized"


def test_a_backend_that_does_not_load_is_a_row_unless_it_was_asked_for(register, small):
    image = torch.zeros(1, 3, 8, 8)
    missing = core.BackendInfo(unavailable=lambda: "no such chip")
    register("absent", plugin_of(backend_info=missing))
    found = core.coverage(small, example_inputs=image)
    assert "it cannot run on this machine: no such chip" in found["absent"].problem
    assert found["fbgemm"].problem is None
    assert "no such chip" in words(found.text(200))
    with pytest.raises(PluginError, match="no such chip"):
        core.coverage(small, ["fbgemm", "absent"], example_inputs=image)
    with pytest.raises(UnknownBackendError):
        core.coverage(small, "nobody", example_inputs=image)


def test_a_backend_that_fails_on_the_model_does_not_harm_the_others(register, small):
    def failing(_is_qat, _conv, _norm):
        raise ZeroDivisionError

    config = core.BackendPatternConfig((nn.Conv2d, nn.BatchNorm2d), fuser_method=failing)
    register("failing", plugin_of(config))
    image = torch.zeros(1, 3, 8, 8)
    found = core.coverage(small, example_inputs=image)
    assert "fuser method" in found["failing"].problem
    assert found["fbgemm"].quantized_operations == 4
    with pytest.raises(core.errors.FuseError):
        core.coverage(small, "failing", example_inputs=image)


def test_a_model_in_training_mode_is_refused():
    with pytest.raises(TrainingModeError):
        core.coverage(nn.Sequential(nn.ReLU()), "fbgemm", example_inputs=torch.zeros(2))


def test_it_prints_shares_and_reasons_and_is_ready_for_json(small):
    found = core.coverage(small, "fbgemm", example_inputs=torch.zeros(1, 3, 8, 8))
    text = words(found.text(160))
    assert "Coverage of Small" in text
    assert "fbgemm 66.6 % 4 of 6 100 % 3.9 k of 3.9 k" in text
    assert "1 SiLU silu no pattern of fbgemm matches SiLU here" in text
    shown = json.loads(json.dumps(found.to_dict()))
    (backend,) = shown["backends"]
    assert backend["left_in_float"][0]["status"] == "float"
    assert backend["plugins"][0]["distribution"] == "fusion-backend-fbgemm"
