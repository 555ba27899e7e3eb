"""A speaker encoder, an LSTM with its published weights, tells voices apart after quantization as before."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path

import pytest
import torch
from torch import nn

import fusion_core as core

# Only the weights are used: importing the package needs libraries for reading sound files.
package = importlib.util.find_spec("resemblyzer")
if package is None:
    pytest.skip("could not find 'resemblyzer'", allow_module_level=True)

RATE, WINDOW, HOP, CHANNELS, WIDTH = 16000, 400, 160, 40, 256

# Pitch in hertz and the length of the throat that shifts the resonances, for each voice.
VOICES = {"bass": (85, 0.85), "tenor": (140, 0.95), "alto": (200, 1.1), "child": (300, 1.3)}
VOWELS = {
    "a": (800, 1200, 2500),
    "e": (450, 2000, 2600),
    "i": (300, 2300, 3000),
    "o": (450, 800, 2600),
}


class SpeakerEncoder(nn.Module):
    """The published network; the names are those of its weights."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(CHANNELS, WIDTH, 3, batch_first=True)
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.relu = nn.ReLU()

    def forward(self, mels):
        _, (hidden, _) = self.lstm(mels)
        raw = self.relu(self.linear(hidden[-1]))
        return raw / torch.norm(raw, dim=1, keepdim=True)


@pytest.fixture(scope="module")
def encoder() -> SpeakerEncoder:
    weights = Path(package.submodule_search_locations[0]) / "pretrained.pt"
    state = torch.load(weights, map_location="cpu", weights_only=True)["model_state"]
    model = SpeakerEncoder()
    model.load_state_dict({name: state[name] for name in model.state_dict()})
    return model.eval()


def sound(voice: str, vowels: str) -> torch.Tensor:
    """About 1.6 seconds of a voice that says some vowels: overtones under three resonances."""
    pitch, throat = VOICES[voice]
    time = torch.arange(int(1.6 * RATE) // len(vowels)) / RATE
    overtones = pitch * torch.arange(1, 4000 // pitch)
    said = []
    for vowel in vowels:
        resonances = throat * torch.tensor(VOWELS[vowel])
        loudness = (1 / (1 + ((overtones[:, None] - resonances) / 90) ** 2)).sum(dim=1)
        waves = torch.sin(2 * math.pi * overtones[:, None] * (time + 0.002 * torch.sin(35 * time)))
        said.append((loudness[:, None] * waves).sum(dim=0))
    whole = torch.cat(said) + 0.02 * torch.randn(len(time) * len(vowels))
    return whole * 10 ** (-30 / 20) / whole.square().mean().sqrt()


def mels(wave: torch.Tensor) -> torch.Tensor:
    """Power in each channel of the mel scale, shape [frames, channels]."""
    spectrum = torch.stft(wave, WINDOW, HOP, window=torch.hann_window(WINDOW), return_complex=True)
    top = 2595 * math.log10(1 + RATE / 2 / 700)
    edges = 700 * (10 ** (torch.linspace(0, top, CHANNELS + 2) / 2595) - 1)
    bins = torch.linspace(0, RATE / 2, WINDOW // 2 + 1)
    rising = (bins - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    falling = (edges[2:, None] - bins) / (edges[2:] - edges[1:-1])[:, None]
    filters = torch.minimum(rising, falling).clamp(min=0) * 2 / (edges[2:] - edges[:-2])[:, None]
    return (filters @ spectrum.abs().square()).T[:160]


def embeddings(model: nn.Module) -> torch.Tensor:
    """Two sounds of every voice, shape [2 * voices, width]."""
    heard = [mels(sound(voice, vowels)) for voice in VOICES for vowels in ("aeio", "oiae")]
    with torch.no_grad():
        return model(torch.stack(heard))


def test_embeddings_stay_where_they_were_and_voices_apart(encoder, ledger):
    quantized = core.quantize(
        encoder, "fbgemm", mode="dynamic", example_inputs=(torch.rand(2, 160, CHANNELS),)
    )
    torch.manual_seed(0)
    want = embeddings(encoder)
    torch.manual_seed(0)
    have = embeddings(quantized)
    alike = have @ have.T - 2 * torch.eye(len(have))

    # 160 steps through three layers add up; torch's own dynamic flow is at 0.72 here.
    assert (want * have).sum(dim=1).min() > 0.93
    assert alike.argmax(dim=1).tolist() == [1, 0, 3, 2, 5, 4, 7, 6]
    assert ledger(quantized).macs().fraction > 0.99
