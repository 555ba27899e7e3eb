"""Ready-made qconfigs."""

from __future__ import annotations

import torch
from torch import nn

from fusion_core.configs import ObserverSpec, QConfig, QConfigMapping
from fusion_core.nn import HistogramObserver, MinMaxObserver, PerChannelMinMaxObserver

_UNSIGNED, _SIGNED = (0, 255), (-128, 127)


def static_qconfig(  # noqa: PLR0913  settings, by keyword
    *,
    quant_max: int | None = None,
    weight_min: int = -128,
    weight_max: int = 127,
    dtype: torch.dtype = torch.quint8,
    symmetric: bool = False,
    per_channel: bool = True,
    ch_axis: int = 0,
    eps: float | None = None,
    weight_eps: float | None = None,
) -> QConfig:
    """Activations per tensor from a histogram, weights in symmetric ``qint8``.

    Args:
        quant_max: Largest activation code; default that of ``dtype``.
        weight_min: Smallest weight code.
        weight_max: Largest weight code.
        dtype: Of activations, ``torch.quint8`` or ``torch.qint8``.
        symmetric: Whether the code of an activation's 0 is fixed in the middle, instead of
            measured.
        per_channel: Whether a weight has a scale for each channel, or one.
        ch_axis: Which dimension of a weight is the output's channel: 0, or 1 in transposed
            convolutions.
        eps: Smallest scale of an activation; default that of the observer.
        weight_eps: Smallest scale of a weight; default ``eps``.
    """
    lowest, highest = _SIGNED if dtype is torch.qint8 else _UNSIGNED
    activation = ObserverSpec(
        HistogramObserver,
        dtype=dtype,
        qscheme=torch.per_tensor_symmetric if symmetric else torch.per_tensor_affine,
        quant_min=lowest,
        quant_max=highest if quant_max is None else quant_max,
        **_floor(eps),
    )
    weight = ObserverSpec(
        PerChannelMinMaxObserver if per_channel else MinMaxObserver,
        dtype=torch.qint8,
        qscheme=torch.per_channel_symmetric if per_channel else torch.per_tensor_symmetric,
        quant_min=weight_min,
        quant_max=weight_max,
        **_floor(eps if weight_eps is None else weight_eps),
        **({"ch_axis": ch_axis} if per_channel else {}),
    )
    return QConfig(activation=activation, weight=weight)


def _floor(eps: float | None) -> dict[str, float]:
    return {} if eps is None else {"eps": eps}


def static_qconfig_mapping(qconfig: QConfig) -> QConfigMapping:
    """``qconfig`` for everything, its weight observer turned to the output's channel of transposed convolutions.

    Their weight is of shape [in, out / groups, ...], that of all other layers [out, ...].

    Args:
        qconfig: For example what :func:`static_qconfig` gives. A weight observer without the option
            ``ch_axis`` is used as it is.
    """
    mapping = QConfigMapping(global_qconfig=qconfig)
    weight = qconfig.weight
    if not isinstance(weight, ObserverSpec) or "ch_axis" not in weight.options:
        return mapping
    turned = qconfig.model_copy(update={"weight": weight.with_options(ch_axis=1)})
    for kind in (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d):
        mapping.set_object_type(kind, turned)
    return mapping
