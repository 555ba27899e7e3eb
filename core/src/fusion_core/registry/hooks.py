"""Asks one plugin's hooks, one at a time, and checks every answer before anything uses it."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ValidationError

from fusion_core.configs import BackendInfo, BackendPatternConfig, LoweringRule, QConfigMapping
from fusion_core.errors import PatternError, PluginError
from fusion_core.hookspecs import HookSpecs
from fusion_core.registry.backend import own_copy
from fusion_core.registry.blame import blaming, plugin_error, show
from fusion_core.registry.origin import PluginOrigin

if TYPE_CHECKING:
    import pluggy

Model = TypeVar("Model", bound=BaseModel)
Item = TypeVar("Item", BackendPatternConfig, LoweringRule)

HOOKS = tuple(name for name in vars(HookSpecs) if name.startswith("fusion_"))


@dataclass(frozen=True)
class Hook:
    """One hook of one plugin."""

    origin: PluginOrigin
    name: str
    function: Callable[[], object]

    def error(self, problem: str) -> PluginError:
        """The error that says this hook has ``problem``."""
        return plugin_error(self.origin, problem, hook=self.name)

    def items(self, kind: type[Item]) -> tuple[Item, ...]:
        """The answer as models of ``kind`` with a valid pattern each, copied."""
        answer = self._call()
        if not isinstance(answer, Iterable) or isinstance(
            answer, str | bytes | Mapping | BaseModel
        ):
            raise self._unexpected(answer, f"an iterable of {kind.__name__}")
        with blaming(self.origin, "raised", hook=self.name):
            items = tuple(answer)
        return tuple(self._item(index, item, kind) for index, item in enumerate(items))

    def table(self) -> dict[Any, Callable[..., Any]]:
        """The answer as callables by pattern, in any spelling of the pattern."""
        answer = self._call()
        if not isinstance(answer, Mapping):
            raise self._unexpected(answer, "a dict of callables by pattern")
        with blaming(self.origin, "raised", hook=self.name):
            table = dict(answer)
        for key, value in table.items():
            if not callable(value):
                raise self.error(
                    f"the value for {show(key)} is {show(value)}, which cannot be called"
                )
        return table

    def single(self, kind: type[Model]) -> Model:
        """The answer as one model of ``kind``, copied."""
        answer = self._call()
        if not isinstance(answer, kind):
            raise self._unexpected(answer, f"a {kind.__name__}")
        try:
            return own_copy(answer)
        except ValidationError as error:
            raise self.error(f"its {kind.__name__}, {_first(error)}") from error

    def named(self, kind: type[Model]) -> dict[str, Model]:
        """The answer as models of ``kind`` by name, copied; names are identifiers."""
        answer = self._call()
        if not isinstance(answer, Mapping):
            raise self._unexpected(answer, f"a dict of {kind.__name__} by name")
        with blaming(self.origin, "raised", hook=self.name):
            found = dict(answer)
        return {self._name(key): self._named(key, value, kind) for key, value in found.items()}

    def _name(self, key: object) -> str:
        if isinstance(key, str) and key.isidentifier():
            return key
        raise self.error(
            f"the key {show(key)} is not a name; names have letters, digits and _, and begin with no digit"
        )

    def _named(self, name: str, value: object, kind: type[Model]) -> Model:
        if not isinstance(value, kind):
            raise self.error(f"the value for {name!r} is {show(value)}, not a {kind.__name__}")
        try:
            return own_copy(value)
        except ValidationError as error:
            raise self.error(f"the value for {name!r}, {_first(error)}") from error

    def _call(self) -> object:
        required = [
            name
            for name, parameter in inspect.signature(self.function).parameters.items()
            if parameter.default is parameter.empty
            and parameter.kind not in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD}
        ]
        if required:
            hint = "; give an instance, not the class" if required == ["self"] else ""
            raise self.error(f"hooks take no arguments, this one takes {', '.join(required)}{hint}")
        with blaming(self.origin, "raised", hook=self.name):
            return self.function()

    def _item(self, index: int, item: object, kind: type[Item]) -> Item:
        if not isinstance(item, kind):
            raise self.error(f"item {index} is {show(item)}, not a {kind.__name__}")
        try:
            copied = own_copy(item)
            _ = copied.normal_pattern
        except ValidationError as error:
            raise self.error(f"item {index}, {_first(error)}") from error
        except PatternError as error:
            raise self.error(f"item {index}, field pattern: {error}") from error
        return copied

    def _unexpected(self, answer: object, wanted: str) -> PluginError:
        if answer is None:
            return self.error(
                f"returned None, not {wanted}; a return statement is missing, or leave the hook out"
            )
        return self.error(f"returned {show(answer)} of type {type(answer).__name__}, not {wanted}")


@dataclass(frozen=True)
class Hooks:
    """All hooks of one plugin, found but not yet called.

    Attributes:
        origin: The plugin.
        known: Its implementations by name of the hook.
        unknown: Names of functions marked as hooks that are none.
    """

    origin: PluginOrigin
    known: Mapping[str, Hook]
    unknown: tuple[str, ...]

    def info(self) -> BackendInfo | None:
        """What the plugin says of itself."""
        hook = self.known.get("fusion_backend_info")
        return hook.single(BackendInfo) if hook else None

    def qconfig_mapping(self) -> QConfigMapping | None:
        """The plugin's default qconfig mapping."""
        hook = self.known.get("fusion_default_qconfig_mapping")
        return hook.single(QConfigMapping) if hook else None

    def qconfig_mappings(self) -> Mapping[str, QConfigMapping]:
        """The plugin's further qconfig mappings, by name."""
        hook = self.known.get("fusion_qconfig_mappings")
        if hook is None:
            return {}
        mappings = hook.named(QConfigMapping)
        if "static" in mappings:
            raise hook.error(
                "'static' is the mapping that fusion_default_qconfig_mapping returns; give it there"
            )
        return mappings

    def pattern_configs(self) -> tuple[BackendPatternConfig, ...]:
        """The plugin's patterns."""
        hook = self.known.get("fusion_pattern_configs")
        return hook.items(BackendPatternConfig) if hook else ()

    def lowering_rules(self) -> tuple[LoweringRule, ...]:
        """The plugin's lowering rules."""
        hook = self.known.get("fusion_lowering_rules")
        return hook.items(LoweringRule) if hook else ()

    def table(self, name: str) -> Mapping[Any, Callable[..., Any]]:
        """Callables by pattern, from the hook called ``name``."""
        hook = self.known.get(name)
        return hook.table() if hook else {}

    def refuse_unknown(self) -> None:
        """Refuses functions marked as hooks that are none, and a plugin without hooks.

        Raises:
            PluginError: There is such a function, or the hook that every backend has is missing.
        """
        for name in self.unknown:
            near = difflib.get_close_matches(name, HOOKS, n=1)
            hint = (
                f"; did the author mean {near[0]}?" if near else f"; there are {', '.join(HOOKS)}"
            )
            raise plugin_error(self.origin, f"there is no hook of this name{hint}", hook=name)
        if not self.known:
            raise plugin_error(self.origin, "it has no function that is marked with @hookimpl")
        first = HOOKS[0]
        if self.origin.name == self.origin.backend and first not in self.known:
            raise plugin_error(self.origin, "it lacks the one hook every backend has", hook=first)


def hooks_of(plugin: object, origin: PluginOrigin, manager: pluggy.PluginManager) -> Hooks:
    """The hooks of ``plugin``, which is added to ``manager``.

    The manager has no specifications: pluggy's own checks would name neither distribution nor hook.

    Raises:
        PluginError: A function is named like a hook but not marked, or pluggy refuses the plugin.
    """
    with blaming(origin, "its hooks cannot be read:"):
        manager.register(plugin, name=origin.name)
        callers = manager.get_hookcallers(plugin) or []
        found = [
            (caller.name, each)
            for caller in callers
            for each in caller.get_hookimpls()
            if each.plugin is plugin
        ]
    known: dict[str, Hook] = {}
    for name, implementation in found:
        hook = Hook(origin, name, implementation.function)
        if implementation.wrapper or implementation.hookwrapper:
            raise hook.error("it is a wrapper; hooks return plain values")
        if name in known:
            raise hook.error("it is implemented twice in one plugin")
        if name in HOOKS:
            known[name] = hook
    _refuse_unmarked(plugin, origin, known)
    unknown = [name for name, each in found if name not in HOOKS and not each.optionalhook]
    return Hooks(origin, known, tuple(unknown))


def _refuse_unmarked(plugin: object, origin: PluginOrigin, known: Mapping[str, Hook]) -> None:
    """A function that is named like a hook, but would never be called, is a mistake."""
    for name in HOOKS:
        value = inspect.getattr_static(plugin, name, None)
        if value is not None and name not in known:
            raise plugin_error(origin, "it is not a function marked with @hookimpl", hook=name)


def _first(error: ValidationError) -> str:
    """The first thing pydantic found: ``field dtype_configs.0: Input should be ...``."""
    details = error.errors(include_url=False)[0]
    field = ".".join(map(str, details["loc"]))
    return f"field {field}: {details['msg']}" if field else details["msg"]
