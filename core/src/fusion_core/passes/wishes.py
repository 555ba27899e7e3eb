"""What a user's custom config asks for in one graph: own observed modules, and inputs and outputs as codes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.fx import GraphModule, Node

from fusion_core.configs import Mode, QConfig, QConfigMapping, Skip, mode_of
from fusion_core.errors import CustomConfigError
from fusion_core.passes.edit import copy_module
from fusion_core.passes.paths import input_values, output_values, resolved
from fusion_core.passes.record import PassRecord, members
from fusion_core.passes.shapes import dtype_of

CUSTOM = "custom config"
"""Stands where the ledger names a plugin."""


class QParams(NamedTuple):
    """How codes are to be read: ``(code - zero_point) * scale``.

    Attributes:
        scale: Size of one step.
        zero_point: The code that stands for 0.
        quant_min: Smallest code.
        quant_max: Largest code.
        dtype: Quantized dtype, for example ``torch.quint8``.
    """

    scale: float
    zero_point: int
    quant_min: int
    quant_max: int
    dtype: torch.dtype

    @classmethod
    def of(cls, observer: Any) -> QParams | None:
        """What an observer chooses; None where it chooses for each channel, or while running."""
        if getattr(observer, "is_dynamic", False) or getattr(observer, "ch_axis", None) is not None:
            return None
        scale, zero_point = observer.calculate_qparams()
        limits = int(observer.quant_min), int(observer.quant_max)
        return cls(float(scale), int(zero_point), *limits, observer.dtype)


@dataclass(frozen=True, slots=True)
class OwnModule:
    """A call of a module that the user has observed and quantized types for.

    Attributes:
        qconfig: How its inputs and output are observed.
        inputs: Its float32 tensor operands.
        gives_tensor: Whether its output is one float32 tensor, which is observed.
        kind: Its observed type.
    """

    qconfig: QConfig
    inputs: tuple[Node, ...]
    gives_tensor: bool
    kind: Any


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a custom config asks for in one graph.

    Attributes:
        own_modules: Calls of modules that the user has types for, or why one stays as it is.
        inputs: Values that the user will give as codes, by path.
        outputs: Values that the user wants as codes, by path.
    """

    own_modules: Mapping[Node, OwnModule | Skip] = field(
        default_factory=lambda: MappingProxyType({})
    )
    inputs: Mapping[str, tuple[Node, ...]] = field(default_factory=lambda: MappingProxyType({}))
    outputs: Mapping[str, Node] = field(default_factory=lambda: MappingProxyType({}))

    @classmethod
    def of(cls, model: GraphModule, record: PassRecord, mapping: QConfigMapping) -> Wishes:
        """The wishes of the config in ``record``.

        Raises:
            CustomConfigError: It names an input or output that the model does not have.
        """
        custom = record.custom
        own = {
            node: _own_module(node, custom.observed_modules[type(module)], mapping)
            for node, module in _called(model)
            if type(module) in custom.observed_modules
        }
        return cls(own, quantized_inputs(model, record), quantized_outputs(model, record))

    def require_observed(self, observed: Collection[Node]) -> None:
        """See that what is to be codes is quantized.

        Raises:
            CustomConfigError: It is not.
        """
        for path, values in self.inputs.items():
            if not any(value in observed for value in values):
                problem = "no quantized operation reads this input, so it has no scale"
                raise CustomConfigError("quantized_inputs", path, problem)
        for path, value in self.outputs.items():
            if value not in observed:
                problem = (
                    f"{value.name}, which gives this output, is not quantized; core.report says why"
                )
                raise CustomConfigError("quantized_outputs", path, problem)


def quantized_inputs(model: GraphModule, record: PassRecord) -> dict[str, tuple[Node, ...]]:
    """The values that are to be given as codes.

    Raises:
        CustomConfigError: The model has no such input.
    """
    known = input_values(model)
    return resolved("quantized_inputs", record.custom.quantized_inputs, known, model)


def quantized_outputs(model: GraphModule, record: PassRecord) -> dict[str, Node]:
    """The values that are wanted as codes.

    Raises:
        CustomConfigError: The model has no such output, or it is no tensor.
    """
    known = output_values(model)
    found = resolved("quantized_outputs", record.custom.quantized_outputs, known, model)
    for path, value in found.items():
        if not isinstance(value, Node):
            raise CustomConfigError("quantized_outputs", path, f"it is {value!r} and no tensor")
    return found


def observe_own_modules(model: GraphModule, wishes: Wishes) -> tuple[str, ...]:
    """Put the user's observed modules in place; returns their paths."""
    paths = []
    for node, wanted in wishes.own_modules.items():
        if isinstance(wanted, OwnModule):
            path = str(node.target)
            observed = wanted.kind.from_float(copy_module(model.get_submodule(path)))
            model.add_submodule(path, observed.train(model.training))
            paths.append(path)
    return tuple(paths)


def quantize_own_modules(model: GraphModule, record: PassRecord) -> None:
    """Put the user's quantized modules in the place of the observed ones.

    Before it is asked for its quantized form, an observed module is told ``input_qparams``, one
    :class:`QParams` for each tensor it is given, and ``output_qparams``; None where a value has
    none.

    Args:
        model: A calibrated graph whose observers are still there.
        record: Its record.
    """
    observers = {path: model.get_submodule(path) for path in record.observers}
    wanted = set(record.observed)
    for node, module in _called(model):
        path = str(node.target)
        if path not in wanted:
            continue
        observed: Any = copy_module(module)
        observed.input_qparams = tuple(
            QParams.of(observers[str(each.target)]) if each.target in observers else None
            for each in node.all_input_nodes
        )
        behind = [str(user.target) for user in node.users if user.target in observers]
        observed.output_qparams = QParams.of(observers[behind[0]]) if behind else None
        kind: Any = record.custom.quantized_modules[type(module)]
        model.add_submodule(path, kind.from_observed(observed).eval())
        for line in record.ledger.of(each.name for each in members(node)):
            line.kernel = kind.__name__


def _called(model: GraphModule) -> list[tuple[Node, nn.Module]]:
    return [
        (node, model.get_submodule(str(node.target)))
        for node in model.graph.nodes
        if node.op == "call_module"
    ]


def _own_module(node: Node, kind: Any, mapping: QConfigMapping) -> OwnModule | Skip:
    member = members(node)[-1]
    qconfig, rule = mapping.resolve(
        member.path, member.object_types, scope=member.scope, order=member.order
    )
    if qconfig is None:
        return Skip(f"the qconfig mapping leaves it in float ({rule})")
    if mode_of(qconfig) is not Mode.STATIC:
        return Skip(
            f"own modules are quantized statically, and its qconfig is {mode_of(qconfig).value}"
        )
    inputs = tuple(each for each in node.all_input_nodes if dtype_of(each) is torch.float32)
    return OwnModule(qconfig, inputs, dtype_of(node) is torch.float32, kind)
