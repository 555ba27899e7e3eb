"""Which observers an operation gets, and which operations get which: ``QConfig`` and ``QConfigMapping``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any

import torch
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    WithJsonSchema,
    field_validator,
)

from fusion_core.configs.names import Function, PicklableModel, qualified_name
from fusion_core.configs.observation import Mode
from fusion_core.configs.observers import ObserverFactory, ObserverSpec, quantized_type

Observer = ObserverSpec | Function


class QConfig(BaseModel):
    """The observers of one operation.

    Attributes:
        activation: Of inputs and outputs alike.
        weight: Of the weight.
        input: Of inputs, where they differ from ``activation``.
        output: Of the output, where it differs from ``activation``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    activation: Observer
    weight: Observer
    input: Observer | None = None
    output: Observer | None = None

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


def _check_regular_expression(regex: str) -> None:
    try:
        re.compile(regex)
    except re.error as error:
        msg = f"{regex!r} is not a regular expression: {error}"
        raise ValueError(msg) from error


ObjectTypes = Annotated[
    dict[Any, QConfig | None],
    PlainSerializer(
        lambda table: {
            key if isinstance(key, str) else qualified_name(key): value
            for key, value in table.items()
        },
        when_used="json",
    ),
    WithJsonSchema(
        {"type": "object", "description": "qconfig by module type, function or method name"}
    ),
]


class QConfigMapping(PicklableModel):
    """Which operation gets which :class:`QConfig`; None leaves it in float.

    A more specific rule wins over a more general one: module name with operation type and index,
    then module name (its own, else the nearest enclosing module's), then name regex, then operation
    type, then global. An explicit None counts like any other value.

    Attributes:
        global_qconfig: For everything no other rule speaks of.
        object_type_qconfigs: By module type, function, or method name.
        module_name_regex_qconfigs: By regular expression, matched from the start of the module's
            path as ``re.match`` does; the first that matches wins.
        module_name_qconfigs: By the module's path; holds for everything within it.
        module_name_object_type_order_qconfigs: By enclosing module's path, type, and index among
            its like.
    """

    model_config = ConfigDict(
        extra="forbid", arbitrary_types_allowed=True, validate_assignment=True
    )

    global_qconfig: QConfig | None = None
    object_type_qconfigs: ObjectTypes = Field(default_factory=dict)
    module_name_regex_qconfigs: dict[str, QConfig | None] = Field(default_factory=dict)
    module_name_qconfigs: dict[str, QConfig | None] = Field(default_factory=dict)
    module_name_object_type_order_qconfigs: Annotated[
        dict[tuple[str, Any, int], QConfig | None],
        PlainSerializer(
            lambda table: {str(key): value for key, value in table.items()}, when_used="json"
        ),
        WithJsonSchema({"type": "object"}),
    ] = Field(default_factory=dict)

    @field_validator("module_name_regex_qconfigs")
    @classmethod
    def _are_regular_expressions(
        cls, table: dict[str, QConfig | None]
    ) -> dict[str, QConfig | None]:
        for regex in table:
            _check_regular_expression(regex)
        return table

    def set_global(self, qconfig: QConfig | None) -> QConfigMapping:
        """Use ``qconfig`` where no other rule applies; returns the mapping itself, as all setters do."""
        self.global_qconfig = qconfig
        return self

    def set_object_type(self, object_type: Any, qconfig: QConfig | None) -> QConfigMapping:
        """Use ``qconfig`` for a module type, a function, or a method name."""
        self.object_type_qconfigs = {**self.object_type_qconfigs, object_type: qconfig}
        return self

    def set_module_name_regex(self, regex: str, qconfig: QConfig | None) -> QConfigMapping:
        """Use ``qconfig`` for modules whose path ``regex`` matches from its start.

        Raises:
            ValueError: ``regex`` is not a regular expression.
        """
        self.module_name_regex_qconfigs = {**self.module_name_regex_qconfigs, regex: qconfig}
        return self

    def set_module_name(self, module_name: str, qconfig: QConfig | None) -> QConfigMapping:
        """Use ``qconfig`` for the module at this path and everything within it."""
        self.module_name_qconfigs = {**self.module_name_qconfigs, module_name: qconfig}
        return self

    def set_module_name_object_type_order(
        self, module_name: str, object_type: Any, index: int, qconfig: QConfig | None
    ) -> QConfigMapping:
        """Use ``qconfig`` for the ``index``-th operation of a type called directly within a module."""
        key = (module_name, object_type, index)
        table = {**self.module_name_object_type_order_qconfigs, key: qconfig}
        self.module_name_object_type_order_qconfigs = table
        return self

    def resolve(
        self,
        path: str,
        object_types: Sequence[Any],
        *,
        scope: str,
        order: Sequence[tuple[Any, int]] = (),
    ) -> tuple[QConfig | None, str]:
        """The qconfig of one operation and the rule it came from.

        Args:
            path: Path of the called module, or of the module a function is called in.
            object_types: What the operation can be named by, most specific first.
            scope: Path of the module in whose forward the call stands.
            order: For each name, the operation's index among its like within ``scope``.

        Returns:
            The qconfig, None for float, and the rule in words.
        """
        for object_type, index in order:
            key = (scope, object_type, index)
            if key in self.module_name_object_type_order_qconfigs:
                return self.module_name_object_type_order_qconfigs[
                    key
                ], f"module name, type and order {key}"
        parts = path.split(".") if path else []
        for length in range(len(parts), 0, -1):
            name = ".".join(parts[:length])
            if name in self.module_name_qconfigs:
                return self.module_name_qconfigs[name], f"module name {name!r}"
        for regex, qconfig in self.module_name_regex_qconfigs.items():
            if re.match(regex, path):
                return qconfig, f"module name regex {regex!r}"
        for object_type in object_types:
            if object_type in self.object_type_qconfigs:
                return self.object_type_qconfigs[object_type], f"operation type {object_type!r}"
        return self.global_qconfig, "global"
