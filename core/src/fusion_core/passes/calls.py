"""What modules are called with while a model runs once."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from torch import Tensor, nn

from fusion_core.passes.arguments import PACKED, left_out

_CONSTANT = (type(None), bool, int, float, str)

Arguments: TypeAlias = tuple[Any, ...]


class Differing(ValueError):  # noqa: N818  it is a reason, not a failure
    """A module is called in ways that no single graph covers."""


@dataclass(frozen=True, slots=True)
class BoundCalls:
    """Calls of one module as calls of a graph.

    Attributes:
        names: Parameters that are given.
        omitted: Parameters that are left out, with their defaults.
        constants: Parameters that are given and always have the same plain value.
        examples: For each distinct set of shapes the positional arguments, and how often they came.
    """

    names: tuple[str, ...]
    omitted: Mapping[str, Any]
    constants: Mapping[str, Any]
    examples: Sequence[tuple[Arguments, int]]


@dataclass(slots=True)
class Calls:
    """All calls of one module.

    Attributes:
        distinct: The first call with each set of shapes and plain values.
        counts: How often each of those came.
    """

    distinct: dict[str, tuple[Arguments, dict[str, Any]]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    def add(self, args: Arguments, kwargs: Mapping[str, Any]) -> None:
        """Note one call."""
        key = repr(_looks((args, dict(kwargs)), with_sizes=True))
        self.distinct.setdefault(key, (args, dict(kwargs)))
        self.counts[key] = self.counts.get(key, 0) + 1

    @property
    def count(self) -> int:
        """How many calls there were."""
        return sum(self.counts.values())

    def bound(self, module: nn.Module) -> BoundCalls:
        """The calls as calls of one graph.

        Raises:
            Differing: They differ in which arguments are given, or of what kind those are.
        """
        signature = inspect.signature(module.forward)
        given = [
            dict(signature.bind(*args, **kwargs).arguments)
            for args, kwargs in self.distinct.values()
        ]
        names = tuple(given[0])
        if any(signature.parameters[name].kind in PACKED for name in names):
            raise Differing("its forward takes any number of arguments")
        if any(tuple(each) != names for each in given):
            raise Differing("its calls give different arguments")
        for name in names:
            kinds = {repr(_looks(each[name], with_sizes=False)) for each in given}
            if len(kinds) > 1:
                raise Differing(f"its calls differ in {name}: {' and '.join(sorted(kinds))}")
        constants = {
            name: value
            for name, value in given[0].items()
            if isinstance(value, _CONSTANT) and all(each[name] == value for each in given)
        }
        examples: dict[str, tuple[Arguments, int]] = {}
        for each, count in zip(given, self.counts.values(), strict=True):
            arguments = tuple(each.values())
            examples[repr(_looks(arguments, with_sizes=True))] = (arguments, count)
        return BoundCalls(names, left_out(signature, given[0]), constants, list(examples.values()))


def _looks(value: Any, *, with_sizes: bool) -> Any:
    """What of a value tells calls apart: sizes and plain values, or kinds alone."""
    if isinstance(value, Tensor):
        what = str(value.dtype).removeprefix("torch.")
        return (what, tuple(value.shape)) if with_sizes else f"{value.dim()}-d {what}"
    if isinstance(value, Mapping):
        return {key: _looks(each, with_sizes=with_sizes) for key, each in value.items()}
    if isinstance(value, (tuple, list)):
        return [_looks(each, with_sizes=with_sizes) for each in value]
    if with_sizes and isinstance(value, _CONSTANT):
        return value
    return type(value).__name__


@contextmanager
def recorded(modules: Iterable[nn.Module]) -> Iterator[dict[int, Calls]]:
    """While entered, the calls of ``modules`` are noted, by ``id`` of the module."""
    found: dict[int, Calls] = {}

    def note(module: nn.Module, args: Arguments, kwargs: dict[str, Any]) -> None:
        found.setdefault(id(module), Calls()).add(args, kwargs)

    with ExitStack() as hooks:
        for module in modules:
            handle = module.register_forward_pre_hook(note, with_kwargs=True)
            hooks.callback(handle.remove)
        yield found
