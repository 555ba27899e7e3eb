"""What is the same for a model and for all parts of it while it is traced."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from torch import nn

from fusion_core.configs import CustomConfig, Standalone
from fusion_core.errors import CustomConfigError
from fusion_core.passes.attention import known_type, open_attention
from fusion_core.patterns import operators_in
from fusion_core.registry import Backend

AS_PYTHON = "the custom config lists it as not traceable"


@dataclass(frozen=True)
class Leaves:
    """Which modules are called rather than inlined, and what becomes of them.

    Attributes:
        backend: Whose module types are called, or None.
        custom: What the user says.
        python: Paths of modules whose forward stays Python by request, with the reason.
        standalone: Paths of modules that are models of their own.
        module_names: Every path that a qconfig mapping can name.
        notes: What the ledger is to say of the model as a whole.
        unopened: Paths of attention layers that are kept whole, with the reason.
        modes: For a model that is to be trained, by path in the user's model whether a module is in
            training mode; else None.
    """

    backend: Backend | None
    custom: CustomConfig
    python: Mapping[str, str]
    standalone: Mapping[str, Standalone]
    module_names: tuple[str, ...]
    notes: tuple[str, ...]
    unopened: Mapping[str, str]
    modes: Mapping[str, bool] | None = None

    @classmethod
    def of(
        cls, model: nn.Module, private: nn.Module, backend: Backend | None, custom: CustomConfig
    ) -> tuple[nn.Module, Leaves]:
        """What is to be traced, and what ``custom`` says of it.

        Args:
            model: The user's model.
            private: A copy of it, which is changed.
            backend: Whose module types are called, or None.
            custom: What the user says.

        Returns:
            What ``private`` has become: its attention layers are open. And the leaves.

        Raises:
            CustomConfigError: It names what the model does not have.
        """
        types = {type(module) for module in private.modules()}
        leaf_types = _operators(backend, "module") | set(custom.observed_modules)
        private, unopened = open_attention(private, leaf_types)
        names = tuple(
            dict.fromkeys(
                name
                for each in (model, private)
                for name, _ in each.named_modules(remove_duplicate=False)
            )
        )
        _check_names(custom, model, names)
        found = dict(_placed(private, custom))
        python = {path: AS_PYTHON for path, field in found.items() if field is None}
        standalone = {path: field for path, field in found.items() if field is not None}
        unused = tuple(
            f"{field} of the custom config names {place.__name__}, and the model has no module of that type"
            for field, place in custom.places()
            if isinstance(place, type) and place not in types
        )
        return private, cls(backend, custom, python, standalone, names, unused, unopened)

    @property
    def qat(self) -> bool:
        """Whether the model is to be trained."""
        return self.modes is not None

    @cached_property
    def module_types(self) -> frozenset[type[nn.Module]]:
        """Exact types of modules that a pattern names, or that the user has types of their own for."""
        return frozenset(_operators(self.backend, "module") | set(self.custom.observed_modules))

    @cached_property
    def functions(self) -> frozenset[Any]:
        """Functions that a pattern names."""
        return frozenset(_operators(self.backend, "function"))


def _operators(backend: Backend | None, kind: str) -> set[Any]:
    """What the patterns of a backend name of one kind."""
    entries = () if backend is None else backend.entries
    named = (each for entry in entries for each in operators_in(entry.pattern))
    return {each.target for each in named if each.kind == kind}


def _check_names(custom: CustomConfig, model: nn.Module, names: tuple[str, ...]) -> None:
    for field, place in custom.places():
        if isinstance(place, str) and (not place or place not in names):
            problem = "the model has no module at this path"
            raise CustomConfigError(field, place, problem, filter(None, names))
    for name in custom.preserved_attributes:
        if not hasattr(model, name):
            problem = f"{type(model).__name__} has no such attribute"
            raise CustomConfigError("preserved_attributes", name, problem, dir(model))


def _placed(model: nn.Module, custom: CustomConfig) -> Iterator[tuple[str, Standalone | None]]:
    """Paths of modules that the user speaks of; one that is standalone is that before anything else."""
    aliases: dict[int, list[str]] = {}
    for path, module in model.named_modules(remove_duplicate=False):
        aliases.setdefault(id(module), []).append(path)
    # What comes later wins: a name over a type, standalone over not traceable.
    tables: list[Mapping[Any, Standalone | None]] = [
        dict.fromkeys(custom.non_traceable),
        custom.standalone,
    ]
    for table in tables:
        for path, module in model.named_modules():
            kind = known_type(module)
            if kind in table and path:
                yield from ((each, table[kind]) for each in aliases[id(module)])
        for place, meant in table.items():
            if isinstance(place, str) and _has(model, place):
                for path in aliases[id(model.get_submodule(place))]:
                    yield path, meant


def _has(model: nn.Module, path: str) -> bool:
    try:
        model.get_submodule(path)
    except AttributeError:
        return False
    return True
