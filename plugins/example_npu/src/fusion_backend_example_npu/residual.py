"""The end of a residual block, ``relu(batch_norm(conv(x)) + other)``, as one operation."""

from __future__ import annotations

import operator
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  the name everyone knows it by
from torch import Tensor, nn

from fusion_core import MatchAllNode, Skip, catalog

# The last operation comes first, its arguments behind it. A tuple means one spelling and one order,
# so there are eight; `(ops.relu, any_order(ops.add, MatchAllNode, BRANCH))` would say it all at once.
BRANCH = (nn.BatchNorm2d, nn.Conv2d)
PATTERNS = [
    (relu, (add, *operands))
    for relu in (nn.ReLU, F.relu)
    for add in (operator.add, torch.add)
    for operands in ((MatchAllNode, BRANCH), (BRANCH, MatchAllNode))
]


class ConvAddReLU(nn.Sequential):
    """The fused module: the convolution, first because core looks for the weight there, and the ReLU."""

    def forward(self, x: Tensor, other: Tensor) -> Any:  # type: ignore[override]  # two inputs
        """``relu(conv(x) + other)``."""
        conv, relu = self
        return relu(conv(x) + other)


def operands(match: Any) -> tuple[Any, Any]:
    """The branch, which is a tuple, and the other operand, in whichever order the model has them."""
    _, (_, left, right) = match
    return (left, right) if isinstance(left, tuple) else (right, left)


def fuse(is_qat: bool, relu: nn.Module, added: Any) -> nn.Module | Skip:  # noqa: FBT001  core's order
    """The fused module; the modules of the match come nested as in the pattern."""
    (norm, conv), _ = operands((relu, added))
    folded = catalog.fuse_batch_norm(is_qat, conv, norm)
    return folded if isinstance(folded, Skip) else ConvAddReLU(folded, relu)
