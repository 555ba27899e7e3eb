"""Which dtypes a backend's kernel takes, and within which limits."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import BaseModel, ConfigDict, model_validator

from fusion_core.configs.names import DType

Place = Literal["input", "output", "weight", "bias"]


class DTypeWithConstraints(BaseModel):
    """A dtype and the limits a kernel puts on its quantization parameters.

    Attributes:
        dtype: For example ``torch.quint8``; None accepts any.
        quant_min_lower_bound: Smallest integer code the kernel allows.
        quant_max_upper_bound: Largest integer code the kernel allows.
        scale_min_lower_bound: Smallest scale the kernel allows.
        scale_max_upper_bound: Largest scale the kernel allows.
        scale_exact_match: The only scale the kernel allows.
        zero_point_exact_match: The only zero point the kernel allows.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    dtype: DType | None = None
    quant_min_lower_bound: int | float | None = None
    quant_max_upper_bound: int | float | None = None
    scale_min_lower_bound: float | None = None
    scale_max_upper_bound: float | None = None
    scale_exact_match: float | None = None
    zero_point_exact_match: int | None = None

    @model_validator(mode="after")
    def _bounds_are_ordered(self) -> DTypeWithConstraints:
        for low, high, what in (
            (self.quant_min_lower_bound, self.quant_max_upper_bound, "quantized range"),
            (self.scale_min_lower_bound, self.scale_max_upper_bound, "scale range"),
        ):
            if low is not None and high is not None and low >= high:
                msg = f"the {what} is empty: lower bound {low} is not below upper bound {high}"
                raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _scales_are_possible(self) -> DTypeWithConstraints:
        for name in ("scale_max_upper_bound", "scale_exact_match"):
            scale = getattr(self, name)
            if scale is not None and scale <= 0:
                msg = f"{name} is {scale}; scales are above zero"
                raise ValueError(msg)
        bounded = {self.scale_min_lower_bound, self.scale_max_upper_bound} != {None}
        if self.scale_exact_match is not None and bounded:
            msg = "scale_exact_match leaves no room for bounds of the scale; give one or the other"
            raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _only_codes_have_limits(self) -> DTypeWithConstraints:
        given = [name for name, value in self if name != "dtype" and value is not None]
        if self.dtype is not None and self.dtype.is_floating_point and given:
            msg = f"{self.dtype} has no codes, so {', '.join(given)} can mean nothing"
            raise ValueError(msg)
        return self


class DTypeConfig(BaseModel):
    """One combination of dtypes that a pattern can run in.

    Each of the four may be a dtype, or a :class:`DTypeWithConstraints`, or None for "not
    specified".

    Attributes:
        input_dtype: Of every tensor input.
        output_dtype: Of the output.
        weight_dtype: Of the weight.
        bias_dtype: Of the bias.
        is_dynamic: Whether the input's parameters are computed while running.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    input_dtype: DTypeWithConstraints | DType | None = None
    output_dtype: DTypeWithConstraints | DType | None = None
    weight_dtype: DTypeWithConstraints | DType | None = None
    bias_dtype: DType | None = None
    is_dynamic: bool = False

    def constraints(self, place: Place) -> DTypeWithConstraints:
        """What is required of ``place``; without limits where only a dtype was given."""
        value = getattr(self, f"{place}_dtype")
        if isinstance(value, DTypeWithConstraints):
            return value
        return DTypeWithConstraints(dtype=value)


INTEGER_DTYPES = frozenset(
    {
        *(torch.quint8, torch.qint8, torch.qint32, torch.quint4x2),
        *(torch.uint8, torch.int8, torch.int32),
    }
)
"""Dtypes in which values are stored as integer codes."""
