"""A backend of a few patterns, and models on their way through the passes."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch
from torch import nn

import fusion_core as core
from fusion_core.passes import record_of
from fusion_core.passes.record import Stage
from fusion_core.registry import Registry

INT8 = core.DTypeConfig(
    input_dtype=torch.quint8, output_dtype=torch.quint8, weight_dtype=torch.qint8
)


@pytest.fixture
def backend():
    """A backend named ``toy`` from pattern configs, lowering rules and a qconfig."""

    def backend(*patterns, rules=(), qconfig=None):
        plugin = ModuleType("toy_plugin")
        mapping = core.QConfigMapping(global_qconfig=qconfig or core.catalog.static_qconfig())
        plugin.fusion_pattern_configs = core.hookimpl(lambda: list(patterns))
        plugin.fusion_lowering_rules = core.hookimpl(lambda: list(rules))
        plugin.fusion_default_qconfig_mapping = core.hookimpl(lambda: mapping)
        registry = Registry()
        registry.register_backend("toy", plugin)
        return registry.get_backend("toy")

    return backend


@pytest.fixture
def linear():
    """A linear layer that is quantized as it stands."""
    return core.BackendPatternConfig(
        nn.Linear,
        dtype_configs=[INT8],
        root_module=nn.Linear,
        reference_quantized_module=core.nn.reference.Linear,
    )


@pytest.fixture
def ledger():
    """The ledger of a model."""
    return lambda model: record_of(model, Stage.TRACED, "the test").ledger


@pytest.fixture
def ops():
    """What a graph calls, in order: type of a module, name of a function or method."""

    def name(model, node):
        if node.op == "call_module":
            return type(model.get_submodule(node.target)).__name__
        return node.target if isinstance(node.target, str) else node.target.__name__

    return lambda model: [
        name(model, node) for node in model.graph.nodes if node.op.startswith("call_")
    ]


@pytest.fixture
def prepared():
    """A model with observers, for the backend."""

    def prepared(model, backend, x, mapping=None):
        traced = core.trace(model.eval(), x, backend=backend)
        return core.prepare(core.fuse(traced, backend), backend, mapping)

    return prepared
