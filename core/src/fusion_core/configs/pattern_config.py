"""``BackendPatternConfig``: one pattern a backend supports, and everything the passes must know of it."""

from __future__ import annotations

import inspect
from typing import Annotated, Any

from pydantic import ConfigDict, Field, PlainSerializer, WithJsonSchema
from torch import nn

from fusion_core.configs.dtypes import DTypeConfig
from fusion_core.configs.names import (
    Function,
    ModuleType,
    PicklableModel,
    from_qualified_name,
)
from fusion_core.configs.observation import ObservationType
from fusion_core.errors import FuserMethodError, PatternError
from fusion_core.patterns import Pattern, normalize_nested, normalize_sequential, render

RawPattern = Annotated[
    Any,
    PlainSerializer(
        lambda pattern: None if pattern is None else _render_any(pattern), when_used="json"
    ),
    WithJsonSchema({"type": ["string", "null"], "description": "pattern, rendered"}),
]


class BackendPatternConfig(PicklableModel):
    """A pattern and how it is fused, observed and quantized.

    Everything may be given as keywords; the ``set_*`` methods do the same one at a time and return
    the config.

    Attributes:
        pattern: An operator, or a tuple of operators in data-flow order.
        complex_pattern: Instead of ``pattern``, one in reverse nested form.
        observation_type: How the output is observed.
        dtype_configs: Combinations of dtypes the backend's kernel takes, preferred ones first.
        root_module: Float type of the module that carries the weight.
        qat_module: Type that replaces the root module for quantization-aware training.
        reference_quantized_module: Type that replaces the root module in a reference model.
        fused_module: Type that the fuser method returns.
        fuser_method: Called ``f(is_qat, *modules)`` with one argument per element of the pattern's
            tuple; a module type is called with the modules alone.
        root_node_getter: Picks the root node out of a node pattern; default the last node along
            last elements.
        extra_inputs_getter: Picks the further inputs of the fused module out of a node pattern.
        constraint: Called with the node pattern of a match; returns a :class:`Skip` to refuse it,
            else None. Nodes carry shape and dtype in ``meta["tensor_meta"]``.
        num_tensor_args_to_observation_type: Observation type by how many inputs are tensors.
        input_type_to_index: Which argument of a function is its ``"weight"`` and its ``"bias"``.
        priority: Higher goes first among patterns that could match the same node.
    """

    model_config = ConfigDict(
        extra="forbid", arbitrary_types_allowed=True, validate_assignment=True
    )

    pattern: RawPattern = None
    complex_pattern: RawPattern = None
    observation_type: ObservationType = ObservationType.OUTPUT_USE_DIFFERENT_OBSERVER_AS_INPUT
    dtype_configs: tuple[DTypeConfig, ...] = ()
    root_module: ModuleType | None = None
    qat_module: ModuleType | None = None
    reference_quantized_module: ModuleType | None = None
    fused_module: ModuleType | None = None
    fuser_method: Function | None = None
    root_node_getter: Function | None = None
    extra_inputs_getter: Function | None = None
    constraint: Function | None = None
    num_tensor_args_to_observation_type: dict[int, ObservationType] = Field(default_factory=dict)
    input_type_to_index: dict[str, int] = Field(default_factory=dict)
    priority: int = 0

    def __init__(self, pattern: Any = None, **fields: Any) -> None:
        """A config of ``pattern``; every other field by keyword.

        Args:
            pattern: An operator, or a tuple of operators in data-flow order.
            **fields: See the attributes.

        Raises:
            PatternError: The pattern is not one, or both forms are given.
            FuserMethodError: The fuser method cannot take the pattern's elements.
            pydantic.ValidationError: A field has a wrong type.
        """
        super().__init__(**{**fields, "pattern": pattern})
        if self.pattern is not None or self.complex_pattern is not None:
            self._check_pattern()
        self._check_fuser_arity(self.fuser_method, self._raw_pattern)

    @property
    def normal_pattern(self) -> Pattern:
        """The canonical form of whichever pattern was given.

        Raises:
            PatternError: No pattern was given.
        """
        if self.complex_pattern is not None:
            return normalize_nested(self.complex_pattern)
        if self.pattern is None:
            raise PatternError(
                None, "the config has no pattern yet; give one, or call _set_pattern_complex_format"
            )
        return normalize_sequential(self.pattern)

    def __repr__(self) -> str:
        """The pattern in data-flow order, and what is set."""
        shown = "no pattern yet"
        if self.pattern is not None or self.complex_pattern is not None:
            shown = render(self.normal_pattern)
        return f"BackendPatternConfig({shown})"

    __str__ = __repr__

    def set_observation_type(self, observation_type: ObservationType) -> BackendPatternConfig:
        """Set how the output is observed; returns the config itself, as all setters do."""
        self.observation_type = observation_type
        return self

    def add_dtype_config(self, dtype_config: DTypeConfig) -> BackendPatternConfig:
        """Add one combination of dtypes after those already there."""
        self.dtype_configs = (*self.dtype_configs, dtype_config)
        return self

    def set_dtype_configs(
        self, dtype_configs: list[DTypeConfig] | tuple[DTypeConfig, ...]
    ) -> BackendPatternConfig:
        """Replace all combinations of dtypes."""
        self.dtype_configs = tuple(dtype_configs)
        return self

    def set_root_module(self, root_module: type[nn.Module]) -> BackendPatternConfig:
        """Set the float type of the module that carries the weight."""
        self.root_module = root_module
        return self

    def set_qat_module(self, qat_module: type[nn.Module]) -> BackendPatternConfig:
        """Set the type that replaces the root module for quantization-aware training."""
        self.qat_module = qat_module
        return self

    def set_reference_quantized_module(self, module: type[nn.Module]) -> BackendPatternConfig:
        """Set the type that replaces the root module in a reference model."""
        self.reference_quantized_module = module
        return self

    def set_fused_module(self, fused_module: type[nn.Module]) -> BackendPatternConfig:
        """Set the type that the fuser method returns."""
        self.fused_module = fused_module
        return self

    def set_fuser_method(self, fuser_method: Any) -> BackendPatternConfig:
        """Set the fuser method.

        Raises:
            FuserMethodError: It cannot take the pattern's elements.
        """
        self._check_fuser_arity(from_qualified_name(fuser_method), self._raw_pattern)
        self.fuser_method = fuser_method
        return self

    def _set_pattern_complex_format(self, pattern: Any) -> BackendPatternConfig:
        """Set the pattern in reverse nested form.

        Raises:
            PatternError: ``pattern`` is not one, or the config has a pattern already.
        """
        if self.pattern is not None:
            raise PatternError(
                pattern, f"the config already has the sequential pattern {self.pattern!r}"
            )
        normalize_nested(pattern)
        self._check_fuser_arity(self.fuser_method, pattern)
        self.complex_pattern = pattern
        return self

    def _set_root_node_getter(self, root_node_getter: Any) -> BackendPatternConfig:
        """Set the function that picks the root node out of a node pattern."""
        self.root_node_getter = root_node_getter
        return self

    def _set_extra_inputs_getter(self, extra_inputs_getter: Any) -> BackendPatternConfig:
        """Set the function that picks the fused module's further inputs out of a node pattern."""
        self.extra_inputs_getter = extra_inputs_getter
        return self

    def _set_num_tensor_args_to_observation_type(
        self, num_tensor_args_to_observation_type: dict[int, ObservationType]
    ) -> BackendPatternConfig:
        """Set the observation type by how many inputs are tensors."""
        self.num_tensor_args_to_observation_type = num_tensor_args_to_observation_type
        return self

    def _set_input_type_to_index(self, input_type_to_index: dict[str, int]) -> BackendPatternConfig:
        """Set which argument of a function is its ``"weight"`` and its ``"bias"``."""
        self.input_type_to_index = input_type_to_index
        return self

    def _check_pattern(self) -> None:
        if self.pattern is not None and self.complex_pattern is not None:
            raise PatternError(self.pattern, "give pattern or complex_pattern, not both")
        _ = self.normal_pattern

    @property
    def _raw_pattern(self) -> Any:
        return self.pattern if self.pattern is not None else self.complex_pattern

    def _check_fuser_arity(self, fuser_method: Any, raw: Any) -> None:
        if fuser_method is None or raw is None:
            return
        is_sequential = self.pattern is not None
        pattern = normalize_sequential(raw) if is_sequential else normalize_nested(raw)
        check_fuser_arity(fuser_method, raw, pattern)


def check_fuser_arity(fuser_method: Any, raw: object, pattern: Pattern) -> None:
    """Refuse a fuser method that cannot be called with what its pattern gives it.

    Args:
        fuser_method: The fuser method, or a module type.
        raw: The pattern as the user wrote it.
        pattern: Its canonical form, for the message.

    Raises:
        FuserMethodError: It takes another number of arguments, or the pattern is a single operator.
    """
    name = getattr(fuser_method, "__qualname__", repr(fuser_method))
    elements = [each for each in raw if each is not Ellipsis] if isinstance(raw, tuple) else []
    if len(elements) < 2:  # noqa: PLR2004  fusing takes two
        msg = (
            f"{name} cannot fuse {render(pattern)}: a single operator has nothing to be fused with"
        )
        raise FuserMethodError(msg)
    arguments: list[Any] = [object()] * len(elements)
    wanted = "the modules"
    if not isinstance(fuser_method, type):
        arguments, wanted = [False, *arguments], "is_qat and the modules"
    try:
        inspect.signature(fuser_method).bind(*arguments)
    except TypeError as error:
        msg = (
            f"fuser method {name}{inspect.signature(fuser_method)} of {render(pattern)} is called with {wanted} of "
            f"its {len(elements)} elements, that is {len(arguments)} arguments: {error}"
        )
        raise FuserMethodError(msg) from error
    except ValueError:  # a builtin without a signature: only the call can tell
        return


def _render_any(raw: object) -> str:
    try:
        return render(normalize_sequential(raw))
    except PatternError:
        return render(normalize_nested(raw))
