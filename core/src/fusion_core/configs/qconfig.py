"""Which observers an operation gets: ``QConfig``."""

from __future__ import annotations

from typing import Annotated, Any

import torch
from pydantic import BaseModel, BeforeValidator, ConfigDict, model_validator

from fusion_core.configs.names import Function
from fusion_core.configs.observation import Mode
from fusion_core.configs.observers import ObserverFactory, ObserverSpec, quantized_type
from fusion_core.configs.torch_qconfig import observer_from_torch, qconfig_from_torch

Observer = Annotated[ObserverSpec | Function, BeforeValidator(observer_from_torch)]


class QConfig(BaseModel):
    """The observers of one operation.

    PyTorch's own observers may stand in the fields, and a qconfig of PyTorch's wherever one of
    these is wanted.

    Attributes:
        activation: Of inputs and outputs alike.
        weight: Of the weight.
        input: Of inputs, where they differ from ``activation``.
        output: Of the output, where it differs from ``activation``.
        bias: Of the bias; left out, it is float32. Only its dtype counts, which a backend's dtype
            config may ask for: no observer ever sees a bias.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    activation: Observer
    weight: Observer
    input: Observer | None = None
    output: Observer | None = None
    bias: Observer | None = None

    @model_validator(mode="before")
    @classmethod
    def _from_torch(cls, value: Any) -> Any:
        return qconfig_from_torch(value)

    @property
    def input_observer(self) -> ObserverFactory:
        """Builds the observer of an input."""
        return self.input or self.activation

    @property
    def output_observer(self) -> ObserverFactory:
        """Builds the observer of the output."""
        return self.output or self.activation


def mode_of(qconfig: QConfig) -> Mode:
    """How an operation with this qconfig is quantized; its input's observer decides."""
    wanted = quantized_type(qconfig.input_observer)
    if wanted.is_dynamic:
        return Mode.DYNAMIC
    return Mode.WEIGHT_ONLY if wanted.dtype is torch.float32 else Mode.STATIC


def as_qconfig(value: Any) -> QConfig:
    """A qconfig of PyTorch's as one of ours; one of ours as it is.

    Raises:
        pydantic.ValidationError: It is neither, or has an observer that cannot be used.
    """
    return QConfig.model_validate(value)
