"""parameter_bytes counts what a model holds, and nothing twice."""

from __future__ import annotations

import torch
from torch import nn

import fusion_core as core


def test_parameters_and_buffers_count() -> None:
    norm = nn.BatchNorm1d(3)
    assert core.parameter_bytes(norm) == 4 * 3 * 4 + 8


def test_shared_parameters_count_once() -> None:
    layer = nn.Linear(3, 3, bias=False)
    other = nn.Linear(3, 3, bias=False)
    other.weight = layer.weight
    assert core.parameter_bytes(nn.Sequential(layer, other)) == 9 * 4


def test_two_views_of_one_memory_count_as_that_memory() -> None:
    memory = torch.zeros(10)
    module = nn.Module()
    module.register_buffer("all", memory)
    module.register_buffer("part", memory[2:5])
    assert core.parameter_bytes(module) == 40


def test_a_part_of_a_larger_memory_counts_as_the_part() -> None:
    module = nn.Module()
    module.register_buffer("part", torch.zeros(10)[2:5])
    assert core.parameter_bytes(module) == 12


def test_models_without_memory_have_a_size() -> None:
    with torch.device("meta"):
        layers = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    assert core.parameter_bytes(layers) == 2 * 12 * 4


def test_extra_state_counts_in_any_container() -> None:
    class Keeps(nn.Module):
        def get_extra_state(self) -> object:
            return {"a": [torch.zeros(2)], "b": (torch.zeros(3, dtype=torch.int8), "text")}

    assert core.parameter_bytes(nn.Sequential(Keeps(), Keeps())) == 2 * (8 + 3)


def test_packed_weights_count_as_integers(quantized) -> None:
    weights = 4 * 3 * 9 + 4 * 5
    size = core.parameter_bytes(quantized)
    # Besides the codes: bias, scale and zero point for each of 4 + 5 channels.
    assert weights + 9 * 4 <= size <= weights + 9 * 24 + 64
