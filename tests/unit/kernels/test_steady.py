"""Operations without a weight give the same whichever engine is selected, and what their namesakes give."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  the name everyone knows it by

from fusion_core.kernels import steady

ENGINES = torch.backends.quantized.supported_engines

IMAGES = {
    "max_pool2d": ((3, 2, 1), {"ceil_mode": True}),
    "avg_pool2d": ((2,), {}),
    "mean": (((2, 3),), {"keepdim": True}),
    "adaptive_avg_pool2d": (((3, 1),), {}),
}
ROWS = {
    "max_pool1d": ((2, 1), {}),
    "avg_pool1d": ((3, 2, 1), {"count_include_pad": False}),
    "adaptive_avg_pool1d": ((4,), {}),
}
MORE = {
    "max_pool2d": [((1, 2), {}), (((2, 1), 1, 0, 2), {})],
    "avg_pool2d": [
        ((1, 2), {}),
        ((3, 2, 1, True, False), {}),
        ((2,), {"divisor_override": 3}),
        (((3, 2), [], [1, 0]), {}),
    ],
    "mean": [((), {}), ((1,), {}), ((-1, True), {}), (([0, 2],), {})],
    "adaptive_avg_pool2d": [(((None, 5),), {}), ((1,), {})],
}


@pytest.fixture(params=ENGINES)
def engine(request):
    """Each engine, selected in turn."""
    before = torch.backends.quantized.engine
    torch.backends.quantized.engine = request.param
    yield request.param
    torch.backends.quantized.engine = before


def random_codes(*shape: int, scale: float = 0.1, zero_point: int = 100) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    values = (torch.randint(0, 256, shape, generator=generator) - zero_point) * scale
    return torch.quantize_per_tensor(values, scale, zero_point, torch.quint8)


def layouts(codes: torch.Tensor) -> list[torch.Tensor]:
    """The same tensor in several orders in memory."""
    last = codes.movedim(1, -1).contiguous().movedim(-1, 1)
    return [codes, last, codes.transpose(-1, -2).contiguous().transpose(-1, -2)]


def namesake(name: str):
    return getattr(F, name, None) or getattr(torch, name)


CASES = [
    *((name, *case) for name, case in {**IMAGES, **ROWS}.items()),
    *((name, *case) for name, cases in MORE.items() for case in cases),
]


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize(("name", "settings", "options"), CASES, ids=str)
def test_a_pooling_gives_its_namesake_within_one_step_in_every_layout(name, settings, options):
    codes = random_codes(2, 6, 9) if name.endswith("1d") else random_codes(2, 6, 9, 8)
    wanted = namesake(name)(codes.dequantize(), *settings, **options)
    results = [getattr(steady, name)(each, *settings, **options) for each in layouts(codes)]

    for result in results:
        assert result.shape == wanted.shape
        assert (result.dequantize() - wanted.clamp(-10.0, 15.5)).abs().max() <= 0.1001


@pytest.mark.parametrize(("name", "settings", "options"), CASES, ids=str)
def test_a_pooling_gives_the_same_bits_whichever_engine_is_selected(name, settings, options):
    codes = random_codes(2, 6, 9) if name.endswith("1d") else random_codes(2, 6, 9, 8)
    before, results = torch.backends.quantized.engine, []
    pooling = getattr(steady, name)
    try:
        for each in ENGINES:
            torch.backends.quantized.engine = each
            results.append([pooling(x, *settings, **options).int_repr() for x in layouts(codes)])
    finally:
        torch.backends.quantized.engine = before

    for by_layout in zip(*results, strict=True):
        assert all(torch.equal(by_layout[0], each) for each in by_layout)


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize(
    "shape", [(7,), (2, 5), (2, 6, 9), (2, 6, 9, 8), (2, 4, 3, 5, 6), (0, 6, 2, 2)]
)
def test_clamping_is_right_in_every_layout(shape):
    codes = random_codes(*shape)
    wanted = codes.dequantize().clamp(-3.0, 4.0)

    for each in layouts(codes) if codes.dim() > 2 else [codes]:
        assert torch.equal(steady.clamp(each, -3.0, 4.0).dequantize(), wanted)


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("rectified", [False, True])
@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((2, 6, 9, 8), (2, 6, 9, 8)),
        ((2, 6, 9, 8), (1, 6, 1, 1)),
        ((1, 6, 1, 1), (2, 6, 9, 8)),
        ((8,), (2, 6, 9, 8)),
        ((3, 4), (3, 4)),
        ((0, 6, 2, 2), (0, 6, 2, 2)),
    ],
    ids=str,
)
def test_a_sum_is_right_within_one_step_in_every_layout(left, right, rectified):
    first, second = random_codes(*left), random_codes(*right, scale=0.07, zero_point=20)
    like = torch.quantize_per_tensor(torch.zeros(1), 0.2, 90, torch.quint8)
    wanted = first.dequantize() + second.dequantize()
    wanted = (wanted.relu() if rectified else wanted).clamp(-18.0, 33.0)
    every = layouts(first) if first.dim() > 2 else [first]

    for each in every:
        total = steady.add(each, second, like, rectified=rectified)
        assert (total.q_scale(), total.q_zero_point()) == (0.2, 90)
        difference = (total.dequantize() - wanted).abs()
        assert difference.numel() == 0 or difference.max() <= 0.1001
