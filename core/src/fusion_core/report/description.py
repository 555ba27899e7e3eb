"""``describe``: everything a backend says of itself, as a value that prints."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from fusion_core.patterns import render
from fusion_core.registry import Backend, LoweringEntry, PatternEntry, PluginOrigin, get_backend
from fusion_core.report.printing import Printable
from fusion_core.report.tables import table
from fusion_core.report.wording import (
    dtypes_in_words,
    name_of,
    observation_in_words,
    qconfigs_in_words,
)

_CALLABLES = ("fuser_method", "root_node_getter", "extra_inputs_getter", "constraint")


@dataclass(frozen=True, slots=True)
class PatternDescription:
    """A pattern of a backend.

    Attributes:
        pattern: In data-flow order, as :func:`fusion_core.parse` reads it.
        stage: ``"fuse"`` where it has a fuser method, else ``"quantize"``.
        priority: Higher goes first.
        plugin: The plugin that contributed it: ``name (distribution version)``.
        dtypes: The combinations of dtypes its kernel takes, in words, preferred ones first.
        observation: How its output is observed, in words; empty for a pattern that is fused.
        functions: Names of its constraint, fuser method and getters, by field.
    """

    pattern: str
    stage: str
    priority: int
    plugin: str
    dtypes: tuple[str, ...]
    observation: str
    functions: dict[str, str]


@dataclass(frozen=True, slots=True)
class RuleDescription:
    """A lowering rule of a backend.

    Attributes:
        name: Its name, as reports have it.
        pattern: What it replaces, in data-flow order.
        priority: Higher goes first.
        plugin: The plugin that contributed it: ``name (distribution version)``.
    """

    name: str
    pattern: str
    priority: int
    plugin: str


@dataclass(frozen=True)
class BackendDescription(Printable):
    """What a backend is, supports and lacks.

    ``print`` shows it as text, ``rich.print`` in colour, a notebook as HTML.

    Attributes:
        name: Name of the backend.
        summary: One line on what it is, as its author has it.
        plugins: The backend's plugin and its extensions.
        api: Range of plugin interfaces it speaks, as a version specifier.
        torch: Range of torch versions it supports; empty for any.
        core_version: Version of fusion-core that merged it.
        fingerprint: Digest of plugins, versions, patterns, priorities and dtype configs.
        patterns: What it supports, in order of precedence.
        lowering_rules: Its kernels, in order of precedence.
        qconfigs: The rules of its default qconfig mapping and the qconfig of each, in words; empty
            if it has none.
        presets: The rules of each further qconfig mapping that its plugins give, by its name.
        gaps: What it does not support, with the reason, by capability or glob.
    """

    name: str
    summary: str
    plugins: tuple[PluginOrigin, ...]
    api: str
    torch: str
    core_version: str
    fingerprint: str
    patterns: tuple[PatternDescription, ...]
    lowering_rules: tuple[RuleDescription, ...]
    qconfigs: dict[str, str]
    presets: dict[str, dict[str, str]]
    gaps: dict[str, str]

    def to_dict(self) -> dict[str, Any]:
        """Everything it knows, in values that JSON has."""
        return {**asdict(self), "plugins": [each.to_dict() for each in self.plugins]}

    def _drawn(self) -> Iterator[RenderableType]:
        yield Text.assemble((self.name, "bold"), f"  {self.summary}")
        yield Text(", ".join(map(str, self.plugins)))
        yield Text(
            f"plugin interface {self.api}, torch {self.torch or 'any'}, "
            f"fusion-core {self.core_version}, fingerprint {self.fingerprint}"
        )
        yield from _two_columns("Default qconfig mapping", ("for", "qconfig"), self.qconfigs)
        for name, qconfigs in self.presets.items():
            yield from _two_columns(f"Qconfig mapping {name}", ("for", "qconfig"), qconfigs)
        yield from _two_columns("Gaps", ("what", "why not"), self.gaps)
        yield from _patterns(self.patterns)
        yield from _rules(self.lowering_rules)


def describe(backend: str | Backend) -> BackendDescription:
    """What a backend says of itself: patterns, kernels, dtypes, gaps, and where each comes from.

    Args:
        backend: Name of a backend, or the backend.

    Raises:
        UnknownBackendError: No backend has that name.
        PluginError: Its plugin is broken or cannot run here.
    """
    chosen = get_backend(backend)
    mapping = chosen.qconfig_mapping
    return BackendDescription(
        name=chosen.name,
        summary=chosen.info.summary,
        plugins=chosen.origins,
        api=chosen.info.api,
        torch=chosen.info.torch,
        core_version=chosen.core_version,
        fingerprint=chosen.fingerprint,
        patterns=tuple(map(_pattern, chosen.entries)),
        lowering_rules=tuple(map(_rule, chosen.lowering)),
        qconfigs={} if mapping is None else dict(qconfigs_in_words(mapping)),
        presets={
            name: dict(qconfigs_in_words(each)) for name, each in chosen.qconfig_mappings.items()
        },
        gaps=dict(chosen.info.gaps),
    )


def _pattern(entry: PatternEntry) -> PatternDescription:
    config = entry.config
    is_fused = config.fuser_method is not None
    functions = {name: getattr(config, name) for name in _CALLABLES}
    return PatternDescription(
        pattern=render(entry.pattern),
        stage="fuse" if is_fused else "quantize",
        priority=entry.priority,
        plugin=str(entry.origin),
        dtypes=tuple(map(dtypes_in_words, config.dtype_configs)),
        observation="" if is_fused else observation_in_words(config),
        functions={name: name_of(each) for name, each in functions.items() if each is not None},
    )


def _rule(entry: LoweringEntry) -> RuleDescription:
    return RuleDescription(
        entry.rule.label, render(entry.pattern), entry.priority, str(entry.origin)
    )


def _two_columns(
    title: str, columns: tuple[str, str], rows: dict[str, str]
) -> Iterator[RenderableType]:
    if rows:
        drawn = table(title, columns)
        for row in rows.items():
            drawn.add_row(*map(Text, row))
        yield drawn


def _patterns(patterns: tuple[PatternDescription, ...]) -> Iterator[RenderableType]:
    drawn = table(f"{len(patterns)} patterns", ("stage", "pattern", "priority", "takes", "plugin"))
    for each in patterns:
        named = (
            f"{name.replace('_', ' ')}: {function}" for name, function in each.functions.items()
        )
        dtypes = each.dtypes if each.observation else ()  # they count where it is quantized
        takes = "\n".join(filter(None, (*dtypes, each.observation, *named)))
        plugin = each.plugin.partition(" ")[0]
        drawn.add_row(each.stage, Text(each.pattern), str(each.priority), Text(takes), Text(plugin))
    yield drawn


def _rules(rules: tuple[RuleDescription, ...]) -> Iterator[RenderableType]:
    if not rules:
        yield Text("\nNo kernels: what it quantizes runs in the reference form.")
        return
    columns = ("kernel", "pattern", "priority", "plugin")
    drawn = table(f"{len(rules)} lowering rules", columns)
    for each in rules:
        plugin = each.plugin.partition(" ")[0]
        drawn.add_row(Text(each.name), Text(each.pattern), str(each.priority), Text(plugin))
    yield drawn
