"""What a model of the zoo is made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fusion_core.testing.modes import Way

IMAGES = (2, 4, 8, 8)
ROWS = (32, 16)
SIGNALS = (2, 4, 16)
VOLUMES = (2, 3, 5, 6, 6)

Calls = Callable[..., Any]
"""The forward of a model: called with the model and its inputs."""


@dataclass(frozen=True)
class Producer:
    """A layer whose output is quantized, for what is quantized only behind something that is.

    Attributes:
        capability: What the backend must support for it.
        build: Makes one that takes and gives images of :data:`IMAGES`.
    """

    capability: str
    build: Callable[[], nn.Module]


@dataclass(frozen=True)
class Case:
    """One model of a capability.

    Attributes:
        text: Which spelling it is.
        forward: Called with the model and its inputs.
        layers: Builds the model's layers, by name.
        shapes: Shape of each input.
        is_one: Whether all of its operations must be quantized as one.
        is_behind: Whether a producer stands before it, as the model's layer ``before``.
        way: How it is quantized; empty for the backend's default.
        highest: For inputs that are indices, the number of rows they index; 0 for float inputs.
    """

    text: str
    forward: Calls
    layers: Callable[[], dict[str, nn.Module | nn.Parameter]] = dict
    shapes: tuple[tuple[int, ...], ...] = (IMAGES,)
    is_one: bool = False
    is_behind: bool = False
    way: Way = ""
    highest: int = 0

    def model(self, producer: Producer | None = None) -> nn.Module:
        """The model in eval mode; equal each time, and the global random state is not touched.

        Args:
            producer: What stands before it, where something must.
        """

        def build() -> nn.Module:
            layers = self.layers()
            if producer is not None:
                layers = {"before": producer.build(), **layers}
            kind = (_OfOne, _OfTwo)[len(self.shapes) - 1]
            return kind(self.forward, layers)

        return fresh_model(build)

    def inputs(self, count: int) -> list[tuple[Tensor, ...]]:
        """So many inputs, the same each time; each is the positional arguments of one call."""
        source = torch.Generator().manual_seed(0)
        return [tuple(self._input(shape, source) for shape in self.shapes) for _ in range(count)]

    def _input(self, shape: tuple[int, ...], source: torch.Generator) -> Tensor:
        if self.highest:
            return torch.randint(self.highest, shape, generator=source)
        # Not around 0: the mean of what is would be noise.
        return torch.randn(shape, generator=source) + 0.5


class _OfOne(nn.Module):
    """Calls a function of one input."""

    def __init__(self, calls: Calls, layers: dict[str, nn.Module | nn.Parameter]) -> None:
        super().__init__()
        self.calls = calls
        for name, layer in layers.items():
            setattr(self, name, layer)

    def forward(self, x: Tensor) -> Any:
        return self.calls(self, x)


class _OfTwo(_OfOne):
    """Calls a function of two inputs."""

    def forward(self, x: Tensor, y: Tensor) -> Any:  # type: ignore[override]  # that is the difference
        return self.calls(self, x, y)


def fresh_model(build: Callable[[], nn.Module]) -> nn.Module:
    """What ``build`` makes, in eval mode, with random weights that are the same each time.

    Batch norms get statistics as training leaves them, so that folding one changes something.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = build()
        for module in model.modules():
            if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)):
                _train(module)
    return model.eval()


def _train(norm: nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d) -> None:
    with torch.no_grad():
        for tensor in (norm.weight, norm.running_var):
            if tensor is not None:
                tensor.uniform_(0.5, 1.5)
        for tensor in (norm.bias, norm.running_mean):
            if tensor is not None:
                tensor.uniform_(-0.3, 0.3)
