"""Transposed convolutions of two rows, in a form that FBGEMM computes rightly.

With a kernel of two rows, no padding and channels in eights, FBGEMM takes a path of its own, whose sums are wrong and
differ from call to call. A row of zeros above and one below, and as much padding, is the same convolution on the
general path.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch.nn.functional as F  # noqa: N812  the name everyone knows it by

from fusion_core.kernels.geometry import ConvSettings
from fusion_core.qops import QuantizedTensor

_CHANNELS_AT_ONCE = 8
_WIDEST_STRIDE = 2


def right_form(
    settings: ConvSettings, weight: QuantizedTensor
) -> tuple[ConvSettings, QuantizedTensor]:
    """The geometry and the weight to pack; those given where the kernel is right for them.

    Args:
        settings: Geometry of the transposed convolution.
        weight: Codes of shape [in, out / groups, *kernel], with one scale for all.
    """
    if not _goes_astray(settings, weight.codes.shape):
        return settings, weight
    zero = int(weight.zero_point)
    taller = F.pad(weight.codes, (0, 0, 1, 1), value=zero)
    rows, columns = settings.padding
    return replace(settings, padding=(rows + 1, columns)), replace(weight, codes=taller)


def _goes_astray(settings: ConvSettings, weight_shape: Sequence[int]) -> bool:
    inputs, outputs, *kernel = weight_shape
    is_two_rows = len(kernel) == 2 and kernel[0] == 2  # noqa: PLR2004  rows and columns
    is_plain = settings.groups == 1 and not any(settings.padding) and set(settings.dilation) == {1}
    in_eights = not (inputs % _CHANNELS_AT_ONCE or outputs % _CHANNELS_AT_ONCE)
    return is_two_rows and is_plain and in_eights and max(settings.stride) <= _WIDEST_STRIDE
