"""Makes one backend of what its plugins contribute, whatever order they come in."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias, TypeVar

from fusion_core.configs import BackendInfo, QConfigMapping
from fusion_core.errors import PatternConflictError
from fusion_core.patterns import Pattern, precedence, render
from fusion_core.registry.backend import Backend, LoweringEntry, PatternEntry
from fusion_core.registry.blame import plugin_error
from fusion_core.registry.contribution import Contribution
from fusion_core.registry.filling import fill
from fusion_core.registry.origin import PluginOrigin

Entry = TypeVar("Entry", PatternEntry, LoweringEntry)

Content: TypeAlias = dict[str, Any]
"""What two contributions of one pattern are compared by."""


def merge(contributions: Iterable[Contribution], *, core_version: str) -> Backend:
    """The backend that ``contributions``, of one plugin and its extensions, make together.

    Callables from hooks are filled in first. Then entries are sorted by
    :func:`fusion_core.patterns.precedence`, and of identical contributions the first is kept. Of
    several default qconfig mappings the backend's own counts, else that of the first extension by
    name. Further qconfig mappings are put together; no name may be given twice.

    Args:
        contributions: At least one, in any order.
        core_version: Recorded in the backend.

    Raises:
        PluginError: A hook gives a callable that fits no pattern, or a qconfig mapping whose name
            another plugin has taken.
        PatternConflictError: Two contributions have the same pattern at the same priority, and
            differ.
    """
    ordered = sorted(contributions, key=lambda each: each.origin)
    entries = [
        PatternEntry(config, config.normal_pattern, each.origin, index)
        for each in ordered
        for index, config in enumerate(each.configs)
    ]
    rules = [
        LoweringEntry(rule, rule.normal_pattern, each.origin, index)
        for each in ordered
        for index, rule in enumerate(each.rules)
    ]
    patterns = _settled(sorted(fill(entries, ordered), key=_precedence), _config_content)
    lowering = _settled(sorted(rules, key=_precedence), _rule_content, may_repeat=True)
    origins = tuple(each.origin for each in ordered)
    return Backend(
        name=origins[0].backend,
        origins=origins,
        entries=patterns,
        lowering=lowering,
        info=ordered[0].info or BackendInfo(),
        fingerprint=_fingerprint(ordered, patterns, lowering),
        core_version=core_version,
        _qconfig_mapping=next(filter(None, (each.qconfig_mapping for each in ordered)), None),
        _qconfig_mappings=_qconfig_mappings(ordered),
    )


def _qconfig_mappings(contributions: Iterable[Contribution]) -> dict[str, QConfigMapping]:
    """The named mappings of all plugins; which of two of one name is meant, nobody could say."""
    found: dict[str, QConfigMapping] = {}
    givers: dict[str, PluginOrigin] = {}
    for contribution in contributions:
        for name, mapping in contribution.qconfig_mappings.items():
            first = givers.setdefault(name, contribution.origin)
            if first is not contribution.origin:
                problem = f"it gives the qconfig mapping {name!r}, which {first} gives as well; rename one"
                raise plugin_error(contribution.origin, problem, hook="fusion_qconfig_mappings")
            found[name] = mapping
    return found


def _precedence(entry: PatternEntry | LoweringEntry) -> tuple[int, int, int, str, int]:
    return precedence(
        entry.pattern, priority=entry.priority, plugin=entry.origin.name, index=entry.index
    )


def _settled(
    entries: Iterable[Entry], content: Callable[[Entry], Content], *, may_repeat: bool = False
) -> tuple[Entry, ...]:
    """Sorted ``entries`` without repetitions; refuses a choice that nobody has made.

    Args:
        entries: In order of precedence.
        content: What must be equal for two entries of one pattern to be the same.
        may_repeat: Whether one plugin may have a pattern twice at one priority, in its own order.
    """
    kept: list[Entry] = []
    by_place: dict[tuple[Pattern, int], list[Entry]] = {}
    for entry in entries:
        rivals = by_place.setdefault((entry.pattern, entry.priority), [])
        if any(content(rival) == content(entry) for rival in rivals):
            continue
        for rival in rivals:
            if not (may_repeat and rival.origin == entry.origin):
                raise PatternConflictError(_conflict(rival, entry, content))
        rivals.append(entry)
        kept.append(entry)
    return tuple(kept)


def _config_content(entry: PatternEntry) -> Content:
    """All fields but the pattern, whose spelling counts only for what a fuser method is given."""
    config = entry.config
    content = dict(config)
    sequential, nested = content.pop("pattern"), content.pop("complex_pattern")
    if config.fuser_method is not None:
        elements = sequential if sequential is not None else nested
        content["order of the pattern's elements"] = (nested is None, len(elements))
    return content


def _rule_content(entry: LoweringEntry) -> Content:
    """All fields but the pattern, whose format counts for what ``lower`` is given."""
    content = dict(entry.rule)
    content["pattern"] = content["pattern"] is not None
    del content["complex_pattern"]
    return content


def _conflict(first: Entry, second: Entry, content: Callable[[Entry], Content]) -> str:
    ours, theirs = content(first), content(second)
    fields = ", ".join(
        name for name in ours | theirs if (name, ours.get(name)) != (name, theirs.get(name))
    )
    what = f"{render(first.pattern)} at priority {first.priority}"
    if first.origin == second.origin:
        claim = f"{first.origin} gives {what} twice, as items {first.index} and {second.index}"
    else:
        claim = f"{first.origin} and {second.origin} both give {what}"
    return (
        f"{claim}, with different {fields}; set priority on one of them to say which goes first "
        "(higher does)"
    )


def _fingerprint(
    contributions: Iterable[Contribution],
    patterns: Iterable[PatternEntry],
    lowering: Iterable[LoweringEntry],
) -> str:
    """Digest of everything that decides what the backend supports and what wins; hex."""
    facts = {
        "plugins": [
            (each.origin.name, each.origin.distribution, each.origin.version)
            for each in contributions
        ],
        "patterns": [
            (
                *(entry.label, entry.priority, entry.config.observation_type.name),
                [each.model_dump(mode="json") for each in entry.config.dtype_configs],
            )
            for entry in patterns
        ],
        "lowering": [(each.label, render(each.pattern), each.priority) for each in lowering],
    }
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]
