"""Outputs whose parameters are known without data, because the backend's kernel gives no others."""

from __future__ import annotations

import torch

from fusion_core.configs import DTypeConfig, ObserverSpec, QConfig, quantized_type
from fusion_core.nn import FixedQParamsObserver
from fusion_core.nn.protocol import INTEGER_RANGES


def with_fixed_output(config: DTypeConfig, qconfig: QConfig) -> QConfig:
    """``qconfig`` with the output's parameters that ``config`` prescribes.

    The input keeps its own observer: that a sigmoid gives values between 0 and 1 says nothing of
    what it is given.

    Args:
        config: A combination of dtypes; the exact scale and zero point of its output count.
        qconfig: What an operation is quantized with. An ``output`` that it names itself stays.
    """
    wanted = config.constraints("output")
    scale, zero_point = wanted.scale_exact_match, wanted.zero_point_exact_match
    dtype = quantized_type(qconfig.activation).dtype
    if scale is None or zero_point is None or qconfig.output is not None:
        return qconfig
    if dtype not in INTEGER_RANGES or wanted.dtype not in {None, dtype}:
        return qconfig
    low, high = INTEGER_RANGES[dtype]
    fixed = ObserverSpec(
        FixedQParamsObserver,
        scale=scale,
        zero_point=zero_point,
        dtype=dtype,
        qscheme=torch.per_tensor_affine,
        quant_min=low,
        quant_max=high,
    )
    return qconfig.model_copy(update={"output": fixed, "input": qconfig.input_observer})
