from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import fusion_core as core
from fusion_core.nn.windows import WindowAttention
from fusion_core.passes.attention import open_attention

swin = pytest.importorskip("torchvision.models.swin_transformer")

WIDTH, HEADS = 12, 3
VERSIONS = (swin.ShiftedWindowAttention, swin.ShiftedWindowAttentionV2)
PLACES = {
    "shifted": ((4, 4), (2, 2), (8, 8)),
    "not shifted": ((4, 4), (0, 0), (8, 12)),
    "padded": ((4, 3), (2, 1), (7, 10)),
    "one window": ((7, 7), (3, 3), (5, 5)),
    "one window high": ((4, 4), (2, 2), (3, 9)),
    "one window wide": ((4, 4), (2, 2), (9, 3)),
}


def attention(kind, window, shift, **options):
    made = kind(WIDTH, list(window), list(shift), HEADS, **options).eval()
    for parameter in made.parameters():
        nn.init.normal_(parameter, std=0.5)
    return made


@pytest.mark.parametrize("kind", VERSIONS)
@pytest.mark.parametrize(("window", "shift", "size"), PLACES.values(), ids=PLACES)
def test_windows_give_what_torchvision_gives(kind, window, shift, size):
    module, image = attention(kind, window, shift), torch.randn(2, *size, WIDTH)
    with torch.no_grad():
        want, have = module(image), WindowAttention(copy.deepcopy(module))(image)

    torch.testing.assert_close(have, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", VERSIONS)
def test_one_traced_model_takes_images_that_need_other_padding_and_shifts(kind):
    module = attention(kind, (4, 4), (2, 2))
    traced = core.trace(nn.Sequential(module).eval(), torch.randn(1, 8, 8, WIDTH))
    modules = [
        type(traced.get_submodule(node.target))
        for node in traced.graph.nodes
        if node.op == "call_module"
    ]

    assert modules == [nn.Linear, nn.Linear]
    for size in ((8, 8), (5, 9), (3, 3)):
        image = torch.randn(1, *size, WIDTH)
        with torch.no_grad():
            torch.testing.assert_close(traced(image), module(image), rtol=1e-4, atol=1e-5)


def test_a_bias_on_the_keys_that_quantization_brings_does_not_reach_the_padding():
    module, image = attention(VERSIONS[1], (4, 4), (2, 2)), torch.randn(1, 5, 5, WIDTH)
    ours = WindowAttention(copy.deepcopy(module))
    with torch.no_grad():
        want = ours(image)
        ours.qkv.bias.chunk(3)[1].add_(1e-5)

        torch.testing.assert_close(ours(image), want, rtol=1e-3, atol=1e-3)


def test_the_second_version_is_left_to_torchvision_in_training():
    for kind, stays in zip(VERSIONS, (False, True), strict=True):
        model = nn.Sequential(attention(kind, (4, 4), (2, 2))).train()
        assert (type(open_attention(model, ())[0][0]) is kind) is stays


def test_a_qconfig_for_the_type_that_the_user_knows_reaches_the_layers_in_it():
    kind = swin.ShiftedWindowAttention
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), attention(kind, (4, 4), (2, 2))).eval()
    mapping = core.get_backend("fbgemm").qconfig_mapping.model_copy(deep=True)
    images = [torch.randn(1, 8, 8, WIDTH)]
    quantized = core.quantize(
        model,
        "fbgemm",
        calibration=images,
        qconfig_mapping=mapping.set_object_type(kind, None),
        adaptive_rounding=False,
    )
    statuses = [each.status for each in core.report(quantized).ledger if each.macs]

    assert statuses == [core.Status.INT8, *[core.Status.FLOAT] * 3]
