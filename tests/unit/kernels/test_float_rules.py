"""Layers that take and give float, in kernels: recurrent ones, embeddings, weights in float16."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

import fusion_core as core

MODES = [
    ("fbgemm", "dynamic"),
    ("fbgemm", "float16"),
    pytest.param("qnnpack", "dynamic", marks=pytest.mark.slow),
]
ROW_MODES = ["weight_only", "weight_only_4bit"]
PART = 1e-2
"""Of the output's largest value. Where a sum falls to another code in one of 15 steps, that goes on."""


class Calls(nn.Module):
    """A layer, called as ``call(layer, x)`` says."""

    def __init__(self, layer, call) -> None:
        super().__init__()
        self.layer, self.call = layer, call

    def forward(self, x):
        return self.call(self.layer, x)


def both(layer, call, x, backend, mode):
    """The reference model and the lowered one, and the line of the ledger on the layer."""
    torch.manual_seed(0)
    mapping = core.get_backend(backend).qconfig_mappings[mode]
    reference = core.quantize(
        Calls(layer, call).eval(),
        backend,
        example_inputs=(x,),
        qconfig_mapping=mapping,
        reference=True,
    )
    lowered = core.lower(reference)
    (line,) = [each for each in core.report(lowered).ledger if each.path.startswith("layer")]
    return reference, lowered, line


def tensors(value):
    return (
        [value] if isinstance(value, torch.Tensor) else [t for each in value for t in tensors(each)]
    )


def assert_alike(reference, lowered, x):
    with torch.no_grad():
        pairs = list(zip(tensors(reference(x)), tensors(lowered(x)), strict=True))
    for one, other in pairs:
        assert one.shape == other.shape
        assert one.dtype == other.dtype
        largest = float(one.abs().max()) if one.numel() else 0.0
        assert torch.allclose(one, other, rtol=0, atol=PART * largest + 1e-6)


def whole(layer, x):
    return layer(x)


def states(x, levels, count):
    one = x[:1, :, :6].expand(levels, -1, -1) * 0.5
    return (one, 2 * one) if count > 1 else one


LAYERS = {
    "plain": {},
    "levels": {"num_layers": 2, "dropout": 0.5},
    "both ways, batch first": {"num_layers": 2, "bidirectional": True, "batch_first": True},
    "no bias": {"bias": False},
}


@pytest.mark.parametrize(("backend", "mode"), MODES)
@pytest.mark.parametrize("options", LAYERS.values(), ids=LAYERS)
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_a_recurrent_layer_gives_what_its_reference_gives(kind, options, backend, mode):
    torch.manual_seed(0)
    x = torch.randn(5, 3, 8)
    reference, lowered, line = both(kind(8, 6, **options), whole, x, backend, mode)

    assert line.status in {core.Status.INT8, core.Status.FLOAT16}
    for each in (x, 3 * x, torch.zeros_like(x), x[:, :2], torch.cat([x, x])):
        assert_alike(reference, lowered, each)


@pytest.mark.parametrize(("backend", "mode"), MODES)
@pytest.mark.parametrize(
    ("kind", "call"),
    [
        (nn.LSTM, lambda layer, x: layer(x, states(x, 1, 2))),
        (nn.LSTM, lambda layer, x: layer(input=x, hx=states(x, 1, 2))),
        (nn.LSTM, lambda layer, x: layer(x[:, 0])),
        (nn.GRU, lambda layer, x: layer(x, hx=states(x, 1, 1))),
        (nn.GRU, lambda layer, x: layer(x, None)),
        (nn.GRU, lambda layer, x: layer(x[:, 0], states(x, 1, 1)[:, 0])),
        (nn.LSTMCell, lambda layer, x: layer(x[0])),
        (nn.LSTMCell, lambda layer, x: layer(x[0], hx=(x[1, :, :6], x[2, :, :6]))),
        (nn.LSTMCell, lambda layer, x: layer(x[0, 0], (x[1, 0, :6], x[2, 0, :6]))),
        (nn.GRUCell, lambda layer, x: layer(input=x[0], hx=x[1, :, :6])),
        (nn.GRUCell, lambda layer, x: layer(x[0, 0])),
        (nn.RNNCell, lambda layer, x: layer(x[0], x[1, :, :6])),
        (nn.RNNCell, lambda layer, x: layer(x[0, 0], hx=x[1, 0, :6])),
    ],
)
def test_states_may_be_given_in_every_way(kind, call, backend, mode):
    torch.manual_seed(0)
    x = torch.randn(5, 3, 8)
    reference, lowered, line = both(kind(8, 6), call, x, backend, mode)

    assert line.status in {core.Status.INT8, core.Status.FLOAT16}
    assert_alike(reference, lowered, x)


@pytest.mark.filterwarnings("ignore:LSTM with projections")
@pytest.mark.parametrize(("backend", "mode"), MODES)
def test_projected_states_keep_the_reference_form_with_the_reason(backend, mode):
    x = torch.randn(5, 3, 8)
    reference, lowered, line = both(nn.LSTM(8, 6, proj_size=3), whole, x, backend, mode)

    assert line.status is core.Status.REFERENCE
    assert "does not project states to a smaller size" in line.reason
    assert_alike(reference, lowered, x)


def packed(layer, x):
    sequence = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([5, 3, 2]))
    output, state = layer(sequence)
    return nn.utils.rnn.pad_packed_sequence(output)[0], state


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_a_layer_on_a_packed_sequence_stays_float_with_the_reason(kind):
    torch.manual_seed(0)
    layer, x = kind(8, 6).eval(), torch.randn(5, 3, 8)
    _, lowered, line = both(layer, packed, x, "fbgemm", "dynamic")

    assert (line.status, bool(line.reason)) == (core.Status.FLOAT, True)
    for one, other in zip(tensors(packed(layer, x)), tensors(lowered(x)), strict=True):
        assert torch.equal(one, other)


OFFSETS = torch.tensor([0, 2, 2, 5])
ENDS = torch.tensor([0, 2, 2, 5, 8])
BAGS = {
    "one size": (lambda layer, x: layer(x.view(4, 2)), {}),
    "offsets": (lambda layer, x: layer(x, OFFSETS), {}),
    "offsets by name": (lambda layer, x: layer(input=x, offsets=OFFSETS), {}),
    "ends": (lambda layer, x: layer(x, ENDS), {"include_last_offset": True}),
    "one size, ends": (lambda layer, x: layer(x.view(4, 2)), {"include_last_offset": True}),
}


@pytest.mark.parametrize("mode", ROW_MODES)
@pytest.mark.parametrize("summed", ["sum", "mean"])
@pytest.mark.parametrize(("call", "options"), BAGS.values(), ids=BAGS)
def test_a_bag_gives_what_its_reference_gives(call, options, summed, mode):
    torch.manual_seed(0)
    x = torch.randint(10, (8,))
    layer = nn.EmbeddingBag(10, 7, mode=summed, **options)
    reference, lowered, line = both(layer, call, x, "fbgemm", mode)

    assert line.status is core.Status.INT8
    assert_alike(reference, lowered, x)


@pytest.mark.parametrize("padding", [None, 3, -1])
def test_rows_may_be_weighed_and_padding_adds_nothing(padding):
    torch.manual_seed(0)
    x, weights = torch.tensor([[3, 1], [9, 9], [2, 3]]), torch.rand(3, 2)
    layer = nn.EmbeddingBag(10, 8, mode="sum", padding_idx=padding)
    reference, lowered, line = both(
        layer, lambda layer, x: layer(x, per_sample_weights=weights), x, "fbgemm", "weight_only"
    )

    assert line.status is core.Status.INT8
    assert_alike(reference, lowered, x)


@pytest.mark.parametrize(
    ("layer", "problem"),
    [
        (nn.EmbeddingBag(10, 8, mode="max"), "gives sums, not the largest value"),
        (nn.EmbeddingBag(10, 8, padding_idx=2), "counts rows of padding"),
        (nn.EmbeddingBag(10, 8, max_norm=1.0), "does not shorten rows to max_norm"),
        (nn.Embedding(10, 8, max_norm=1.0), "does not shorten rows to max_norm"),
    ],
)
@pytest.mark.parametrize("mode", ROW_MODES)
def test_what_rows_of_codes_do_not_give_keeps_the_reference_form(layer, problem, mode):
    x = torch.randint(10, (4, 3))
    reference, lowered, line = both(layer, whole, x, "fbgemm", mode)

    assert line.status is core.Status.REFERENCE
    assert problem in line.reason
    assert_alike(reference, lowered, x)


def test_offsets_that_end_elsewhere_are_refused_with_what_they_should_be():
    layer = nn.EmbeddingBag(10, 8, include_last_offset=True)
    x = torch.randint(10, (5,))
    _, lowered, _ = both(layer, lambda layer, x: layer(x, OFFSETS), x, "fbgemm", "weight_only")

    assert lowered(x).shape == (3, 8)
    with pytest.raises(ValueError, match="end with the number of indices, 8; these end with"):
        lowered(torch.randint(10, (8,)))


class Rows(nn.Module):
    """Rows of a parameter, looked up by the function."""

    def __init__(self, **options) -> None:
        super().__init__()
        self.table, self.options = nn.Parameter(torch.randn(10, 8)), options

    def forward(self, ids):
        return functional.embedding(ids, self.table, **self.options)


@pytest.mark.parametrize("mode", ROW_MODES)
@pytest.mark.parametrize("options", [{}, {"padding_idx": 2}, {"sparse": True}], ids=str)
def test_the_function_that_looks_rows_up_is_the_module(options, mode):
    ids = torch.randint(10, (4, 3))
    mapping = core.get_backend("fbgemm").qconfig_mappings[mode]
    model = Rows(**options).eval()
    lowered = core.quantize(model, "fbgemm", example_inputs=(ids,), qconfig_mapping=mapping)
    (line,) = core.report(lowered).ledger

    assert line.status is core.Status.INT8
    steps = 255 if mode == "weight_only" else 15
    assert (lowered(ids) - model(ids)).abs().max() <= 0.6 * 6 / steps


def test_the_function_that_shortens_rows_stays_float():
    ids = torch.randint(10, (4, 3))
    mapping = core.get_backend("fbgemm").qconfig_mappings["weight_only"]
    quantized = core.quantize(
        Rows(max_norm=0.5).eval(), "fbgemm", example_inputs=(ids,), qconfig_mapping=mapping
    )
    (line,) = core.report(quantized).ledger

    assert (line.status, bool(line.reason)) == (core.Status.FLOAT, True)
