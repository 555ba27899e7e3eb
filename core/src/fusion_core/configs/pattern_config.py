"""``BackendPatternConfig``: one pattern a backend supports, and everything the passes must know of it."""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict, Field
from torch import nn

from fusion_core.configs.dtypes import DTypeConfig
from fusion_core.configs.names import Function, ModuleType, NodePatternFunction, arity_problem
from fusion_core.configs.observation import ObservationType
from fusion_core.configs.pattern_model import PatternModel
from fusion_core.errors import FuserMethodError, PatternError
from fusion_core.patterns import AnyOf, Capture, Op, Pattern, Step, Where, render


class BackendPatternConfig(PatternModel):
    """A pattern and how it is fused, observed and quantized.

    Everything may be given as keywords; the ``set_*`` methods do the same one at a time and return
    the config.

    Attributes:
        pattern: An operator, or a tuple of operators in data-flow order.
        complex_pattern: Instead of ``pattern``, one in reverse nested form.
        observation_type: How the output is observed.
        dtype_configs: Combinations of dtypes the backend's kernel takes, preferred ones first.
        root_module: Float type of the module that carries the weight.
        qat_module: Type that replaces the root module for quantization-aware training: it has
            ``from_float(float_module, qconfig)`` and ``to_float()``.
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

    observation_type: ObservationType = ObservationType.OUTPUT_USE_DIFFERENT_OBSERVER_AS_INPUT
    dtype_configs: tuple[DTypeConfig, ...] = ()
    root_module: ModuleType | None = None
    qat_module: ModuleType | None = None
    reference_quantized_module: ModuleType | None = None
    fused_module: ModuleType | None = None
    fuser_method: Function | None = None
    root_node_getter: NodePatternFunction | None = None
    extra_inputs_getter: NodePatternFunction | None = None
    constraint: NodePatternFunction | None = None
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
        _check(self)

    def __setattr__(self, name: str, value: Any) -> None:
        """Checks what the constructor checks, on a copy, so that nothing is changed by what is refused."""
        if name in {"pattern", "complex_pattern", "fuser_method"}:
            tried = self.model_copy()
            super(BackendPatternConfig, tried).__setattr__(name, value)
            _check(tried)
        super().__setattr__(name, value)

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


def _check(config: BackendPatternConfig) -> None:
    if config.pattern is None and config.complex_pattern is None:
        return
    _ = config.normal_pattern
    if config.fuser_method is not None:
        check_fuser_arity(config, config.fuser_method)


def check_fuser_arity(config: BackendPatternConfig, fuser_method: Any) -> None:
    """Refuse a fuser method that cannot be called with what the pattern of ``config`` gives it.

    Args:
        config: The config, which has a pattern.
        fuser_method: The fuser method, or a module type.

    Raises:
        FuserMethodError: It takes another number of arguments, or there is nothing to fuse.
    """
    count, canonical = element_count(config), config.normal_pattern
    name = getattr(fuser_method, "__qualname__", repr(fuser_method))
    if count < 2:  # noqa: PLR2004  fusing takes two
        problem = "a single operator has nothing to be fused with"
        if isinstance(_bare(canonical), AnyOf):
            problem = "alternatives differ in their elements; give each pattern a config of its own"
        msg = f"{name} cannot fuse {render(canonical)}: {problem}"
        raise FuserMethodError(msg)
    is_type = isinstance(fuser_method, type)
    arguments = count if is_type else count + 1
    given = f"{'' if is_type else 'is_qat and '}the modules of its {count} elements, {arguments} arguments"
    misfit = arity_problem(fuser_method, arguments, given)
    if misfit is not None:
        msg = f"fuser method of {render(canonical)}: {misfit}"
        raise FuserMethodError(msg)


def element_count(config: BackendPatternConfig) -> int:
    """How many elements the pattern of ``config`` has, each of which is an argument of a fuser method."""
    raw = config.pattern if config.complex_pattern is None else config.complex_pattern
    if isinstance(raw, tuple):
        return sum(each is not Ellipsis for each in raw)
    canonical = config.normal_pattern
    return _steps(canonical) if config.complex_pattern is None else _arguments(canonical) + 1


def _steps(pattern: Pattern) -> int:
    """How many elements a tuple in data-flow order would have; the first may be any pattern."""
    count = 1
    pattern = _bare(pattern)
    while isinstance(pattern, (Op, Step)) and len(pattern.inputs or ()) == 1:
        (before,) = pattern.inputs or ()
        count, pattern = count + 1, _bare(before)
    return count


def _arguments(pattern: Pattern) -> int:
    """How many elements a reverse nested tuple would have behind its operator."""
    pattern = _bare(pattern)
    return len(pattern.inputs or ()) if isinstance(pattern, (Op, Step)) else 0


def _bare(pattern: Pattern) -> Pattern:
    while isinstance(pattern, (Where, Capture)):
        pattern = pattern.pattern
    return pattern
