"""Ready-made qconfigs."""

from __future__ import annotations

import torch

from fusion_core.configs import ObserverSpec, QConfig
from fusion_core.nn import HistogramObserver, PerChannelMinMaxObserver


def static_qconfig(
    *, quant_max: int = 255, weight_min: int = -128, weight_max: int = 127
) -> QConfig:
    """Activations per tensor in ``quint8`` from a histogram, weights per channel in symmetric ``qint8``.

    Args:
        quant_max: Largest activation code.
        weight_min: Smallest weight code.
        weight_max: Largest weight code.
    """
    activation = ObserverSpec(
        HistogramObserver,
        dtype=torch.quint8,
        qscheme=torch.per_tensor_affine,
        quant_min=0,
        quant_max=quant_max,
    )
    weight = ObserverSpec(
        PerChannelMinMaxObserver,
        dtype=torch.qint8,
        qscheme=torch.per_channel_symmetric,
        quant_min=weight_min,
        quant_max=weight_max,
        ch_axis=0,
    )
    return QConfig(activation=activation, weight=weight)
