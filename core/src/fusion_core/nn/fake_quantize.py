"""Fake quantization: a float value takes the values its codes would stand for, and gradients pass through."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor, nn

from fusion_core.configs import ObserverSpec
from fusion_core.nn.observers import MovingAverageMinMaxObserver, PlaceholderObserver
from fusion_core.nn.protocol import (
    FLOAT_DTYPES,
    PER_CHANNEL_SCHEMES,
    SYMMETRIC_SCHEMES,
    Observer,
)
from fusion_core.qops import (
    QuantizedTensor,
    dequantize_dynamic,
    dequantize_per_channel,
    dequantize_per_tensor,
    quantize_per_channel,
    quantize_per_tensor,
    quantize_per_tensor_dynamic,
    storage_dtype,
)

_HALF_STEP: Final = 0.501
"""How far a value may be from what its code stands for, in steps, where it was not clipped."""


class FakeQuantize(nn.Module):
    """Observes a value, and rounds it as the quantized model will.

    What comes out is, bit by bit, what the quantize and dequantize operations of a converted model
    give. The gradient passes unchanged where a value lies within the range, and is zero where it
    was clipped (the straight-through estimator of Bengio et al., arXiv:1308.3432).

    Ranges move in training mode only, so that evaluating a model does not change it. Until there is
    a range, and where the wanted dtype is a float one, values pass as they are.

    To the passes it is an observer: it follows their protocol.

    Args:
        observer: Chooses the parameters: the type of an observer, or a recipe for one.
        options: The observer's keyword arguments.

    Raises:
        TypeError: ``observer`` builds something else than an observer of this package.
    """

    observer: Observer
    scale: Tensor
    """Of the range in use; float32, shape [1] or [channels]."""
    zero_point: Tensor
    """Of the range in use; int32, or float32 for float zero points; the shape of ``scale``."""
    observer_enabled: Tensor
    """Whether ranges move in training; uint8, shape [1]."""
    fake_quantize_enabled: Tensor
    """Whether values are rounded; uint8, shape [1]."""

    def __init__(
        self,
        observer: ObserverSpec | Callable[..., nn.Module] = MovingAverageMinMaxObserver,
        **options: Any,
    ) -> None:
        super().__init__()
        spec = observer if isinstance(observer, ObserverSpec) else ObserverSpec(observer)
        built = spec.with_options(**options)()
        if not isinstance(built, Observer):
            msg = (
                f"FakeQuantize got {observer!r}, which builds {type(built).__name__}; it takes the observers of "
                "fusion_core.nn. PyTorch's own fake-quantize modules can stand in a qconfig as they are"
            )
            raise TypeError(msg)
        self.observer = built
        self._is_weight = False
        floating = built.qscheme is torch.per_channel_affine_float_qparams
        self.register_buffer("scale", torch.ones(1))
        self.register_buffer(
            "zero_point", torch.zeros(1, dtype=torch.float32 if floating else torch.int32)
        )
        self.register_buffer("observer_enabled", torch.ones(1, dtype=torch.uint8))
        self.register_buffer("fake_quantize_enabled", torch.ones(1, dtype=torch.uint8))
        self._refresh()

    @property
    def dtype(self) -> torch.dtype:
        """The type that is simulated."""
        return self.observer.dtype

    @property
    def qscheme(self) -> torch.qscheme:
        """Affine or symmetric, per tensor or per channel."""
        return self.observer.qscheme

    @property
    def quant_min(self) -> int:
        """The smallest code."""
        return self.observer.quant_min

    @property
    def quant_max(self) -> int:
        """The largest code."""
        return self.observer.quant_max

    @property
    def eps(self) -> Tensor:
        """The smallest scale; float32, shape [1]."""
        return self.observer.eps

    @property
    def is_dynamic(self) -> bool:
        """Whether the range is that of each tensor."""
        return self.observer.is_dynamic

    @property
    def ch_axis(self) -> int | None:
        """The channel dimension, or None for one range in all."""
        if not is_per_channel(self.observer):
            return None
        return int(getattr(self.observer, "ch_axis", 0))

    @property
    def observed(self) -> bool:
        """Whether there is a range, from data or fixed beforehand."""
        return self.observer.observed

    @property
    def label(self) -> str:
        """Names the value in messages."""
        return self.observer.label

    @label.setter
    def label(self, label: str) -> None:
        self.observer.label = label

    def forward(self, x: Tensor) -> Tensor:
        """``x``, rounded to the values that codes stand for.

        Args:
            x: Floating tensor of any shape; what comes out is of its dtype.

        Raises:
            TypeError: ``x`` is not floating.
            NonFiniteActivationError: ``x`` holds NaN or infinity while the range moves.
        """
        if self.dtype in FLOAT_DTYPES:
            return x
        if self.training and self.observer_enabled and not self.is_dynamic:
            self.observer(x)
            self._refresh()
        if not self.fake_quantize_enabled or not (self.is_dynamic or self.observed):
            return x
        rounded: Tensor = _StraightThrough.apply(x, self._rounded)
        return rounded

    def calculate_qparams(self) -> tuple[Tensor, Tensor]:
        """Scale and zero point in use; without a range, what the observer says of that.

        Returns:
            Float32 and int32 tensors of shape [1] or [channels].
        """
        if not self.observed:
            return self.observer.calculate_qparams()
        return self.scale, self.zero_point

    def merge(self, other: nn.Module) -> None:
        """Take the statistics of ``other``, which is left as it is.

        Raises:
            TypeError: ``other`` is no fake quantization, or of another observer.
            ValueError: ``other`` is configured differently.
        """
        if not isinstance(other, FakeQuantize):
            msg = f"cannot merge {type(other).__name__} into FakeQuantize"
            raise TypeError(msg)
        self.observer.merge(other.observer)
        self._refresh()

    def quantized(self, weight: Tensor) -> QuantizedTensor:
        """The codes of ``weight`` at the parameters in use.

        Args:
            weight: Float tensor with the channels that were observed.
        """
        return QuantizedTensor.from_float(
            weight,
            self.scale,
            self.zero_point,
            axis=self.ch_axis,
            quant_min=self.quant_min,
            quant_max=self.quant_max,
            dtype=storage_dtype(self.dtype),
        )

    def for_weight(self, weight: Tensor) -> FakeQuantize:
        """Make this the fake quantization of a weight; returns itself.

        Weights are rounded by the arithmetic of weights, and the buffers get their final shape at
        once, which distributed training relies on.

        Args:
            weight: The weight, or any tensor of its shape.
        """
        self._is_weight = True
        axis = self.ch_axis
        if axis is not None and not self.observed:
            channels = weight.shape[axis]
            self.scale = self.scale.new_ones(channels)
            self.zero_point = self.zero_point.new_zeros(channels)
            for name in ("min_val", "max_val"):
                if isinstance(getattr(self.observer, name, None), Tensor):
                    empty = float("inf") if name == "min_val" else -float("inf")
                    setattr(self.observer, name, self.scale.new_full((channels,), empty))
        return self.to(weight.device)

    def extra_repr(self) -> str:
        """Which switches are off."""
        switches = ("observer_enabled", "fake_quantize_enabled")
        return ", ".join(f"{name}=False" for name in switches if not getattr(self, name))

    def _refresh(self) -> None:
        """Take over the parameters of the range as it now is."""
        if isinstance(self.observer, PlaceholderObserver) or not self.observer.observed:
            return
        scale, zero_point = self.observer.calculate_qparams()
        for name, value in (("scale", scale), ("zero_point", zero_point)):
            buffer: Tensor = getattr(self, name)
            if buffer.shape == value.shape:
                buffer.copy_(value)
            else:
                setattr(self, name, value.to(buffer, copy=True))

    def _rounded(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """What the codes of ``x`` stand for, and the size of a step where values may be clipped."""
        limits = self.quant_min, self.quant_max, storage_dtype(self.dtype)
        if self.is_dynamic:
            is_symmetric = self.qscheme in SYMMETRIC_SCHEMES
            chosen = quantize_per_tensor_dynamic(x, *limits, is_symmetric, float(self.eps))
            return dequantize_dynamic(chosen), None
        axis = self.ch_axis
        if self._is_weight:
            values = self.quantized(x).dequantize()
        elif axis is None:
            scale, zero_point = float(self.scale), int(self.zero_point)
            codes = quantize_per_tensor(x, scale, zero_point, *limits)
            values = dequantize_per_tensor(codes, scale, zero_point)
        else:
            codes = quantize_per_channel(x, self.scale, self.zero_point, axis, *limits)
            values = dequantize_per_channel(codes, self.scale, self.zero_point, axis)
        shape = [-1 if axis is not None and dim == axis % x.dim() else 1 for dim in range(x.dim())]
        return values, self.scale.view(shape)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:  # torch's
        for name in ("scale", "zero_point"):
            stored, mine = state_dict.get(prefix + name), getattr(self, name)
            if isinstance(stored, Tensor) and stored.ndim == mine.ndim:
                setattr(self, name, mine.new_empty(stored.shape))
        super()._load_from_state_dict(state_dict, prefix, *args)


class _StraightThrough(torch.autograd.Function):
    """Rounding that gradients pass through, except where values were clipped."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, rounded: Callable[[Tensor], tuple[Tensor, Tensor | None]]
    ) -> Tensor:
        values, step = rounded(x)
        if step is not None:
            ctx.save_for_backward((values - x).abs() <= _HALF_STEP * step)
        return values.to(x.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (gradient,) = gradients
        for inside in ctx.saved_tensors:
            gradient = gradient * inside
        return gradient, None


def is_per_channel(observer: Any) -> bool:
    """Whether an observer keeps a range for each channel."""
    return observer.qscheme in PER_CHANNEL_SCHEMES


def is_fake_quantize(module: nn.Module) -> bool:
    """Whether ``module`` rounds what it observes: one of ours, or one of PyTorch's by its switch."""
    return isinstance(module, FakeQuantize) or hasattr(module, "fake_quant_enabled")
