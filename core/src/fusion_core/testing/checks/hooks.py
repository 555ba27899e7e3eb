"""Hooks answer alike each time, and their answers fit together."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from fusion_core.configs import API_VERSION, INTEGER_DTYPES, ObservationType
from fusion_core.passes.dtypes import choose_dtype_config
from fusion_core.passes.fixed_range import with_fixed_output
from fusion_core.patterns import operators_in
from fusion_core.registry import Backend, PatternEntry, Registry, get_backend, refresh
from fusion_core.report import lint
from fusion_core.testing.installed import is_installed
from fusion_core.testing.require import require
from fusion_core.testing.subject import Subject

PARTS = (
    "patterns",
    "lowering rules",
    "default qconfig mapping",
    "qconfig mappings",
    "backend info",
    "fingerprint",
)


class HookChecks:
    """What a backend says, asked again and held against what it says elsewhere."""

    @pytest.mark.parametrize("part", PARTS)
    def test_hooks_answer_alike_when_asked_again(self, subject: Subject, part: str) -> None:
        """The plugin is loaded a second time by a registry that knows nothing of it."""
        again: Backend = subject.kept("again", lambda: _loaded_again(subject.backend))
        first, second = (_content(each)[part] for each in (subject.backend, again))
        require(first == second, f"asked twice, its {part} differ: {_difference(first, second)}")

    def test_it_supports_this_plugin_interface(self, subject: Subject) -> None:
        """The range in its info contains the version of this core's interface."""
        allowed = subject.info.api
        require(
            SpecifierSet(allowed).contains(API_VERSION),
            f"its info says api={allowed!r}, and this core speaks {API_VERSION}",
        )

    def test_it_supports_this_torch(self, subject: Subject) -> None:
        """The range in its info contains the version of this torch."""
        allowed, version = subject.info.torch, Version(torch.__version__).base_version
        require(
            SpecifierSet(allowed).contains(version, prereleases=True),
            f"its info says torch={allowed!r}, and this is torch {version}",
        )

    def test_it_says_in_a_line_what_it_is(self, subject: Subject) -> None:
        """Listings show it."""
        summary = subject.info.summary
        require(
            bool(summary.strip()) and len(summary.splitlines()) == 1,
            f"the summary in its info is {summary!r}; give one line, from fusion_backend_info",
        )

    def test_lint_finds_no_error(self, subject: Subject) -> None:
        """Neither dead patterns nor fused modules that nothing quantizes."""
        errors = lint(subject.backend).errors
        require(not errors, "\n".join(map(str, errors)))

    def test_it_has_a_default_qconfig_mapping(self, subject: Subject) -> None:
        """Users who give none get one that fits the kernels."""
        require(
            subject.backend.qconfig_mapping is not None,
            "it has no default qconfig mapping; implement fusion_default_qconfig_mapping",
        )

    def test_the_default_qconfig_fits(self, subject: Subject, observed: PatternEntry) -> None:
        """Of each pattern that is observed, it satisfies one combination of dtypes."""
        mapping = subject.backend.qconfig_mapping
        if mapping is None:
            pytest.skip("it has no default qconfig mapping, which is a failure of its own")
        config = observed.config
        named = [each.target for each in operators_in(observed.pattern)]
        types = [each for each in (config.root_module, *named) if each is not None]
        qconfig, rule = mapping.resolve("", types, scope="")
        if qconfig is None:
            pytest.skip(f"the default mapping leaves it in float ({rule})")
        weighted = config.root_module is not None or "weight" in config.input_type_to_index
        tried = [
            choose_dtype_config((each,), with_fixed_output(each, qconfig), weighted=weighted)
            for each in config.dtype_configs
        ]
        require(
            any(chosen is not None for chosen, _ in tried),
            f"the default qconfig ({rule}) fits none of its {len(tried)} dtype configs; of the "
            f"first, {tried[0][1]}",
        )


def is_observed(entry: PatternEntry) -> bool:
    """Whether a pattern is one of those that prepare quantizes."""
    config = entry.config
    unobserved = config.observation_type is ObservationType.INPUT_OUTPUT_NOT_OBSERVED
    return config.fuser_method is None and bool(config.dtype_configs) and not unobserved


def has_codes(entry: PatternEntry) -> bool:
    """Whether any of its dtype configs quantizes the input to integers beforehand."""
    return any(
        each.constraints("input").dtype in INTEGER_DTYPES and not each.is_dynamic
        for each in entry.config.dtype_configs
    )


def _loaded_again(backend: Backend) -> Backend:
    if is_installed(backend):
        return Registry().get_backend(backend.name)
    refresh()
    return get_backend(backend.name)


def _content(backend: Backend) -> dict[str, Any]:
    """What the hooks answered, in values that can be compared."""
    mapping = backend.qconfig_mapping
    return {
        "patterns": [
            (entry.label, entry.config.model_dump(mode="json")) for entry in backend.entries
        ],
        "lowering rules": [(entry.label, entry.priority) for entry in backend.lowering],
        "default qconfig mapping": None if mapping is None else mapping.model_dump(mode="json"),
        "qconfig mappings": {
            name: each.model_dump(mode="json") for name, each in backend.qconfig_mappings.items()
        },
        "backend info": backend.info.model_dump(mode="json"),
        "fingerprint": backend.fingerprint,
    }


def _difference(first: Any, second: Any) -> str:
    """The first item that differs, of two lists; else both values."""
    if isinstance(first, list) and isinstance(second, list) and len(first) == len(second):
        pairs = zip(first, second, strict=True)
        first, second = next((pair for pair in pairs if pair[0] != pair[1]), (first, second))
    return f"first {first}, then {second}"
