from __future__ import annotations

import itertools

import pytest
import torch
import torch.fx
from torch import nn

from fusion_core.nn.attention import MultiheadAttention

ROWS, KEYS, BATCH, HEADS, WIDTH = 3, 5, 2, 4, 8

CONSTRUCTORS = {
    "plain": {},
    "no bias": {"bias": False},
    "keys and values of other widths": {"kdim": 6, "vdim": 10},
    "widths and no bias": {"kdim": 6, "vdim": 10, "bias": False},
    "added key": {"add_bias_kv": True},
    "added zeros": {"add_zero_attn": True},
    "all that can be added": {"add_bias_kv": True, "add_zero_attn": True, "kdim": 6},
}
ATTN_MASKS = {
    "none": lambda _: None,
    "bool": lambda _: torch.ones(ROWS, KEYS).triu(1).bool(),
    "float": lambda _: torch.randn(ROWS, KEYS),
    "bool per head": lambda batched: (
        torch.rand((BATCH if batched else 1) * HEADS, ROWS, KEYS) > 0.7
    ),
}
PADDINGS = {
    "none": lambda _: None,
    "bool": lambda batched: _padding(batched).bool(),
    "float": lambda batched: _padding(batched) * -3.0,
}


def _padding(batched):
    padding = torch.zeros(BATCH, KEYS)
    padding[1, -1] = 1
    return padding if batched else padding[1]


def attention(**options):
    made = nn.MultiheadAttention(WIDTH, HEADS, **options).eval()
    for parameter in made.parameters():
        nn.init.normal_(parameter, std=0.5)
    return made


def inputs(module, *, batched=True):
    def sequence(length, width):
        shape = (BATCH, length) if module.batch_first else (length, BATCH)
        return torch.randn(*(shape if batched else (length,)), width)

    return sequence(ROWS, WIDTH), sequence(KEYS, module.kdim), sequence(KEYS, module.vdim)


def same(theirs, *arguments, **options):
    """Whether ours gives both results of ``theirs``."""
    for want, have in zip(
        theirs(*arguments, **options),
        MultiheadAttention(theirs)(*arguments, **options),
        strict=True,
    ):
        assert (want is None) == (have is None)
        if want is not None:
            torch.testing.assert_close(have, want, rtol=1e-5, atol=1e-6, equal_nan=True)


@pytest.mark.parametrize("options", CONSTRUCTORS.values(), ids=CONSTRUCTORS)
@pytest.mark.parametrize("batched", [True, False], ids=["batched", "one"])
def test_every_way_to_build_and_to_call_it_gives_what_torch_gives(options, batched):
    for batch_first, mask, padding, weights in itertools.product(
        (True, False), ATTN_MASKS.values(), PADDINGS.values(), (True, False)
    ):
        module = attention(batch_first=batch_first, **options)
        arguments = inputs(module, batched=batched)
        # torch warns that it will once refuse masks of two dtypes.
        given, padded = mask(batched), padding(batched)
        if given is not None and padded is not None and given.dtype != padded.dtype:
            continue
        same(module, *arguments, key_padding_mask=padded, attn_mask=given, need_weights=weights)


def test_weights_are_given_for_every_head_if_asked_for():
    module = attention(batch_first=True)

    same(module, *inputs(module), average_attn_weights=False)
    assert MultiheadAttention(module)(*inputs(module), average_attn_weights=False)[1].dim() == 4


def test_self_attention_is_what_the_fused_kernel_of_torch_gives():
    module = attention(batch_first=True)
    x = torch.randn(BATCH, ROWS, WIDTH)

    with torch.no_grad():
        same(module, x, x, x, need_weights=False)


def test_the_causal_hint_needs_the_mask_and_changes_nothing_then():
    module = attention()
    x = torch.randn(ROWS, BATCH, WIDTH)
    causal = nn.Transformer.generate_square_subsequent_mask(ROWS)

    same(module, x, x, x, attn_mask=causal, is_causal=True, need_weights=False)
    with pytest.raises(RuntimeError, match="Need attn_mask"):
        MultiheadAttention(module)(x, x, x, is_causal=True)


def test_dropout_on_the_weights_is_a_module_that_training_switches():
    module = attention(dropout=0.5, batch_first=True).train()
    ours, x = MultiheadAttention(module), torch.randn(BATCH, ROWS, WIDTH)

    assert not torch.equal(ours(x, x, x)[0], ours(x, x, x)[0])
    assert not torch.equal(
        ours(x, x, x, need_weights=False)[0], ours(x, x, x, need_weights=False)[0]
    )
    torch.testing.assert_close(ours.eval()(x, x, x)[0], module.eval()(x, x, x)[0])


@pytest.mark.parametrize("weights", [True, False])
def test_a_graph_traced_in_training_is_switched_like_the_module(weights):
    module = attention(dropout=0.5, batch_first=True).train()
    x = torch.randn(BATCH, ROWS, WIDTH)
    traced = torch.fx.symbolic_trace(
        MultiheadAttention(module),
        {
            "key_padding_mask": None,
            "need_weights": weights,
            "attn_mask": None,
            "average_attn_weights": True,
            "is_causal": False,
        },
    )
    arguments = (x, x, x, None, weights, None, True, False)

    assert not torch.equal(traced(*arguments)[0], traced(*arguments)[0])
    have, want = traced.eval()(*arguments)[0], module.eval()(x, x, x, need_weights=weights)[0]
    torch.testing.assert_close(have, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("options", CONSTRUCTORS.values(), ids=CONSTRUCTORS)
def test_code_that_reads_the_packed_parameters_still_finds_them(options):
    module = attention(**options)
    ours = MultiheadAttention(module)

    for name in ("in_proj_weight", "in_proj_bias"):
        want, have = getattr(module, name), getattr(ours, name)
        assert (want is None and have is None) or torch.equal(want, have)


def test_the_parameters_of_the_original_are_not_shared():
    module = attention()
    before = module.in_proj_weight.clone()
    with torch.no_grad():
        MultiheadAttention(module).q_proj.weight.zero_()

    assert torch.equal(module.in_proj_weight, before)
