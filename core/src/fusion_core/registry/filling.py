"""Puts callables that came through hooks, keyed by pattern, into the configs of those patterns."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from fusion_core.errors import FuserMethodError, PatternConflictError, PatternError
from fusion_core.patterns import Pattern, normalize_nested, normalize_sequential, render
from fusion_core.registry.backend import PatternEntry
from fusion_core.registry.blame import plugin_error, show
from fusion_core.registry.contribution import CALLABLES, Contribution
from fusion_core.registry.origin import PluginOrigin


@dataclass(frozen=True)
class Given:
    """A callable and the plugin whose hook returned it."""

    value: Callable[..., Any]
    origin: PluginOrigin


def fill(
    entries: Sequence[PatternEntry], contributions: Sequence[Contribution]
) -> tuple[PatternEntry, ...]:
    """``entries``, their configs completed with the callables that hooks gave for their patterns.

    A config's own value always wins. A hook may speak of a pattern that another plugin contributed.

    Raises:
        PluginError: A hook speaks of a pattern that no config has, or a fuser method cannot take
            the pattern's elements.
        PatternConflictError: Different callables are given for one pattern.
    """
    patterns = {entry.pattern: None for entry in entries}
    for hook, field in CALLABLES.items():
        given = _given(hook, contributions, patterns)
        entries = [_filled(entry, hook, field, given.get(entry.pattern)) for entry in entries]
    return tuple(entries)


def _given(
    hook: str, contributions: Sequence[Contribution], patterns: Collection[Pattern]
) -> dict[Pattern, Given]:
    given: dict[Pattern, Given] = {}
    for contribution in contributions:
        for key, value in contribution.callables.get(hook, {}).items():
            pattern = _pattern_of(key, patterns, contribution.origin, hook)
            first = given.setdefault(pattern, Given(value, contribution.origin))
            if first.value != value:
                raise PatternConflictError(_conflict(hook, pattern, first, contribution.origin))
    return given


def _pattern_of(
    key: object, patterns: Collection[Pattern], origin: PluginOrigin, hook: str
) -> Pattern:
    """The pattern among ``patterns`` that ``key`` spells, in whichever of the two formats."""
    readings = tuple(dict.fromkeys(_readings(key)))
    found = [pattern for pattern in readings if pattern in patterns]
    if len(found) == 1:
        return found[0]
    if not readings:
        raise plugin_error(
            origin, f"the key {show(key)} is not a pattern in either format", hook=hook
        )
    if found:
        texts = " and ".join(render(pattern) for pattern in found)
        problem = f"the key {show(key)} may mean {texts}; put the callable into the config instead"
        raise plugin_error(origin, problem, hook=hook)
    texts = " or ".join(render(pattern) for pattern in readings)
    problem = f"no pattern config has the pattern of the key {show(key)}, which reads {texts}"
    raise plugin_error(origin, problem, hook=hook)


def _readings(key: object) -> Iterator[Pattern]:
    for normalize in (normalize_sequential, normalize_nested):
        with suppress(PatternError):
            yield normalize(key)


def _filled(entry: PatternEntry, hook: str, field: str, given: Given | None) -> PatternEntry:
    if given is None or getattr(entry.config, field) is not None:
        return entry
    config = entry.config.model_copy()
    try:
        setattr(config, field, given.value)
    except FuserMethodError as error:
        raise plugin_error(given.origin, str(error), hook=hook) from error
    except ValidationError as error:
        problem = f"{render(entry.pattern)}: {error.errors(include_url=False)[0]['msg']}"
        raise plugin_error(given.origin, problem, hook=hook) from error
    return replace(entry, config=config)


def _conflict(hook: str, pattern: Pattern, first: Given, second: PluginOrigin) -> str:
    if first.origin == second:
        return f"hook {hook} of {second} gives two different callables for {render(pattern)}"
    return (
        f"hook {hook}: {first.origin} and {second} give different callables for {render(pattern)}; "
        "set the callable in the pattern's config, or contribute a config of its own with another "
        "priority"
    )
