"""Forwards that write to memory: what a graph of values does not show is kept, or stays Python with a reason."""

from __future__ import annotations

import copy
import math
import pickle

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

import fusion_core as core
from fusion_core.nn.fake_quantize import is_fake_quantize

ROUGH = {"adaptive_rounding": False, "bias_correction": False}


class Net(nn.Module):
    """Two convolutions and a forward given as a function of the net and the input."""

    def __init__(self, forward) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 4, 1), nn.Conv2d(4, 4, 1)
        self.function = forward

    def forward(self, x):
        return self.function(self, x)


def _added(m, x):
    y = m.a(x)
    other = y
    y += F.relu(y)
    return m.b(y) + other  # other is y, and so has the sum


def _scaled(m, x):
    y = m.a(x)
    other = y
    y *= 3
    y -= 1
    return m.b(other)


def _counted(m, x):
    size = x.shape[2]
    half = size
    half //= 2
    return m.a(x)[:, :, :half] + m.a(x)[:, :, size - half : size]


def _copied(m, x):
    y = m.a(x)
    y.copy_(x[:, :1].expand(-1, 4, -1, -1))
    return m.b(y)


def _emptied(m, x):
    y = m.a(x)
    y.zero_()
    return m.b(y) + m.b(m.a(x))


def _filled(m, x):
    y = m.a(x)
    y.fill_(3.0)
    return m.b(y)


def _assigned(m, x):
    out = torch.zeros(2, 4, 10, 10)
    out[:, :2] = m.a(x)[:, :2]
    out[:, 2:] = m.a(x)[:, 2:] * 2
    return m.b(out)


def _given_out(m, x):
    y = m.a(x)
    z = torch.empty_like(y)
    torch.add(y, 1, out=z)
    return m.b(z)


def _item_added(m, x):
    y = m.a(x).clone()
    y[:, 0] += 1
    return m.b(y)


def _without_gradient(m, x):
    y = m.a(x)
    y.requires_grad_(False)  # noqa: FBT003  torch's own
    return m.b(y)


WRITES = {
    "+=": _added,
    "*=": _scaled,
    "//= on a number": _counted,
    "copy_": _copied,
    "zero_": _emptied,
    "fill_": _filled,
    "[]=": _assigned,
    "out=": _given_out,
    "[] +=": _item_added,
    "requires_grad_": _without_gradient,
}


# pytorch/pytorch#4250, ModelTC/MQBench#193
@pytest.mark.parametrize("forward", WRITES.values(), ids=WRITES)
def test_what_a_forward_writes_is_in_the_result(quantized, images, forward):
    outcome = quantized(Net(forward), images(count=3), **ROUGH)

    lines = core.report(outcome.lowered).ledger
    assert {e.status for e in lines if e.operation == "Conv2d"} == {core.Status.INT8}
    assert outcome.sqnr > 28
    assert outcome.steps_apart() <= 1.001


def test_a_sum_in_place_of_a_view_that_is_read_later_is_refused(images):
    def forward(m, x):
        y = m.a(x)
        first = y[:, 0]
        first += 1
        return m.b(y)

    with pytest.raises(core.errors.UnsupportedModelError, match="changes getitem in place"):
        core.quantize(Net(forward).eval(), "fbgemm", calibration=images())


class Remembering(nn.Module):
    """Adds what it was given last."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 1)
        self.register_buffer("last", torch.zeros(2, 3, 10, 10))
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x):
        self.calls += 1
        y = self.conv(x) + self.last
        self.last.copy_(x)
        return y


def test_a_memory_works_and_begins_as_in_the_users_model(images):
    data = images(count=3)
    model = nn.Sequential(nn.Conv2d(3, 3, 1), Remembering(), nn.Conv2d(3, 3, 1)).eval()
    quantized = core.quantize(model, "fbgemm", calibration=data)
    own = copy.deepcopy(model)
    entry = next(e for e in core.report(quantized).ledger if e.operation == "Remembering")

    assert "its forward writes to memory" in entry.reason
    assert float(model[1].calls) == float(quantized.state_dict()["1.calls"]) == 0
    with torch.no_grad():
        for x in data:
            want, have = own(x), quantized(x)
            assert (want - have).square().sum() < 1e-3 * want.square().sum()
    assert float(quantized.state_dict()["1.calls"]) == 3


class Optional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 4, 1), nn.Conv2d(3, 4, 1)

    def forward(self, x, y=None):
        return self.a(x) if y is None else self.a(x) + self.b(y)


def test_none_among_the_inputs_is_a_constant_of_the_graph(images):
    data = images(count=2)
    quantized = core.quantize(
        Optional().eval(), "fbgemm", calibration=[(x, None) for x in data], **ROUGH
    )
    again = pickle.loads(pickle.dumps(quantized))  # noqa: S301  our own

    assert torch.equal(again(data[0], None), quantized(data[0], None))
    with pytest.raises(ValueError, match="y has been specialized to have value None"):
        again(data[0], data[1])


def test_unpickling_a_constant_input_does_not_stop_later_models_from_being_traced(images):
    data = [(x, None) for x in images(count=2)]
    quantized = core.quantize(Optional().eval(), "fbgemm", calibration=data, **ROUGH)
    pickle.loads(pickle.dumps(quantized))  # noqa: S301  our own
    other = core.quantize(Optional().eval(), "fbgemm", calibration=data, **ROUGH)

    assert [entry.operation for entry in core.report(other).ledger] == ["Conv2d"]


class Packed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 1)

    def forward(self, **inputs):
        return self.conv(inputs["x"])


def test_inputs_without_names_are_refused_in_words(images):
    with pytest.raises(core.errors.ModelStateError, match=r"takes x by \*\*inputs"):
        core.quantize(Packed().eval(), "fbgemm", calibration=[{"x": x} for x in images()])


class OfLengths(nn.Module):
    """A recurrent layer on sequences of several lengths."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(8, 6, batch_first=True)

    def forward(self, x, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(
            x, lengths, batch_first=True, enforce_sorted=False
        )
        return nn.utils.rnn.pad_packed_sequence(self.lstm(packed)[0], batch_first=True)[0]


# pytorch/pytorch#51216
def test_a_recurrent_layer_that_is_a_part_can_be_pickled():
    inputs = torch.randn(3, 5, 8), torch.tensor([5, 2, 4])
    quantized = core.quantize(OfLengths().eval(), "fbgemm", mode="dynamic", example_inputs=inputs)
    again = pickle.loads(pickle.dumps(quantized))  # noqa: S301  our own

    assert torch.equal(again(*inputs), quantized(*inputs))


class Branching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())

    def forward(self, x):
        return self.inner(x if x.sum() > -1e9 else -x)


# pytorch/pytorch#108639, of a part
def test_a_part_keeps_the_ranges_of_its_weights_that_were_trained(images):
    data = images(4, 3, 8, 8)
    traced = core.trace(Branching(), data[0], backend="fbgemm", qat=True)
    trained = core.prepare(core.fuse(traced, "fbgemm", qat=True), qat=True)
    trained.train()
    for x in data:
        trained(x).sum().backward()
    trained.eval()
    with torch.no_grad():
        want, have = trained(data[0]), core.convert(trained)(data[0])

    assert any(map(is_fake_quantize, trained.modules()))
    assert torch.equal(want, have)


def _attention(_m, scores):
    mask = torch.triu(torch.ones(5, 5, dtype=torch.bool), 1)
    return torch.softmax(scores.masked_fill(mask, -math.inf), -1)


def _added_mask(m, scores):
    return torch.softmax(scores + m.mask, -1)


def _padded_with_nothing(_m, scores):
    return F.max_pool2d(F.pad(scores, (1, 1, 1, 1), value=-math.inf), 3, 1)


class Masked(nn.Module):
    def __init__(self, function) -> None:
        super().__init__()
        self.before, self.after = nn.Linear(5, 5), nn.Linear(5, 5)
        self.register_buffer("mask", torch.triu(torch.full((5, 5), -math.inf), 1))
        self.function = function

    def forward(self, x):
        return self.after(self.function(self, self.before(x)))


# pytorch/pytorch#100051, pytorch/pytorch#103467
@pytest.mark.parametrize("function", [_attention, _added_mask, _padded_with_nothing])
@pytest.mark.parametrize("qconfig", [None, "min_max"])
def test_a_mask_of_infinity_stays_in_float_and_the_rest_is_quantized(
    quantized, images, function, qconfig
):
    mapping = core.get_backend("fbgemm").qconfig_mapping
    mapping.object_type_qconfigs = {}  # softmax in integers as well
    options = {"qconfig": qconfig} if qconfig else {"qconfig_mapping": mapping}
    outcome = quantized(Masked(function), images(2, 5, 5, count=3), **options)

    assert outcome.status("Linear") == {core.Status.INT8}
    assert outcome.sqnr > 25
