from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import fusion_core as core

WIDTH, HEADS = 8, 2
X = torch.randn(2, 5, WIDTH)
MEMORY = torch.randn(2, 4, WIDTH)
CAUSAL = nn.Transformer.generate_square_subsequent_mask(5)
PADDING = torch.tensor([[False] * 4, [False] * 3 + [True]])


class SelfAttention(nn.Module):
    """Attention as user code calls it."""

    def __init__(self, kind=nn.MultiheadAttention, **options) -> None:
        super().__init__()
        self.attn = kind(WIDTH, HEADS, batch_first=True, **options)

    def forward(self, x):
        return self.attn(x, x, x)[0]


class Layer(nn.TransformerEncoderLayer):
    """A subclass whose forward chooses between the kernels of torch."""

    def forward(self, src, *arguments, **options):
        return super().forward(src, *arguments, **options)


class Traced(nn.MultiheadAttention):
    """A subclass with a forward of its own."""

    def forward(self, query, key, value, **options):
        return super().forward(query, key, value, **options)


def linear_layers(traced):
    """Paths of the linear layers that are called."""
    modules = dict(traced.named_modules())
    return [
        node.target
        for node in traced.graph.nodes
        if node.op == "call_module" and type(modules[node.target]) is nn.Linear
    ]


def encoder(**options):
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 16, **{"batch_first": True, **options})
    nested = options.get("activation") == "gelu"  # torch warns where it cannot use them
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=nested).eval()


def decoder(**options):
    layer = nn.TransformerDecoderLayer(WIDTH, HEADS, 16, batch_first=True, **options)
    return nn.TransformerDecoder(layer, 2, norm=nn.LayerNorm(WIDTH)).eval()


def close(traced, model, *arguments, **options):
    with torch.no_grad():
        want, have = model(*arguments, **options), traced(*arguments, **options)
    torch.testing.assert_close(have, want, rtol=1e-5, atol=1e-6)


def test_projections_are_linear_layers_under_names_that_say_which():
    model = SelfAttention().eval()
    traced = core.trace(model, X)

    assert linear_layers(traced) == [f"attn.{each}_proj" for each in ("q", "k", "v", "out")]
    close(traced, model, X)


def test_the_model_of_the_user_keeps_its_modules_and_parameters():
    model = SelfAttention().eval()
    before = copy.deepcopy(model.state_dict())
    core.trace(model, X)

    assert type(model.attn) is nn.MultiheadAttention
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize(
    "options",
    [{}, {"norm_first": True}, {"bias": False}, {"activation": "gelu"}, {"batch_first": False}],
    ids=str,
)
def test_an_encoder_has_six_linear_layers_in_each_layer_and_the_same_results(options):
    model = encoder(**options)
    traced = core.trace(model, X)

    names = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.out_proj")
    assert linear_layers(traced) == [
        f"layers.{index}.{name}" for index in range(2) for name in (*names, "linear1", "linear2")
    ]
    close(traced, model, X)


def test_an_encoder_takes_masks_as_inputs():
    model = encoder()
    example = {"src": X, "mask": CAUSAL, "src_key_padding_mask": torch.zeros(2, 5)}
    traced = core.trace(model, example)

    close(traced, model, **example)


def test_padding_is_left_out_of_what_other_positions_attend_to():
    model = encoder()
    padding = torch.zeros(2, 5, dtype=torch.bool)
    padding[0, 3:] = True
    traced = core.trace(model, {"src": X, "src_key_padding_mask": padding})
    # With gradients torch keeps to its ordinary path; the other one gives zeros where padding is.
    want = model(X, src_key_padding_mask=padding)
    have = traced(X, src_key_padding_mask=padding)

    torch.testing.assert_close(have[~padding], want[~padding], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("options", [{}, {"norm_first": True}], ids=str)
def test_a_decoder_attends_to_itself_and_to_memory(options):
    model = decoder(**options)
    example = {
        "tgt": X,
        "memory": MEMORY,
        "tgt_mask": CAUSAL,
        "memory_key_padding_mask": PADDING,
    }
    traced = core.trace(model, example)

    assert len(linear_layers(traced)) == 2 * 10
    assert "layers.1.multihead_attn.k_proj" in linear_layers(traced)
    close(traced, model, **example)


def test_a_whole_transformer_is_opened():
    model = nn.Transformer(WIDTH, HEADS, 1, 1, 16, batch_first=True).eval()
    traced = core.trace(model, (MEMORY, X))

    assert len(linear_layers(traced)) == 6 + 10
    close(traced, model, MEMORY, X)


def test_the_traced_attention_takes_other_batches_and_lengths():
    traced = core.trace(encoder(), X)

    assert traced(torch.randn(3, 9, WIDTH)).shape == (3, 9, WIDTH)


def test_a_subclass_is_left_alone_and_the_ledger_says_why(ledger):
    model = SelfAttention(Traced).eval()
    traced = core.trace(model, X)

    assert not linear_layers(traced)
    assert ledger(traced)["attn"].reason.startswith("kept whole: cannot be traced")
    close(traced, model, X)


def test_attention_with_hooks_is_left_alone_and_the_ledger_says_why(ledger):
    model = SelfAttention().eval()
    model.attn.register_forward_hook(lambda _module, _inputs, output: (output[0] * 2, None))
    traced = core.trace(model, X)

    assert not linear_layers(traced)
    assert ledger(traced)["attn"].reason.startswith("kept whole: forward hooks on it")
    close(traced, model, X)


def test_a_hooked_encoder_still_runs_on_the_layers_that_changed_under_it():
    model = nn.Sequential(encoder()).eval()
    model[0].register_forward_hook(lambda _module, _inputs, output: output * 2)
    traced = core.trace(model, X)

    close(traced, model, X)


def test_attention_that_a_pattern_of_the_backend_names_is_called_whole(backend, ops):
    toy = backend(core.BackendPatternConfig(nn.MultiheadAttention))
    traced = core.trace(SelfAttention().eval(), X, backend=toy)

    assert ops(traced) == ["MultiheadAttention", "getitem"]


def test_attention_in_two_places_is_one_module_still():
    shared = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one = self.other = shared

        def forward(self, x):
            x = self.one(x, x, x)[0]
            return self.other(x, x, x)[0]

    model = Twice().eval()
    traced = core.trace(model, X)
    weights = {
        traced.get_submodule(path).weight.data_ptr()
        for path in linear_layers(traced)
        if "q_proj" in path
    }

    assert len(linear_layers(traced)) == 8
    assert len(weights) == 1
    close(traced, model, X)


def test_self_attention_reads_one_quantized_input():
    model = SelfAttention().eval()
    reference = core.quantize(
        model, "fbgemm", calibration=[X], reference=True, adaptive_rounding=False
    )
    quantizes = [
        node
        for node in reference.graph.nodes
        if node.target is core.qops.quantize_per_tensor and node.args[0].op == "placeholder"
    ]

    assert len(quantizes) == 1


def test_a_projection_can_be_named_in_a_qconfig_mapping(ledger):
    mapping = core.QConfigMapping(
        global_qconfig=core.catalog.static_qconfig(weight_min=-64, weight_max=63)
    ).set_module_name("attn.k_proj", None)
    quantized = core.quantize(
        SelfAttention().eval(),
        "fbgemm",
        calibration=[X],
        qconfig_mapping=mapping,
        adaptive_rounding=False,
    )
    statuses = {entry.path: entry.status for entry in ledger(quantized) if "proj" in entry.path}

    assert statuses.pop("attn.k_proj") is core.Status.FLOAT
    assert set(statuses.values()) == {core.Status.INT8}


def test_attention_can_be_left_in_float_by_the_type_that_the_user_knows(ledger):
    mapping = core.QConfigMapping(
        global_qconfig=core.catalog.static_qconfig(weight_min=-64, weight_max=63)
    ).set_object_type(nn.MultiheadAttention, None)
    quantized = core.quantize(
        nn.Sequential(nn.Linear(WIDTH, WIDTH), SelfAttention()).eval(),
        "fbgemm",
        calibration=[X],
        qconfig_mapping=mapping,
        adaptive_rounding=False,
    )
    statuses = {entry.path: entry.status for entry in ledger(quantized) if entry.macs}

    assert statuses.pop("0") is core.Status.INT8
    assert set(statuses.values()) == {core.Status.FLOAT}


def test_attention_in_a_layer_that_runs_as_python_is_quantized_on_its_own():
    layer = Layer(WIDTH, HEADS, 16, batch_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    quantized = core.quantize(model, "fbgemm", calibration=[X], adaptive_rounding=False)
    ledger = core.report(quantized).ledger
    projections = {each.path: each.status for each in ledger if "proj" in each.path}

    assert len(projections) == 2 * 4
    assert set(projections.values()) == {core.Status.INT8}
    with torch.no_grad():
        assert (quantized(X) - model(X)).abs().mean() < 0.05
