"""Qconfigs that QNNPACK's kernels take, and models to try them on."""

from __future__ import annotations

import pytest
import torch

import fusion_core as core

FLOOR = 2.0**-12
SIGNED = {"dtype": torch.qint8, "weight_min": -127, "eps": FLOOR}
KINDS = {
    "default": {},
    "per tensor": {"per_channel": False},
    "signed": SIGNED,
    "signed symmetric": {**SIGNED, "symmetric": True},
    "signed per tensor": {**SIGNED, "symmetric": True, "per_channel": False},
}


def mapping_of(kind):
    """The qconfig mapping of a kind."""
    return core.catalog.static_qconfig_mapping(core.catalog.static_qconfig(**KINDS[kind]))


@pytest.fixture(params=KINDS)
def mapping(request):
    """A qconfig mapping of each kind in turn."""
    return mapping_of(request.param)


@pytest.fixture(params=["default", "signed symmetric"])
def dtypes(request):
    """A qconfig mapping for each of the two dtypes of activations."""
    return mapping_of(request.param)


@pytest.fixture
def engine():
    """Restores the engine that a test selects."""
    before = torch.backends.quantized.engine
    yield
    torch.backends.quantized.engine = before
