from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  the name everyone knows it by
from torch import nn

from fusion_core.nn.rounding import InputMoments, odd_step, round_with_feedback

LIMITS = {"quant_min": -8, "quant_max": 7}


def correlated(rows: int, columns: int) -> torch.Tensor:
    return torch.randn(rows, columns) @ torch.randn(columns, columns)


def test_the_error_of_the_output_is_less_than_with_the_nearest_codes():
    x, weight = correlated(400, 200), torch.randn(1, 10, 200)
    x = x - x.mean(0)
    scale = weight.abs().amax(2, keepdim=True) / 7
    nearest = (weight / scale).round().clamp(-8, 7)
    chosen = round_with_feedback(weight, scale, (x.T @ x / 400)[None], **LIMITS)

    def error(codes):
        return float(((weight - codes * scale)[0] @ x.T).square().sum())

    assert error(chosen) < 0.5 * error(nearest)


def test_codes_are_whole_and_within_their_range():
    weight = 3 * torch.randn(2, 5, 6)
    x = correlated(50, 6)
    codes = round_with_feedback(
        weight, torch.full((2, 5, 1), 0.3), (x.T @ x).expand(2, 6, 6), **LIMITS
    )

    assert codes.shape == weight.shape
    assert torch.equal(codes, codes.round())
    assert (codes.min(), codes.max()) == (-8, 7)


def test_inputs_that_do_not_move_together_give_the_nearest_codes():
    weight, scale = torch.randn(1, 5, 6), torch.full((1, 5, 1), 0.5)
    codes = round_with_feedback(weight, scale, torch.eye(6)[None], **LIMITS)

    assert torch.equal(codes, (weight / scale).round().clamp(-8, 7))


def test_inputs_that_are_always_zero_do_no_harm():
    weight = torch.randn(1, 3, 4)
    codes = round_with_feedback(weight, torch.ones(1, 3, 1), torch.zeros(1, 4, 4), **LIMITS)

    assert torch.equal(codes, weight.round())


CONVOLUTIONS = [
    (nn.Conv1d(4, 2, 3, padding=2, stride=2), (3, 4, 11)),
    (nn.Conv2d(4, 2, 3), (2, 4, 7, 7)),
    (
        nn.Conv2d(4, 4, (3, 2), stride=(2, 1), padding=(1, 0), dilation=(1, 2), groups=2),
        (2, 4, 7, 8),
    ),
    (nn.Conv2d(4, 2, 4, padding="same"), (2, 4, 7, 7)),
    (nn.Conv2d(4, 2, 3, padding=1, padding_mode="reflect"), (2, 4, 7, 7)),
    (nn.Conv2d(4, 2, 3, padding="valid"), (2, 4, 7, 7)),
    (nn.Conv3d(2, 2, 2, padding=1), (1, 2, 4, 4, 4)),
    (nn.Linear(5, 2), (3, 4, 5)),
]


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel:UserWarning")
@pytest.mark.parametrize(("layer", "shape"), CONVOLUTIONS)
def test_moments_are_the_variance_of_the_output_seen_from_the_weight(layer, shape):
    """For any weight w, ``w M w`` is the variance of the layer's output with that weight."""
    x = torch.randn(shape)
    layer.bias = None
    moments = InputMoments(layer).of([x], about_mean=True)
    with torch.no_grad():
        output = layer(x)
    by_channel = output.flatten(0, -2).T if isinstance(layer, nn.Linear) else output.transpose(0, 1)
    variance = by_channel.flatten(1).double().var(1, unbiased=False)
    groups = getattr(layer, "groups", 1)
    weight = layer.weight.detach().double().reshape(groups, layer.weight.shape[0] // groups, -1)
    predicted = torch.einsum("gri,gij,grj->gr", weight, moments, weight).flatten()

    assert torch.allclose(predicted, variance, rtol=1e-4)


def test_moments_of_several_batches_are_those_of_all_together():
    batches = [torch.randn(4, 5) + shift for shift in (0.0, 3.0)]
    layer = nn.Linear(5, 2)
    together = F.pad(torch.cat(batches).double(), (0, 0))
    wanted = torch.cov(together.T, correction=0)

    assert torch.allclose(InputMoments(layer).of(batches, about_mean=True)[0], wanted, atol=1e-5)


@pytest.mark.parametrize(("count", "limit"), [(10, 10), (10, 9), (100, 7), (1000, 499), (5, 1)])
def test_a_step_is_odd_and_leaves_no_more_than_the_limit(count, limit):
    step = odd_step(count, limit)

    assert step % 2 == 1
    assert len(range(0, count, step)) <= limit
