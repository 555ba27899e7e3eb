"""Which operation gets which qconfig: ``QConfigMapping``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from torch import nn

from fusion_core.configs.names import PicklableModel, qualified_name
from fusion_core.configs.qconfig import QConfig
from fusion_core.configs.torch_qconfig import mapping_from_torch, qconfig_from_torch
from fusion_core.patterns import Operation

GLOBAL = "global"
"""What the rule of a qconfig mapping is called that is none of any operation's own."""


def _check_regular_expression(regex: str) -> None:
    try:
        re.compile(regex)
    except re.error as error:
        msg = f"{regex!r} is not a regular expression: {error}"
        raise ValueError(msg) from error


def _checked_object_types(table: dict[Any, Any]) -> dict[Any, Any]:
    for key in table:
        _check_object_type(key)
    return table


def _check_object_type(key: Any) -> None:
    if isinstance(key, nn.Module):
        msg = f"an operation type is a type, and this is an instance; give {type(key).__name__}"
        raise ValueError(msg)  # noqa: TRY004  pydantic reports ValueError with the field's name
    if not (isinstance(key, (str, Operation)) or callable(key)):
        msg = (
            f"{key!r} names no operation; give the type of a module, a function, the name of a "
            "method, or an operation such as fusion_core.ops.relu"
        )
        raise ValueError(msg)  # noqa: TRY004  pydantic reports ValueError with the field's name


def object_type_name(key: Any) -> str:
    """A key of a mapping by name: ``torch.nn.modules.linear.Linear``, ``fusion_core.ops.relu``, ``view``."""
    if isinstance(key, Operation):
        return f"fusion_core.ops.{key.name}"
    return key if isinstance(key, str) else qualified_name(key)


ObjectTypes = Annotated[
    dict[Any, QConfig | None],
    BeforeValidator(_checked_object_types),
    PlainSerializer(
        lambda table: {object_type_name(key): value for key, value in table.items()},
        when_used="json",
    ),
    WithJsonSchema(
        {"type": "object", "description": "qconfig by module type, function or method name"}
    ),
]


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of a qconfig mapping that speaks of an operation.

    Attributes:
        name: The rule in words.
        qconfig: What it gives; None for float.
    """

    name: str
    qconfig: QConfig | None


class QConfigMapping(PicklableModel):
    """Which operation gets which :class:`QConfig`; None leaves it in float.

    A more specific rule wins over a more general one: module name with operation type and index,
    then module name (its own, else the nearest enclosing module's), then name regex, then operation
    type, then global. An explicit None counts like any other value.

    An operation goes by what it is called as, else by the operation that this spells (as
    ``fusion_core.ops.relu`` stands for ``nn.ReLU``, ``F.relu`` and all the others), else by the
    type of the nearest module it stands in: a type holds for everything within its modules.

    A qconfig mapping of PyTorch's may be given wherever one of these is wanted.

    Attributes:
        global_qconfig: For everything no other rule speaks of.
        object_type_qconfigs: By module type, function, method name, or operation.
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

    @model_validator(mode="before")
    @classmethod
    def _from_torch(cls, value: Any) -> Any:
        return value if isinstance(value, cls) else mapping_from_torch(value)

    @field_validator("module_name_object_type_order_qconfigs")
    @classmethod
    def _have_object_types(
        cls, table: dict[tuple[str, Any, int], QConfig | None]
    ) -> dict[tuple[str, Any, int], QConfig | None]:
        for _module_name, object_type, _index in table:
            _check_object_type(object_type)
        return table

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
        """Use ``qconfig`` for a module type, a function, a method name, or an operation.

        Raises:
            ValueError: ``object_type`` is none of these.
        """
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

    @property
    def qconfigs(self) -> tuple[QConfig, ...]:
        """Every qconfig that some rule gives, each once."""
        found: Iterable[QConfig | None] = (
            self.global_qconfig,
            *self.object_type_qconfigs.values(),
            *self.module_name_regex_qconfigs.values(),
            *self.module_name_qconfigs.values(),
            *self.module_name_object_type_order_qconfigs.values(),
        )
        unique: list[QConfig] = []
        for each in found:
            if each is not None and each not in unique:
                unique.append(each)
        return tuple(unique)

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
        rule = next(self.rules(path, object_types, scope=scope, order=order))
        return rule.qconfig, rule.name

    def rules(
        self,
        path: str,
        object_types: Sequence[Any],
        *,
        scope: str,
        order: Sequence[tuple[Any, int]] = (),
    ) -> Iterator[Rule]:
        """Every rule that speaks of one operation: the one that decides, then those it overrides.

        Args:
            path: As in :meth:`resolve`, like the other arguments.
            object_types: What the operation can be named by, most specific first.
            scope: Path of the module in whose forward the call stands.
            order: For each name, the operation's index among its like within ``scope``.
        """
        for object_type, index in order:
            key = (scope, object_type, index)
            if key in self.module_name_object_type_order_qconfigs:
                qconfig = self.module_name_object_type_order_qconfigs[key]
                yield Rule(f"module name, type and order {_call_name(*key)}", qconfig)
        parts = path.split(".") if path else []
        for length in range(len(parts), 0, -1):
            name = ".".join(parts[:length])
            if name in self.module_name_qconfigs:
                yield Rule(f"module name {name!r}", self.module_name_qconfigs[name])
        for regex, qconfig in self.module_name_regex_qconfigs.items():
            if re.match(regex, path):
                yield Rule(f"module name regex {regex!r}", qconfig)
        for object_type in object_types:
            if object_type in self.object_type_qconfigs:
                qconfig = self.object_type_qconfigs[object_type]
                yield Rule(f"operation type {_type_name(object_type)}", qconfig)
        yield Rule(GLOBAL, self.global_qconfig)


def _type_name(key: Any) -> str:
    return repr(key) if isinstance(key, str) else object_type_name(key)


def _call_name(scope: str, key: Any, index: int) -> str:
    return f"({scope!r}, {_type_name(key)}, {index})"


def as_qconfig_mapping(value: Any) -> QConfigMapping:
    """A qconfig mapping of PyTorch's as one of ours; one of ours as it is.

    A qconfig alone holds for everything.

    Args:
        value: A mapping of either kind, a qconfig of either kind, or the dict of lists that older
            releases of PyTorch take.

    Raises:
        pydantic.ValidationError: It is none of these, or has an observer that cannot be used.
    """
    if isinstance(value, QConfig) or qconfig_from_torch(value) is not value:
        return QConfigMapping(global_qconfig=value)
    return QConfigMapping.model_validate(value)
