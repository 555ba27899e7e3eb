"""What a chosen backend is: its plugins' patterns and rules, merged, sorted, and then fixed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from pydantic import BaseModel

from fusion_core.configs import BackendInfo, BackendPatternConfig, LoweringRule, QConfigMapping
from fusion_core.patterns import Pattern, render
from fusion_core.registry.origin import PluginOrigin
from fusion_core.registry.versions import BackendIdentity

Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class PatternEntry:
    """A pattern the backend supports.

    Attributes:
        config: What the passes must know, with the callables that came through hooks filled in.
        pattern: Canonical form of the config's pattern.
        origin: The plugin that contributed it.
        index: Its place in that plugin's list.
    """

    config: BackendPatternConfig
    pattern: Pattern
    origin: PluginOrigin
    index: int

    @property
    def priority(self) -> int:
        """The author's priority; higher goes first."""
        return self.config.priority

    def __str__(self) -> str:
        return f"{self.origin}, {render(self.pattern)}"

    @property
    def label(self) -> str:
        """For reports: ``fbgemm: Conv2d -> ReLU``."""
        return f"{self.origin.name}: {render(self.pattern)}"


@dataclass(frozen=True, slots=True)
class LoweringEntry:
    """A rule that turns a pattern of the reference graph into a kernel.

    Attributes:
        rule: The rule as the plugin gave it.
        pattern: Canonical form of the rule's pattern.
        origin: The plugin that contributed it.
        index: Its place in that plugin's list.
    """

    rule: LoweringRule
    pattern: Pattern
    origin: PluginOrigin
    index: int

    @property
    def priority(self) -> int:
        """The author's priority; higher goes first."""
        return self.rule.priority

    def __str__(self) -> str:
        return f"{self.origin}, lowering rule {self.rule.label!r}"

    @property
    def label(self) -> str:
        """For reports: ``fbgemm: linear_relu``."""
        return f"{self.origin.name}: {self.rule.label}"


@dataclass(frozen=True, eq=False)
class Backend:
    """A backend and its extensions as one value.

    Two backends are the same only if they are the same object, so a backend can key a cache. Its
    content depends neither on the order of installation nor on that of import, and nothing a
    plugin does after its hooks were called changes it.

    Attributes:
        name: What the user calls it.
        origins: The plugin of that name, then its extensions by name.
        entries: Supported patterns; the first that matches wins.
        lowering: Lowering rules; the first that matches and does not skip wins.
        info: What the backend says of itself.
        fingerprint: Digest of plugins, versions, patterns, priorities and dtype configs.
        core_version: Version of fusion-core that merged it.
    """

    name: str
    origins: tuple[PluginOrigin, ...]
    entries: tuple[PatternEntry, ...] = field(repr=False)
    lowering: tuple[LoweringEntry, ...] = field(repr=False)
    info: BackendInfo = field(repr=False)
    fingerprint: str
    core_version: str
    _qconfig_mapping: QConfigMapping | None = field(default=None, repr=False)
    _qconfig_mappings: Mapping[str, QConfigMapping] = field(default_factory=dict, repr=False)

    @property
    def qconfig_mapping(self) -> QConfigMapping | None:
        """The default qconfig mapping, as a copy that may be changed; None if no plugin has one."""
        return None if self._qconfig_mapping is None else own_copy(self._qconfig_mapping)

    @property
    def qconfig_mappings(self) -> dict[str, QConfigMapping]:
        """The further qconfig mappings by name, sorted, as copies that may be changed.

        ``"dynamic"``, ``"weight_only"`` and ``"qat"`` are those of the modes, all others presets.
        """
        return {name: own_copy(each) for name, each in sorted(self._qconfig_mappings.items())}

    @property
    def identity(self) -> BackendIdentity:
        """What a model records of the backend it was quantized for."""
        return BackendIdentity(self.name, self.fingerprint, self.core_version, self.origins)


def own_copy(model: Model) -> Model:
    """``model`` validated once more into containers of its own.

    Types and functions within stay the same objects: they are what patterns are matched by.

    Raises:
        pydantic.ValidationError: A field is invalid, because validation was side-stepped.
    """
    return type(model).model_validate(dict(model))
