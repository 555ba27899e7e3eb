"""Scale and zero point of outputs whose range is known without data."""

from __future__ import annotations

import torch

from fusion_core.configs import DTypeConfig, DTypeWithConstraints
from fusion_core.nn.protocol import INTEGER_RANGES

_CODES = {
    dtype: INTEGER_RANGES[dtype] for dtype in (torch.quint8, torch.uint8, torch.qint8, torch.int8)
}


def with_fixed_range(config: DTypeConfig, *, lowest: int) -> DTypeConfig:
    """``config`` with the only scale and zero point its output may have.

    Args:
        config: A combination of dtypes. It is returned as it is where its output has no codes of 8
            bits, or has its scale already.
        lowest: Lower end of the range, 0 or -1; the upper one is 1, and excluded.
    """
    output = config.constraints("output")
    if output.dtype not in _CODES or output.scale_exact_match is not None:
        return config
    low, high = _limits(output)
    zero_point = output.zero_point_exact_match
    if zero_point is None:
        zero_point = low if lowest == 0 else low + (high - low + 1) // 2
    scale = 1.0 / (high - zero_point + 1)
    if lowest < 0:
        scale = max(scale, 1.0 / (zero_point - low))
    fixed = DTypeWithConstraints(
        dtype=output.dtype,
        quant_min_lower_bound=output.quant_min_lower_bound,
        quant_max_upper_bound=output.quant_max_upper_bound,
        scale_exact_match=scale,
        zero_point_exact_match=zero_point,
    )
    return config.model_copy(update={"output_dtype": fixed})


def _limits(output: DTypeWithConstraints) -> tuple[int, int]:
    low, high = _CODES[output.dtype]  # type: ignore[index]  # asked before
    if output.quant_min_lower_bound is not None:
        low = max(low, int(output.quant_min_lower_bound))
    if output.quant_max_upper_bound is not None:
        high = min(high, int(output.quant_max_upper_bound))
    return low, high
