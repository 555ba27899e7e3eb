"""Ready-made qconfigs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from fusion_core.configs import ObserverSpec, QConfig, QConfigMapping
from fusion_core.nn import (
    HistogramObserver,
    MinMaxObserver,
    PerChannelMinMaxObserver,
    PlaceholderObserver,
)

_UNSIGNED, _SIGNED = (0, 255), (-128, 127)
_FLOAT = ObserverSpec(PlaceholderObserver, dtype=torch.float32)
_EMBEDDINGS = (nn.Embedding, functional.embedding, nn.EmbeddingBag)
_TRANSPOSED = (
    *(nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d),
    *(functional.conv_transpose1d, functional.conv_transpose2d, functional.conv_transpose3d),
)
_PRODUCTS = (
    *(nn.Linear, functional.linear),
    *(nn.LSTM, nn.GRU, nn.LSTMCell, nn.GRUCell, nn.RNNCell),
)


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
    options = _codes(dtype, quant_max, eps, symmetric=symmetric)
    activation = ObserverSpec(HistogramObserver, options)
    weight = _symmetric_weight(
        (weight_min, weight_max),
        eps if weight_eps is None else weight_eps,
        ch_axis=ch_axis if per_channel else None,
    )
    return QConfig(activation=activation, weight=weight)


def dynamic_qconfig(  # noqa: PLR0913  settings, by keyword
    *,
    dtype: torch.dtype = torch.quint8,
    quant_max: int | None = None,
    weight_min: int = -128,
    weight_max: int = 127,
    symmetric: bool = False,
    per_channel: bool = True,
    eps: float | None = None,
    weight_eps: float | None = None,
) -> QConfig:
    """Inputs per tensor with parameters from their own range while running, weights in symmetric ``qint8``.

    Args:
        dtype: Of inputs, ``torch.quint8`` or ``torch.qint8``.
        quant_max: Largest code of an input; default that of ``dtype``.
        weight_min: Smallest weight code.
        weight_max: Largest weight code.
        symmetric: Whether the code of an input's 0 is fixed in the middle.
        per_channel: Whether a weight has a scale for each output, or one.
        eps: Smallest scale of an input; default that of the observer.
        weight_eps: Smallest scale of a weight; default ``eps``.
    """
    options = _codes(dtype, quant_max, eps, symmetric=symmetric)
    activation = ObserverSpec(PlaceholderObserver, options, is_dynamic=True)
    weight = _symmetric_weight(
        (weight_min, weight_max),
        eps if weight_eps is None else weight_eps,
        ch_axis=0 if per_channel else None,
    )
    return QConfig(activation=activation, weight=weight)


def weight_only_qconfig(*, bits: int = 8) -> QConfig:
    """Weights in unsigned codes, with scale and minimum of each row; everything else in float.

    The minimum of a row has the smallest code, so that 0 need not have one: the scheme of
    embeddings.

    Args:
        bits: Of a code, 8 or 4.

    Raises:
        ValueError: ``bits`` is something else.
    """
    dtypes = {8: torch.quint8, 4: torch.quint4x2}
    if bits not in dtypes:
        raise ValueError(f"weights of {bits} bits were asked for; there are 8 and 4")
    weight = ObserverSpec(
        PerChannelMinMaxObserver,
        dtype=dtypes[bits],
        qscheme=torch.per_channel_affine_float_qparams,
        ch_axis=0,
    )
    return QConfig(activation=_FLOAT, weight=weight)


def float16_qconfig() -> QConfig:
    """Weights in float16; everything else in float32."""
    return QConfig(activation=_FLOAT, weight=ObserverSpec(PlaceholderObserver, dtype=torch.float16))


def _codes(
    dtype: torch.dtype, quant_max: int | None, eps: float | None, *, symmetric: bool
) -> dict[str, Any]:
    """The options of an activation's observer."""
    lowest, highest = _SIGNED if dtype is torch.qint8 else _UNSIGNED
    return {
        "dtype": dtype,
        "qscheme": torch.per_tensor_symmetric if symmetric else torch.per_tensor_affine,
        "quant_min": lowest,
        "quant_max": highest if quant_max is None else quant_max,
        **_floor(eps),
    }


def _symmetric_weight(
    codes: tuple[int, int], eps: float | None, *, ch_axis: int | None
) -> ObserverSpec:
    """The observer of a weight in ``qint8``; without an axis, of the whole weight."""
    per_channel = ch_axis is not None
    return ObserverSpec(
        PerChannelMinMaxObserver if per_channel else MinMaxObserver,
        dtype=torch.qint8,
        qscheme=torch.per_channel_symmetric if per_channel else torch.per_tensor_symmetric,
        quant_min=codes[0],
        quant_max=codes[1],
        **_floor(eps),
        **({"ch_axis": ch_axis} if per_channel else {}),
    )


def _floor(eps: float | None) -> dict[str, float]:
    return {} if eps is None else {"eps": eps}


def static_qconfig_mapping(
    qconfig: QConfig, *, transposed: QConfig | None = None, in_float: Iterable[Any] = ()
) -> QConfigMapping:
    """``qconfig`` for everything, its weight observer turned to the output's channel of transposed convolutions.

    Their weight is of shape [in, out / groups, ...], that of all other layers [out, ...].

    Args:
        qconfig: For example what :func:`static_qconfig` gives. A weight observer without the option
            ``ch_axis`` is used as it is.
        transposed: For transposed convolutions, where it is to be another.
        in_float: Types of operations that stay in float.
    """
    mapping = QConfigMapping(global_qconfig=qconfig)
    weight = qconfig.weight
    if transposed is None and isinstance(weight, ObserverSpec) and "ch_axis" in weight.options:
        transposed = qconfig.model_copy(update={"weight": weight.with_options(ch_axis=1)})
    if transposed is not None:
        for kind in _TRANSPOSED:
            mapping.set_object_type(kind, transposed)
    for kind in in_float:
        mapping.set_object_type(kind, None)
    return mapping


def dynamic_qconfig_mapping(
    qconfig: QConfig, *, embedding: QConfig | None = None
) -> QConfigMapping:
    """``qconfig`` for linear and recurrent layers, ``embedding`` for embeddings, and all else in float.

    Args:
        qconfig: For example what :func:`dynamic_qconfig` or :func:`float16_qconfig` gives.
        embedding: For example what :func:`weight_only_qconfig` gives; None leaves embeddings in
            float.
    """
    mapping = QConfigMapping()
    for kind in _PRODUCTS:
        mapping.set_object_type(kind, qconfig)
    return _with_embeddings(mapping, embedding)


def weight_only_qconfig_mapping(
    embedding: QConfig, *, other: QConfig | None = None
) -> QConfigMapping:
    """``embedding`` for embeddings, ``other`` for linear and recurrent layers, and all else in float.

    Args:
        embedding: For example what :func:`weight_only_qconfig` gives.
        other: For example what :func:`float16_qconfig` gives; None leaves those layers in float.
    """
    mapping = QConfigMapping() if other is None else dynamic_qconfig_mapping(other)
    return _with_embeddings(mapping, embedding)


def _with_embeddings(mapping: QConfigMapping, qconfig: QConfig | None) -> QConfigMapping:
    if qconfig is not None:
        for kind in _EMBEDDINGS:
            mapping.set_object_type(kind, qconfig)
    return mapping
