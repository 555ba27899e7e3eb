"""Modules for quantization-aware training: float modules that run on what the codes of their weight stand for.

A module that trains with its batch norm quantizes the weight as it will be once the norm is folded,
and the norm goes on working on the batch (Jacob et al. 2018, section 3.2, in the form that needs
one convolution only). Activations stay outside, in the fused module that holds the weighted one.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from typing_extensions import Self

from fusion_core.configs import QConfig
from fusion_core.nn import normed
from fusion_core.nn.training_recipe import weight_fake_quantize


class QatModule(nn.Module):
    """A weighted float module whose weight is fake-quantized in every forward.

    Attributes:
        float_module: The module whose forward runs, with the parameters that are trained.
        weight_fake_quantize: Rounds the weight.
    """

    def __init__(self, float_module: nn.Module, qconfig: QConfig) -> None:
        """Of ``float_module``, which is taken over, and the qconfig whose ``weight`` counts."""
        super().__init__()
        self.float_module = float_module
        weight: Any = float_module.weight
        self.weight_fake_quantize = weight_fake_quantize(qconfig.weight, weight)
        self.train(float_module.training)

    @classmethod
    def from_float(cls, float_module: nn.Module, qconfig: QConfig) -> Self:
        """The module for training; it shares the parameters of ``float_module``."""
        return cls(float_module, qconfig)

    def to_float(self) -> nn.Module:
        """A float module with the trained parameters; a copy."""
        return copy.deepcopy(self.float_module)

    @property
    def weight(self) -> Any:
        """The parameter that is trained."""
        return self.float_module.weight

    @property
    def bias(self) -> Any:
        """The bias that is trained, or None."""
        return getattr(self.float_module, "bias", None)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The float module's forward with the rounded weight."""
        rounded = {"weight": self.weight_fake_quantize(self.weight)}
        return functional_call(self.float_module, rounded, args, kwargs)


class Linear(QatModule):
    """``nn.Linear`` in training."""


class Conv1d(QatModule):
    """``nn.Conv1d`` in training."""


class Conv2d(QatModule):
    """``nn.Conv2d`` in training."""


class Conv3d(QatModule):
    """``nn.Conv3d`` in training."""


class ConvTranspose1d(QatModule):
    """``nn.ConvTranspose1d`` in training."""


class ConvTranspose2d(QatModule):
    """``nn.ConvTranspose2d`` in training."""


class ConvTranspose3d(QatModule):
    """``nn.ConvTranspose3d`` in training."""


class _OfRows(QatModule):
    """Shortens the rows it reads to ``max_norm`` in the parameter, and not only in what is rounded."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The float module's forward with the rounded weight."""
        layer: Any = self.float_module
        if layer.max_norm is not None:
            indices = args[0] if args else kwargs["input"]
            with torch.no_grad():
                torch.embedding_renorm_(
                    self.weight, indices.contiguous(), layer.max_norm, layer.norm_type
                )
        return super().forward(*args, **kwargs)


class Embedding(_OfRows):
    """``nn.Embedding`` in training."""


class EmbeddingBag(_OfRows):
    """``nn.EmbeddingBag`` in training."""


class NormedQatModule(QatModule):
    """A weighted layer that is trained together with the batch norm behind it.

    The weight is scaled by ``f = gamma / sqrt(running_var + eps)``, as folding will do, and
    rounded; the result of the layer is divided by ``f`` again and normalized as always. So the
    rounding is that of inference, and the statistics are those of the batch.

    Attributes:
        float_module: The layer.
        norm: The batch norm.
    """

    def __init__(self, float_module: nn.Module, norm: nn.Module, qconfig: QConfig) -> None:
        """Of a layer and its batch norm, which are taken over."""
        super().__init__(float_module, qconfig)
        self.norm = norm

    @classmethod
    def from_float(cls, float_module: Any, qconfig: QConfig) -> Self:
        """The module for training; it shares the parameters of ``float_module``.

        Args:
            float_module: A :class:`fusion_core.nn.normed.Normed`.
            qconfig: Its ``weight`` rounds the scaled weight.
        """
        return cls(float_module[0], float_module[1], qconfig)

    def to_float(self) -> nn.Module:
        """The layer with the batch norm folded in, by its running statistics; a copy.

        Its weight is the one that this module rounds in eval mode, bit by bit.
        """
        made: Any = normed.folded(self.float_module, self.norm)
        with torch.no_grad():
            factor, _ = self._factors()
            made.weight.copy_(self.weight * normed.along_weight(factor, made))
        return made  # type: ignore[no-any-return]  # a layer

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The normalized result of the layer with the rounded weight."""
        layer = self.float_module
        _, factor = self._factors()
        rounded = self.weight_fake_quantize(self.weight * normed.along_weight(factor, layer))
        tensors = {"weight": rounded}
        if self.bias is not None:
            tensors["bias"] = torch.zeros_like(self.bias)
        result = functional_call(layer, tensors, args, kwargs)
        channels = [1, -1] + [1] * (result.dim() - 2)
        result = result / factor.view(channels)
        if self.bias is not None:
            result = result + self.bias.view(channels)
        return self.norm(result)

    @torch.no_grad()
    def _factors(self) -> tuple[Tensor, Tensor]:
        """What folding multiplies each output channel by, without and with a stand-in for zeros.

        A channel with gamma 0 cannot be divided by its factor. What stands in changes neither its
        value, which is beta, nor its gradients, and the mean of the others leaves a range that the
        whole weight shares as it is.
        """
        norm: Any = self.norm
        factor = torch.rsqrt(norm.running_var + norm.eps)
        if norm.weight is not None:
            factor = factor * norm.weight
        used = factor.abs().sum() / (factor != 0).sum().clamp(min=1)
        stand_in = torch.where(used == 0, torch.ones_like(used), used)
        return factor, torch.where(factor == 0, stand_in, factor)


class ConvBn1d(NormedQatModule):
    """Conv1d and BatchNorm1d in training."""


class ConvBn2d(NormedQatModule):
    """Conv2d and BatchNorm2d in training."""


class ConvBn3d(NormedQatModule):
    """Conv3d and BatchNorm3d in training."""


class ConvTransposeBn1d(NormedQatModule):
    """ConvTranspose1d and BatchNorm1d in training."""


class ConvTransposeBn2d(NormedQatModule):
    """ConvTranspose2d and BatchNorm2d in training."""


class ConvTransposeBn3d(NormedQatModule):
    """ConvTranspose3d and BatchNorm3d in training."""


class LinearBn1d(NormedQatModule):
    """Linear and BatchNorm1d in training."""


QAT_OF: Mapping[type[nn.Module], type[QatModule]] = {
    nn.Linear: Linear,
    nn.Conv1d: Conv1d,
    nn.Conv2d: Conv2d,
    nn.Conv3d: Conv3d,
    nn.ConvTranspose1d: ConvTranspose1d,
    nn.ConvTranspose2d: ConvTranspose2d,
    nn.ConvTranspose3d: ConvTranspose3d,
    nn.Embedding: Embedding,
    nn.EmbeddingBag: EmbeddingBag,
    normed.ConvBn1d: ConvBn1d,
    normed.ConvBn2d: ConvBn2d,
    normed.ConvBn3d: ConvBn3d,
    normed.ConvTransposeBn1d: ConvTransposeBn1d,
    normed.ConvTransposeBn2d: ConvTransposeBn2d,
    normed.ConvTransposeBn3d: ConvTransposeBn3d,
    normed.LinearBn1d: LinearBn1d,
}
"""The module for training of each float module."""
