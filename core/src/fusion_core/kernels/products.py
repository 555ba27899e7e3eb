"""Linear layers on float values: the input is quantized while running, or the weight is in float16."""

from __future__ import annotations

import torch
from torch import Tensor

from fusion_core.kernels.matrices import MatrixKernel, PackedMatrix
from fusion_core.qops import QuantizedTensor

Bounds = tuple[float | None, float | None]

_RECTIFIED: Bounds = (0.0, None)
_DONE_BY_KERNEL = {(None, None), _RECTIFIED}


class FloatLinear(MatrixKernel):
    """A linear layer from float to float, with what bounds its output.

    A weight in int8 meets an input that is quantized with parameters from its own range; one in
    float16 meets the input as it is.

    Attributes:
        bounds: Smallest and largest output, or None.
        short: Whether a quantized input has codes of 7 bits.
    """

    def __init__(
        self,
        engine: str,
        weight: QuantizedTensor,
        bias: Tensor | None,
        *,
        bounds: Bounds = (None, None),
        short: bool = False,
    ) -> None:
        """Pack ``weight``, int8 codes or float16 of shape [out, in], and ``bias``, float32 of shape [out]."""
        super().__init__({"weight": PackedMatrix(engine, weight, bias)})
        self.bounds = bounds
        self.short = short

    def forward(self, x: Tensor) -> Tensor:
        """Of ``x``, float of shape [..., in]; float32 of shape [..., out].

        Raises:
            ValueError: ``x`` is to be quantized, and holds NaN or infinity.
        """
        rows = x.float() if x.dim() > 1 else x.float().unsqueeze(0)
        rectified = self.bounds == _RECTIFIED
        result = self.matrices["weight"].product(rows, short=self.short, rectified=rectified)
        if self.bounds not in _DONE_BY_KERNEL:
            result = torch.clamp(result, *self.bounds)
        return result if x.dim() > 1 else result.squeeze(0)
