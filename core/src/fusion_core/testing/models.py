"""Small whole models, of the kinds that people quantize."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import torch
import torch.nn.functional as F  # noqa: N812  the name everyone knows it by
from torch import Tensor, nn

from fusion_core.testing.zoo.case import fresh_model


def _norm_conv(inputs: int, outputs: int, size: int, stride: int = 1, groups: int = 1) -> nn.Module:
    conv = nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs))


class ResidualNet(nn.Module):
    """A stem, a block whose input is added to its output, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(_norm_conv(3, 8, 3), nn.ReLU())
        self.first, self.second = _norm_conv(8, 8, 3), _norm_conv(8, 8, 3)
        self.head = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of shape [batch, 5] of images."""
        x = self.stem(x)
        x = F.relu(x + self.second(F.relu(self.first(x))))
        logits: Tensor = self.head(x.mean((2, 3)))
        return logits


class DepthwiseSeparable(nn.Module):
    """Depthwise and pointwise convolutions with ReLU6, as in MobileNet."""

    def __init__(self) -> None:
        super().__init__()
        self.depthwise = nn.Sequential(_norm_conv(4, 4, 3, groups=4), nn.ReLU6())
        self.pointwise = nn.Sequential(_norm_conv(4, 8, 1), nn.ReLU6())
        self.pool = nn.AdaptiveAvgPool2d(1)

    def forward(self, x: Tensor) -> Tensor:
        """Features of shape [batch, 8] of images with 4 channels."""
        return torch.flatten(self.pool(self.pointwise(self.depthwise(x))), 1)


class SqueezeExcite(nn.Module):
    """Channels weighted by what the whole image says."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.squeeze, self.excite = nn.Conv2d(8, 4, 1), nn.Conv2d(4, 8, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Images with 8 channels, weighted."""
        x = F.relu(self.conv(x))
        weights = self.excite(F.relu(self.squeeze(F.adaptive_avg_pool2d(x, 1))))
        return x * torch.sigmoid(weights)


class InvertedResidual(nn.Module):
    """Widened, filtered, narrowed without an activation, and added."""

    def __init__(self) -> None:
        super().__init__()
        self.widen = nn.Sequential(_norm_conv(4, 12, 1), nn.ReLU6())
        self.filter = nn.Sequential(_norm_conv(12, 12, 3, groups=12), nn.ReLU6())
        self.narrow = _norm_conv(12, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Images of the shape it is given."""
        narrowed: Tensor = self.narrow(self.filter(self.widen(x)))
        return x + narrowed


class Perceptron(nn.Module):
    """Linear layers with batch norm, ReLU and dropout between them."""

    def __init__(self) -> None:
        super().__init__()
        hidden = [nn.Linear(12, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3)]
        self.layers = nn.Sequential(*hidden, nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))

    def forward(self, x: Tensor) -> Tensor:
        """Logits of shape [batch, 4] of rows."""
        logits: Tensor = self.layers(x)
        return logits


class AudioNet(nn.Module):
    """Strided and dilated convolutions over time."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Conv1d(2, 8, 5, stride=2), nn.BatchNorm1d(8), nn.ReLU()),
            *(nn.Conv1d(8, 8, 3, dilation=2), nn.ReLU(), nn.MaxPool1d(2)),
        )
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of shape [batch, 3] of signals with 2 channels."""
        logits: Tensor = self.head(self.layers(x).mean(2))
        return logits


class Encoder(nn.Module):
    """A block of a transformer with one head, written out."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)
        self.norm = nn.LayerNorm(8)
        self.widen, self.narrow = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x: Tensor) -> Tensor:
        """Sequences of the shape it is given."""
        scores = self.query(x) @ self.key(x).transpose(1, 2) * 8**-0.5
        x = self.norm(x + torch.softmax(scores, -1) @ self.value(x))
        narrowed: Tensor = self.narrow(F.relu(self.widen(x)))
        return x + narrowed


class UNet(nn.Module):
    """Down, up again, and the finer features put beside the coarser ones."""

    def __init__(self) -> None:
        super().__init__()
        self.fine, self.coarse = nn.Conv2d(3, 6, 3, padding=1), nn.Conv2d(6, 8, 3, padding=1)
        self.merge = nn.Conv2d(14, 4, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """A map with 4 channels in the size of the image."""
        fine = F.relu(self.fine(x))
        coarse = F.relu(self.coarse(F.max_pool2d(fine, 2)))
        grown = F.interpolate(coarse, scale_factor=2.0, mode="nearest")
        merged: Tensor = self.merge(torch.cat([grown, fine], 1))
        return merged


class ManyOutputs(nn.Module):
    """A dict with a tuple in it."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Conv2d(3, 6, 3, padding=1)
        self.mask, self.boxes = nn.Conv2d(6, 1, 1), nn.Linear(6, 4)

    def forward(self, x: Tensor) -> dict[str, Tensor | tuple[Tensor, Tensor]]:
        """A mask, and boxes with what they were made from."""
        features = F.relu(self.trunk(x))
        pooled = features.mean((2, 3))
        return {"mask": self.mask(features), "boxes": (self.boxes(pooled), pooled)}


class Shared(nn.Module):
    """One module called twice, on values of different ranges."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.relu = nn.Conv2d(4, 4, 3, padding=1), nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        """Images of the shape it is given."""
        again: Tensor = self.conv(self.relu(self.conv(x)) * 3.0)
        return again


class Functional(nn.Module):
    """Weights that the model holds itself, and hands to functions."""

    def __init__(self) -> None:
        super().__init__()
        self.filters = nn.Parameter(torch.randn(6, 3, 3, 3) / 5)
        self.matrix = nn.Parameter(torch.randn(4, 6) / 3)
        self.bias = nn.Parameter(torch.randn(4))

    def forward(self, x: Tensor) -> Tensor:
        """Logits of shape [batch, 4] of images."""
        pooled = F.relu(F.conv2d(x, self.filters, padding=1)).mean((2, 3))
        return F.linear(pooled, self.matrix, self.bias)


class TwoInputs(nn.Module):
    """Two images, compared."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.head = nn.Linear(8, 2)

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        """Logits of shape [batch, 2] of two images."""
        one, other = F.relu(self.embed(left)), F.relu(self.embed(right))
        logits: Tensor = self.head((one * other).mean((2, 3)))
        return logits


@dataclass(frozen=True)
class WholeModel:
    """A model and the shapes of its inputs, the first dimension of which is the batch.

    Attributes:
        build: Type of the model.
        shapes: Of each input.
    """

    build: Callable[[], nn.Module]
    shapes: tuple[tuple[int, ...], ...]

    def model(self) -> nn.Module:
        """The model in eval mode, the same each time."""
        return fresh_model(self.build)

    def inputs(self, count: int, *, batch: int | None = None) -> list[tuple[Tensor, ...]]:
        """So many inputs, the same each time.

        Args:
            count: How many.
            batch: Size of the batch; default that of ``shapes``.
        """
        source = torch.Generator().manual_seed(1)
        shapes = [shape if batch is None else (batch, *shape[1:]) for shape in self.shapes]
        return [
            tuple(torch.randn(shape, generator=source) + 0.3 for shape in shapes)
            for _ in range(count)
        ]


_IMAGE = (2, 3, 8, 8)
_FEATURES = (2, 4, 8, 8)

MODELS: Mapping[str, WholeModel] = MappingProxyType(
    {
        "residual": WholeModel(ResidualNet, (_IMAGE,)),
        "depthwise separable": WholeModel(DepthwiseSeparable, (_FEATURES,)),
        "squeeze and excite": WholeModel(SqueezeExcite, (_IMAGE,)),
        "inverted residual": WholeModel(InvertedResidual, (_FEATURES,)),
        "perceptron": WholeModel(Perceptron, ((16, 12),)),
        "audio": WholeModel(AudioNet, ((2, 2, 40),)),
        "encoder": WholeModel(Encoder, ((2, 6, 8),)),
        "unet": WholeModel(UNet, (_IMAGE,)),
        "many outputs": WholeModel(ManyOutputs, (_IMAGE,)),
        "shared module": WholeModel(Shared, (_FEATURES,)),
        "functional weights": WholeModel(Functional, (_IMAGE,)),
        "two inputs": WholeModel(TwoInputs, (_IMAGE, _IMAGE)),
    }
)
"""By name."""
