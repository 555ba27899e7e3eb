"""The fake quantization that belongs to an observer: what calibration measures, training simulates."""

from __future__ import annotations

from typing import Any, Final

from torch import nn

from fusion_core.configs import ObserverFactory, ObserverSpec, quantized_type
from fusion_core.nn.fake_quantize import FakeQuantize, is_fake_quantize, is_per_channel
from fusion_core.nn.observers import (
    FixedQParamsObserver,
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
)
from fusion_core.nn.protocol import INTEGER_RANGES, Observer

_OPTIONS: Final = ("dtype", "qscheme", "quant_min", "quant_max", "eps")


def fake_quantize_of(
    factory: ObserverFactory, *, averaging_constant: float = 0.01, weight: bool = False
) -> ObserverFactory:
    """The recipe for training that belongs to one for calibration: same dtype, scheme, codes and eps.

    Args:
        factory: Builds an observer, one of ours or of PyTorch. A recipe whose product serves in
            training as it is comes back unchanged: one that rounds already, or has a float dtype.
        averaging_constant: How far the range of an activation moves to that of each batch. A moving
            average keeps its own.
        weight: Whether it is for a weight, whose range is always that of the present tensor.

    Returns:
        A recipe for a :class:`FakeQuantize`.
    """
    built: Any = factory()
    if is_fake_quantize(built) or built.dtype not in INTEGER_RANGES:
        return factory
    options = _options(factory, built)
    fixed = quantized_type(factory).fixed
    if fixed is not None:
        parameters = {"scale": fixed[0], "zero_point": fixed[1]}
        return _recipe(FixedQParamsObserver, **options, **parameters)
    if getattr(built, "is_dynamic", False):
        return _recipe(MinMaxObserver, **options, is_dynamic=True)
    share = 1.0 if weight else float(getattr(built, "averaging_constant", averaging_constant))
    if is_per_channel(built):
        axis = int(getattr(built, "ch_axis", 0))
        kind = MovingAveragePerChannelMinMaxObserver
        return _recipe(kind, **options, averaging_constant=share, ch_axis=axis)
    return _recipe(MovingAverageMinMaxObserver, **options, averaging_constant=share)


def weight_fake_quantize(factory: ObserverFactory, weight: nn.Parameter) -> nn.Module:
    """The fake quantization of one weight.

    Args:
        factory: Builds an observer or a fake quantization.
        weight: The weight; says how many channels there are and where it lives.

    Returns:
        A module that is called with the weight and returns it rounded; one for a float dtype
        returns it as it is.
    """
    made = fake_quantize_of(factory, weight=True)()
    if isinstance(made, FakeQuantize):
        return made.for_weight(weight)
    return made.to(weight.device)


def _recipe(observer: type[Observer], **options: Any) -> ObserverSpec:
    return ObserverSpec(FakeQuantize, {"observer": observer, **options})


def _options(factory: ObserverFactory, built: Any) -> dict[str, Any]:
    """What the observer was built with, of that which all observers have."""
    if isinstance(built, Observer) and isinstance(factory, ObserverSpec):
        return {key: value for key, value in factory.options.items() if key in _OPTIONS}
    options = {"dtype": built.dtype, "qscheme": built.qscheme, "eps": float(built.eps)}
    limits = built.quant_min, built.quant_max
    # A range that is named counts as chosen, which moves the middle of a symmetric one.
    if limits != INTEGER_RANGES[built.dtype]:
        options.update(quant_min=limits[0], quant_max=limits[1])
    return options
