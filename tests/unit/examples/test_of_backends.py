"""Examples of modules that only a backend's fuser methods can make."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn

import fusion_core as core
from fusion_core import BackendPatternConfig
from fusion_core.errors import NoExampleError
from fusion_core.examples import examples_for

INT8 = core.DTypeConfig(
    input_dtype=torch.quint8, output_dtype=torch.quint8, weight_dtype=torch.qint8
)


class Scaled(nn.Module):
    """A fused module that nothing but its fuser method knows how to make."""

    def __init__(self, linear, relu):
        super().__init__()
        self.linear, self.relu = linear, relu

    def forward(self, x):
        return self.relu(self.linear(x))


@pytest.fixture
def entry_of():
    undone = []

    def make(*configs):
        plugin = SimpleNamespace(fusion_pattern_configs=core.hookimpl(lambda: list(configs)))
        undone.append(core.register_backend("chip", plugin))
        backend = core.get_backend("chip")
        return backend, next(each for each in backend.entries if each.config.fuser_method is None)

    yield make
    for undo in undone:
        undo()


def test_a_module_of_the_plugin_is_made_by_its_fuser_method(entry_of):
    fuse = BackendPatternConfig((nn.Linear, nn.ReLU), fuser_method=Scaled)
    backend, entry = entry_of(fuse, BackendPatternConfig(Scaled, dtype_configs=[INT8]))
    (example,) = examples_for(backend, entry)
    assert example.text == "chip: Linear -> ReLU, fused"
    assert any(type(each) is Scaled for each in example.model.children())
    assert example.model(*example.inputs).shape == (8, 8)


def test_what_no_fuser_method_gives_has_no_example(entry_of):
    backend, entry = entry_of(BackendPatternConfig(Scaled, dtype_configs=[INT8]))
    with pytest.raises(NoExampleError, match="how to make a Scaled is not known"):
        examples_for(backend, entry)


def test_a_fuser_method_that_fails_is_passed_over(entry_of):
    def broken(_is_qat, _linear, _relu):
        raise KeyError

    fuse = BackendPatternConfig((nn.Linear, nn.ReLU), fuser_method=broken)
    backend, entry = entry_of(fuse, BackendPatternConfig(Scaled, dtype_configs=[INT8]))
    with pytest.raises(NoExampleError):
        examples_for(backend, entry)
