"""Models that the tests of several rooms are made of."""

from __future__ import annotations

import pytest
from torch import nn


@pytest.fixture
def net():
    """A module with named layers and a forward of ``(self, x)``."""

    def net(forward, **layers):
        model = type("Net", (nn.Module,), {"forward": forward})()
        for name, layer in layers.items():
            setattr(model, name, layer)
        return model.eval()

    return net
