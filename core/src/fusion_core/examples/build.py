"""Builds the graph that a reading asks for, running each call as it is added, so that shapes are known."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg

from fusion_core.examples.functions import (
    BINARY,
    PARAMETERS,
    first_input,
    further_arguments,
    name_of,
    takes_a_list,
)
from fusion_core.examples.modules import LOOK_UPS, ROWS, input_count, module_of
from fusion_core.examples.readings import is_module
from fusion_core.patterns import Capture, ListOf, LiteralValue, MatchAllNode, Op, Operator, Pattern

SHAPES: Mapping[int, tuple[int, ...]] = {
    2: (8, 8),
    3: (2, 8, 8),
    4: (2, 4, 8, 8),
    5: (2, 4, 4, 4, 4),
}
"""Shape of an input by its number of dimensions."""


@dataclass
class Builder:
    """One model while it is built.

    Attributes:
        rank: How many dimensions an input has.
        fills: Which arguments calls get behind those that the pattern names, the usual ones being
            1; with 0 they get none.
        settings: Keyword arguments for the constructors that take them.
        inputs: What the model is called with.
        modules: Modules and parameters of the model, by name.
        graph: Its graph.
    """

    rank: int
    fills: int
    settings: Mapping[str, Any]
    inputs: list[Tensor] = field(default_factory=list)
    modules: nn.Module = field(default_factory=nn.Module)
    graph: Graph = field(default_factory=Graph)
    _values: dict[Node, Any] = field(default_factory=dict)
    _named: dict[str, Any] = field(default_factory=dict)

    def model(self, reading: Pattern) -> GraphModule:
        """A model that computes ``reading`` and returns what its anchor gives, in eval mode."""
        with torch.no_grad():
            self.graph.output(self._built(reading, None))
        return GraphModule(self.modules, self.graph).eval()

    def _built(self, pattern: Pattern, like: Tensor | None) -> Any:
        if isinstance(pattern, Capture):
            if pattern.name not in self._named:
                self._named[pattern.name] = self._built(pattern.pattern, like)
            return self._named[pattern.name]
        if isinstance(pattern, LiteralValue):
            return pattern.value
        if isinstance(pattern, ListOf):
            items = [self._built(each, like) for each in pattern.items]
            return items or [self._input(like), self._input(like)]
        if isinstance(pattern, MatchAllNode):
            return self._input(like)
        if not isinstance(pattern, Op):
            msg = f"a pattern with choices, {pattern}, is no reading"
            raise TypeError(msg)
        return self._called(pattern)

    def _input(self, like: Tensor | None) -> Node:
        value = torch.randn(SHAPES[self.rank]) if like is None else like
        name = f"input_{len(self.inputs)}"
        calls = (each for each in self.graph.nodes if each.op != "placeholder")
        first = next(calls, None)  # inputs stand in front of all calls
        if first is None:
            node = self.graph.placeholder(name)
        else:
            with self.graph.inserting_before(first):
                node = self.graph.placeholder(name)
        self.inputs.append(value)
        self._values[node] = value
        return node

    def _parameter(self, value: Tensor) -> Node:
        name = f"constant_{len(self.graph.find_nodes(op='get_attr'))}"
        if value.is_floating_point():
            self.modules.register_parameter(name, nn.Parameter(value))
        else:
            self.modules.register_buffer(name, value)
        node = self.graph.get_attr(name)
        self._values[node] = value
        return node

    def _called(self, pattern: Op) -> Node:
        operation = pattern.operator
        if is_module(operation):
            return self._module(pattern)
        arguments = self._operands(pattern)
        options = {name: self._built(each, None) for name, each in pattern.keywords}
        first = self._value(arguments[0])
        first = first[0] if isinstance(first, list) else first
        if pattern.open or self.fills or (pattern.inputs is None and not options):
            further, defaults = further_arguments(operation, first, max(self.fills - 1, 0))
            arguments += [self._further(operation, each) for each in further[len(arguments) - 1 :]]
            options = {**defaults, **options}
        return self._run(operation, tuple(arguments), options)

    def _operands(self, pattern: Op) -> list[Any]:
        """What the pattern says of the arguments; wildcards are made to fit what is computed beside them."""
        if pattern.inputs is None:
            first = self._input(self._first_like(pattern.operator))
            return [[first, self._input(None)] if takes_a_list(pattern.operator) else first]
        built: dict[int, Any] = {
            index: self._built(each, None)
            for index, each in enumerate(pattern.inputs)
            if not isinstance(each, (MatchAllNode, ListOf))
        }
        beside = next(
            (self._value(each) for each in built.values() if isinstance(each, Node)), None
        )
        binary = name_of(pattern.operator) in BINARY or takes_a_list(pattern.operator)
        for index, each in enumerate(pattern.inputs):
            if index not in built:
                like = beside if binary or index == 0 else self._weight_like(pattern, index, built)
                built[index] = self._built(each, like if isinstance(like, Tensor) else None)
        return [built[index] for index in range(len(pattern.inputs))]

    def _weight_like(self, pattern: Op, index: int, built: Mapping[int, Any]) -> Any:
        """What stands at ``index`` where a function takes its weight as an argument."""
        first = self._value(built[0]) if 0 in built else torch.randn(SHAPES[self.rank])
        if not isinstance(first, Tensor):
            return None
        further, _ = further_arguments(pattern.operator, first)
        return further[index - 1] if index <= len(further) else first

    def _further(self, operation: Operator, value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        is_parameter = name_of(operation) in PARAMETERS or not value.is_floating_point()
        return self._parameter(value) if is_parameter else self._input(value)

    def _first_like(self, operation: Operator) -> Tensor:
        return first_input(operation, torch.randn(SHAPES[self.rank]))

    def _module(self, pattern: Op) -> Node:
        kind: type[nn.Module] = pattern.operator.target
        if pattern.inputs is None:
            new = self._ids if issubclass(kind, LOOK_UPS) else lambda: self._input(None)
            arguments = [new() for _ in range(input_count(kind))]
        else:
            arguments = self._operands(pattern)
        wanted = {
            name: each.value for name, each in pattern.keywords if isinstance(each, LiteralValue)
        }
        module = module_of(kind, self._value(arguments[0]), {**self.settings, **wanted})
        _spread(module)
        name = f"{kind.__name__.lower()}_{len(list(self.modules.children()))}"
        self.modules.add_module(name, module.eval())
        return self._run(Operator("module", name), tuple(arguments), {})

    def _ids(self) -> Node:
        return self._input(torch.arange(ROWS).view(2, -1))

    def _value(self, argument: Any) -> Any:
        return map_arg(argument, self._values.__getitem__)

    def _run(
        self, operation: Operator, arguments: tuple[Any, ...], options: dict[str, Any]
    ) -> Node:
        """Adds the call, and keeps what it gives."""
        values, named = self._value(arguments), self._value(options)
        target: Any = operation.target
        if operation.kind == "module":
            node = self.graph.call_module(target, arguments, options)
            result = getattr(self.modules, target)(*values, **named)
        elif operation.kind == "method":
            node = self.graph.call_method(target, arguments, options)
            result = getattr(_copied(values[0]), target)(*values[1:], **named)
        elif operation.kind == "getattr":
            node = self.graph.call_function(getattr, (*arguments, target))
            result = operator.attrgetter(target)(values[0])
        else:
            node = self.graph.call_function(target, arguments, options)
            result = target(*map(_copied, values), **named)
        self._values[node] = result
        return node


def _copied(value: Any) -> Any:
    """A copy for a call that may write to its argument."""
    return value.clone() if isinstance(value, Tensor) else value


def _spread(module: nn.Module) -> None:
    """Give batch norms statistics that folding must take into account."""
    for each in module.modules():
        if isinstance(each, (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)):
            for values, low, high in (
                (each.running_mean, -0.5, 0.5),
                (each.running_var, 0.5, 1.5),
                (each.weight, 0.5, 1.5),
            ):
                if values is not None:
                    nn.init.uniform_(values, low, high)
