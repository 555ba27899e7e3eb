"""What a user says about the parts of a model that are quantized apart from the rest, or in their own way."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from torch import nn
from typing_extensions import Self

from fusion_core.configs.names import ModuleType, PicklableModel
from fusion_core.configs.qconfig_mapping import QConfigMapping

Place = str | ModuleType
"""A module by its path in the user's model, or every module of exactly this type."""


class Standalone(BaseModel):
    """How a submodule is quantized that is a model of its own within the model.

    It takes and gives float tensors, and nothing in it is fused or observed together with what
    surrounds it.

    Attributes:
        qconfig_mapping: Its own mapping, by paths in the whole model; None for the one that the
            rest of the model gets.
        backend: Name of its own backend, or the backend; None for the one of the rest.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    qconfig_mapping: QConfigMapping | None = None
    backend: Any = None

    @field_validator("backend")
    @classmethod
    def _is_a_backend(cls, backend: Any) -> Any:
        if backend is None or isinstance(backend, str) or hasattr(backend, "entries"):
            return backend
        raise ValueError(
            f"{backend!r} is no backend; give its name, or what core.get_backend returns"
        )

    def __getstate__(self) -> dict[Any, Any]:
        """Pickled with the backend's name, since a backend holds functions of its plugin."""
        state = super().__getstate__()
        backend = self.backend
        name = backend if backend is None or isinstance(backend, str) else backend.name
        return {**state, "__dict__": {**state["__dict__"], "backend": name}}


class CustomConfig(PicklableModel):
    """What is special about some modules, inputs, outputs and attributes of a model.

    Modules are given by their path in the user's model or by their exact type. Paths of inputs and
    outputs are ``x``, or ``0`` for the first, and then what Python would write to get there:
    ``x['left']``, ``x[0]``, ``x.left``; the output of a model that gives one tensor has the path
    ``""``.

    Attributes:
        non_traceable: Modules whose forward stays Python; the modules in them are quantized each on
            its own.
        standalone: Submodules that are models of their own.
        observed_modules: For a module type, the type whose ``from_float(float_module)`` takes its
            place while calibrating. Its tensor inputs and its output are quantized.
        quantized_modules: For an observed type, the type whose ``from_observed(observed)`` takes its
            place in the quantized model.
        quantized_inputs: Inputs that the quantized model takes as integer codes.
        quantized_outputs: Outputs that the quantized model gives as integer codes.
        preserved_attributes: Attributes of the model that the result keeps, beside the plain ones,
            which it always keeps: callables and others.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    non_traceable: tuple[Place, ...] = ()
    standalone: dict[Place, Standalone] = Field(default_factory=dict)
    observed_modules: dict[type[nn.Module], type[nn.Module]] = Field(default_factory=dict)
    quantized_modules: dict[type[nn.Module], type[nn.Module]] = Field(default_factory=dict)
    quantized_inputs: tuple[str, ...] = ()
    quantized_outputs: tuple[str, ...] = ()
    preserved_attributes: tuple[str, ...] = ()

    @field_validator("non_traceable", "standalone", mode="before")
    @classmethod
    def _places(cls, given: Any) -> Any:
        if isinstance(given, (str, type)):
            raise ValueError(f"give several, or one in a tuple: ({given!r},)")  # noqa: TRY004  pydantic's
        return given

    @field_validator("observed_modules")
    @classmethod
    def _observed(cls, table: dict[type[nn.Module], Any]) -> dict[type[nn.Module], Any]:
        return _with_constructors(table, "from_float")

    @field_validator("quantized_modules")
    @classmethod
    def _quantized(cls, table: dict[type[nn.Module], Any]) -> dict[type[nn.Module], Any]:
        return _with_constructors(table, "from_observed")

    @model_validator(mode="after")
    def _are_complete(self) -> Self:
        for float_type, observed in self.observed_modules.items():
            if observed not in self.quantized_modules:
                raise ValueError(
                    f"observed_modules turns {float_type.__name__} into {observed.__name__}, and quantized_modules "
                    f"does not say what becomes of that; add {observed.__name__}: its quantized type"
                )
        return self

    def places(self) -> Iterator[tuple[str, str | type[nn.Module]]]:
        """Each module that is given, with the name of the field it is given in."""
        for place in self.non_traceable:
            yield "non_traceable", place
        for place in self.standalone:
            yield "standalone", place
        for place in self.observed_modules:
            yield "observed_modules", place


def _with_constructors(
    table: dict[type[nn.Module], Any], constructor: str
) -> dict[type[nn.Module], Any]:
    for target in table.values():
        if not callable(getattr(target, constructor, None)):
            msg = f"{target.__name__} has no {constructor}, by which it is made"
            raise ValueError(msg)  # noqa: TRY004  pydantic reports ValueError with the field's name
    return table
