"""The one door to PyTorch's quantized CPU engines and their tensors."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

import torch
from torch import Tensor

from fusion_core.qops import QuantizedTensor

_engine_lock = threading.RLock()


@contextmanager
def quantized_engine(name: str) -> Iterator[None]:
    """Select a quantized engine while weights are packed, and restore what the process had.

    Raises:
        ValueError: This build of PyTorch lacks the engine.
    """
    problem = engine_unavailable(name)
    if problem is not None:
        raise ValueError(problem)
    with _engine_lock:
        before = torch.backends.quantized.engine
        torch.backends.quantized.engine = name
        try:
            yield
        finally:
            torch.backends.quantized.engine = before


def engine_unavailable(name: str) -> str | None:
    """Why this machine cannot run an engine, or None where it can."""
    supported = torch.backends.quantized.supported_engines
    if name in supported:
        return None
    return f"this build of PyTorch has no {name} engine; it has {', '.join(supported)}"


@lru_cache(maxsize=1)
def accept_quantized_tensors() -> None:
    """Let PyTorch say once, unheard, that tensors of quantized dtype will go; its kernels take no others.

    The warning is given at the first such tensor of a process, so it is met here and not in a
    user's forward.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.quantize_per_tensor(torch.zeros(1), 1.0, 0, torch.quint8)


def native_weight(weight: QuantizedTensor) -> Tensor:
    """A weight as the tensor of dtype ``qint8`` that the engines pack."""
    accept_quantized_tensors()
    values = weight.dequantize()
    if weight.axis is None:
        return torch.quantize_per_tensor(
            values, float(weight.scale), int(weight.zero_point), torch.qint8
        )
    return torch.quantize_per_channel(
        values, weight.scale.double(), weight.zero_point.long(), weight.axis, torch.qint8
    )


def plain_weight(weight: Tensor) -> QuantizedTensor:
    """The inverse of :func:`native_weight`."""
    if weight.qscheme() is torch.per_tensor_affine:
        scale, zero_point = torch.tensor([weight.q_scale()]), torch.tensor([weight.q_zero_point()])
        return QuantizedTensor(weight.int_repr(), scale, zero_point.int())
    scales, zero_points = weight.q_per_channel_scales(), weight.q_per_channel_zero_points()
    return QuantizedTensor(
        weight.int_repr(), scales.float(), zero_points.int(), weight.q_per_channel_axis()
    )
