"""Who may import what, where import-linter cannot see: inside torch, and in every plugin."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

# torch.ao by all its names: the others are aliases that import it.
DEPRECATED = (
    "torch.ao",
    "torch.quantization",
    "torch.nn.intrinsic",
    "torch.nn.qat",
    "torch.nn.quantizable",
    "torch.nn.quantized",
)

# What a plugin says goes through hooks and configs; how it is carried out is core's business.
CORE_ONLY = tuple(
    f"fusion_core.{room}" for room in ("ledger", "matcher", "passes", "registry", "report")
)

# Only these rooms of core may know how plugins are called.
PLUGGY_ROOMS = {"__init__", "hookspecs", "registry", "testing"}


def imported(tree: ast.AST, package: tuple[str, ...] = ()) -> Iterator[str]:
    """Every dotted name that ``tree`` imports or reaches through ``torch``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else ()
            parts = (*base, node.module) if node.module else base
            yield from (".".join((*parts, alias.name)) for alias in node.names)
        elif isinstance(node, ast.Attribute):
            name = ast.unparse(node)
            if name.startswith("torch."):
                yield name


def is_within(name: str, parents: tuple[str, ...]) -> bool:
    return any(name == parent or name.startswith(f"{parent}.") for parent in parents)


def imports_of(source) -> list[str]:
    is_package = source.path.name == "__init__.py"
    package = source.module if is_package else source.module[:-1]
    return list(imported(source.tree, package))


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("import torch.ao.quantization", "torch.ao.quantization"),
        ("from torch import ao", "torch.ao"),
        ("from torch.ao.nn import intrinsic", "torch.ao.nn.intrinsic"),
        ("x = torch.ao.quantization.QConfig", "torch.ao.quantization"),
        ("def f():\n    from .passes import fuse", "fusion_core.passes.fuse"),
        ("from ..registry.loading import load", "registry.loading.load"),
    ],
)
def test_every_way_to_import_is_seen(code: str, name: str) -> None:
    assert name in set(imported(ast.parse(code), ("fusion_core",)))


def test_core_never_imports_torch_ao(core_sources) -> None:
    assert not [
        f"{source}: {name}"
        for source in core_sources
        for name in imports_of(source)
        if is_within(name, DEPRECATED)
    ]


def test_core_never_imports_a_plugin(core_sources) -> None:
    assert not [
        f"{source}: {name}"
        for source in core_sources
        for name in imports_of(source)
        if name.startswith("fusion_backend_")
    ]


def test_only_the_registry_and_the_hooks_know_pluggy(core_sources) -> None:
    assert not [
        str(source)
        for source in core_sources
        if (source.module[1:2] or ("__init__",))[0] not in PLUGGY_ROOMS
        and any(is_within(name, ("pluggy",)) for name in imports_of(source))
    ]


def test_plugins_use_the_public_face_of_core(plugin_sources) -> None:
    assert not [
        f"{source}: {name}"
        for source in plugin_sources
        for name in imports_of(source)
        if is_within(name, CORE_ONLY)
        or (name.startswith("fusion_core.") and any(p.startswith("_") for p in name.split(".")))
    ]


def test_plugins_know_nothing_of_each_other(plugin_sources) -> None:
    assert not [
        f"{source}: {name}"
        for source in plugin_sources
        for name in imports_of(source)
        if name.startswith("fusion_backend_") and name.split(".")[0] != source.module[0]
    ]
