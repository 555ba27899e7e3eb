"""Qconfigs for quantization-aware training, made of those for calibration."""

from __future__ import annotations

from fusion_core.catalog.presets import with_qconfigs
from fusion_core.configs import QConfig, QConfigMapping
from fusion_core.nn.training_recipe import fake_quantize_of


def qat_qconfig(qconfig: QConfig, *, averaging_constant: float = 0.01) -> QConfig:
    """The qconfig that trains a model for what ``qconfig`` quantizes.

    Activations follow the range of the batches by a moving average, weights are rounded in the
    range they have at the time. Dtypes, schemes, codes, smallest scales and fixed ranges are those
    of ``qconfig``; what rounds already, or has a float dtype, stays.

    Args:
        qconfig: A qconfig for calibration, of any mode.
        averaging_constant: How far the range of an activation moves to that of each batch, in (0,
            1]. An observer that is a moving average keeps its own.
    """
    observers = {
        name: None
        if made is None
        else fake_quantize_of(made, averaging_constant=averaging_constant)
        for name, made in (
            ("activation", qconfig.activation),
            ("input", qconfig.input),
            ("output", qconfig.output),
        )
    }
    weight = fake_quantize_of(qconfig.weight, weight=True)
    return qconfig.model_copy(update={**observers, "weight": weight})


def qat_qconfig_mapping(
    mapping: QConfigMapping, *, averaging_constant: float = 0.01
) -> QConfigMapping:
    """``mapping`` with each of its qconfigs turned into that for training, see :func:`qat_qconfig`.

    Args:
        mapping: For example that of a backend; not changed. What rounds already stays as it is.
        averaging_constant: As for :func:`qat_qconfig`.
    """
    return with_qconfigs(
        mapping, lambda qconfig, _key: qat_qconfig(qconfig, averaging_constant=averaging_constant)
    )
