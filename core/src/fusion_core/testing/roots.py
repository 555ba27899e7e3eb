"""Instances of the weighted types that patterns are about, with an input each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fusion_core.registry import PatternEntry
from fusion_core.testing.specimens import specimens_of
from fusion_core.testing.subject import Subject
from fusion_core.testing.zoo import fresh_model

_ARGUMENTS: dict[type[nn.Module], tuple[int, ...]] = {
    nn.Linear: (8, 6),
    nn.Conv1d: (4, 6, 3),
    nn.Conv2d: (4, 6, 3),
    nn.Conv3d: (4, 6, 3),
    nn.ConvTranspose1d: (4, 6, 3),
    nn.ConvTranspose2d: (4, 6, 3),
    nn.ConvTranspose3d: (4, 6, 3),
    nn.Embedding: (8, 6),
    nn.EmbeddingBag: (8, 6),
    nn.LSTM: (8, 6),
    nn.GRU: (8, 6),
    nn.RNN: (8, 6),
    nn.LSTMCell: (8, 6),
    nn.GRUCell: (8, 6),
    nn.RNNCell: (8, 6),
}
_ROWS, _SIZE = 8, 5
_INDEXING = (nn.Embedding, nn.EmbeddingBag)
_READING_ROWS = (nn.Linear, nn.LSTM, nn.GRU, nn.RNN, nn.LSTMCell, nn.GRUCell, nn.RNNCell)


@dataclass(frozen=True)
class Root:
    """A module with a weight.

    Attributes:
        module: The module, in eval mode.
        inputs: Positional arguments of one call.
    """

    module: nn.Module
    inputs: tuple[Any, ...]


def root_of(subject: Subject, entry: PatternEntry) -> Root:
    """An instance of the entry's root module; skips the running check where none can be made."""
    kind: Any = entry.config.root_module
    if kind in _ARGUMENTS:
        arguments = _ARGUMENTS[kind]
        return Root(fresh_model(lambda: kind(*arguments)), (_input(kind),))
    for specimen in specimens_of(subject, entry):
        for module in specimen.example.model.modules():
            if type(module) is kind:
                return Root(module, _inputs_seen(specimen.example, module))
    pytest.skip(f"no example of the pattern has a {kind.__name__}")


def _input(kind: type[nn.Module]) -> Tensor:
    source = torch.Generator().manual_seed(0)
    if kind in _INDEXING:
        return torch.randint(_ROWS, (4, 3), generator=source)
    if kind in _READING_ROWS:
        return torch.randn(4, _ROWS, generator=source)
    dims = int(kind.__name__[-2])
    shape = (2, 4, *(_SIZE for _ in range(dims)))
    return torch.randn(shape, generator=source)


def _inputs_seen(example: Any, module: nn.Module) -> tuple[Any, ...]:
    seen: list[tuple[Any, ...]] = []
    handle = module.register_forward_pre_hook(lambda _, args: seen.append(args))
    try:
        with torch.no_grad():
            example.model(*example.inputs)
    finally:
        handle.remove()
    return seen[0]
