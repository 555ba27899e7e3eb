"""The public interface as text, one fact a line, as the source has it; run as a module it renews the snapshot.

``python -m tests.architecture.public_api`` does so, from the repository's folder. Nothing is
evaluated, so the text is the same for every Python and torch.
"""

from __future__ import annotations

import ast
import enum
import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

from typer.main import get_command

from fusion_core.cli import app
from fusion_core.configs import API_VERSION, CAPABILITIES
from fusion_core.hookspecs import HookSpecs
from fusion_core.registry.discovery import GROUP

from .documents import documents

SNAPSHOT = Path(__file__).with_name("public_api.txt")

MODULES = (
    "fusion_core",
    "fusion_core.catalog",
    "fusion_core.errors",
    "fusion_core.kernels",
    "fusion_core.nn",
    "fusion_core.nn.fused",
    "fusion_core.nn.reference",
    "fusion_core.qops",
    "fusion_core.testing",
)

_SPECIAL = {"__init__", "__call__", "__len__", "__iter__", "__getitem__", "__contains__"}


def public_api() -> str:
    """Everything that stability is promised for, sorted."""
    major, _, minor = API_VERSION.partition(".")
    lines = {f"entry-point-group {GROUP}", f"api major = {major}", f"api minor = {minor}"}
    lines |= {f"capability {name}" for name in CAPABILITIES}
    lines |= set(_commands())
    lines |= set(documents())
    lines |= {f"hook {name}{_bound(_definition(hook))}" for name, hook in _hooks()}
    for name in MODULES:
        lines |= set(_module(importlib.import_module(name)))
    return "\n".join(sorted(lines)) + "\n"


def _hooks() -> Iterator[tuple[str, Callable[..., object]]]:
    yield from (each for each in vars(HookSpecs).items() if each[0].startswith("fusion_"))


def public_names(module: ModuleType) -> list[str]:
    """What ``module`` offers: its ``__all__``, else what it defines itself."""
    declared = getattr(module, "__all__", None)
    if declared is not None:
        return sorted(declared)
    return sorted(
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and (name.isupper() or getattr(value, "__module__", None) == module.__name__)
        # Errors are caught, not made: their module's functions and constructors are core's own.
        and (inspect.isclass(value) or module.__name__ != "fusion_core.errors")
    )


def _module(module: ModuleType) -> Iterator[str]:
    for name in public_names(module):
        value, path = getattr(module, name), f"{module.__name__}.{name}"
        if isinstance(value, ModuleType):
            yield f"module {path}"
        elif inspect.isclass(value):
            yield from _class(value, path)
        elif inspect.isroutine(value):
            yield f"function {path}{_bound(_definition(value))}"
        else:
            yield f"value {path}: {type(value).__name__}"
            offered = dir(value) if type(value).__name__ == "_Operations" else ()
            yield from (f"value {path}.{each}" for each in offered if not each.startswith("_"))


def _class(kind: type, path: str) -> Iterator[str]:
    node = _definition(kind)
    bases = ", ".join(map(ast.unparse, [*node.bases, *(each.value for each in node.keywords)]))
    yield f"class {path}({bases})"
    if issubclass(kind, enum.Enum):
        yield from (f"member {path}.{each.name} = {each.value!r}" for each in kind)
    for line in _class_members(kind):
        what, _, rest = line.partition(" ")
        if not (issubclass(kind, Exception) and rest.startswith("__init__")):
            yield f"{what} {path}.{rest}"


def _class_members(kind: type) -> Iterator[str]:
    """What a class of ours defines or inherits from one of ours, the nearest definition of each name."""
    seen: set[str] = set()
    for owner in kind.__mro__:
        if not owner.__module__.startswith("fusion_core"):
            continue
        found = [each for node in _definition(owner).body for each in _members(node)]
        # An overloaded function has several definitions in one class; all of them count.
        yield from (line for name, line in found if name not in seen)
        seen |= {name for name, _ in found}


def _members(node: ast.stmt) -> Iterator[tuple[str, str]]:
    """Name and line of what one statement in the body of a class defines."""
    if isinstance(node, ast.AnnAssign) and _is_public(ast.unparse(node.target)):
        name = ast.unparse(node.target)
        default = f" = {ast.unparse(node.value)}" if node.value else ""
        yield name, f"field {name}: {_type(node.annotation)}{default}"
    if not isinstance(node, ast.FunctionDef):
        return
    if node.name == "__init__":
        yield from ((name, f"attribute {name}") for name in _assigned(node))
    if not _is_public(node.name) and node.name not in _SPECIAL:
        return
    decorators = {ast.unparse(each).rpartition(".")[2] for each in node.decorator_list}
    if decorators & {"property", "cached_property"}:
        yield node.name, f"property {node.name}: {ast.unparse(node.returns)}"
    else:
        yield node.name, f"method {node.name}{_signature(node)}"


def _assigned(constructor: ast.FunctionDef) -> Iterator[str]:
    """Public attributes that a constructor sets."""
    for node in ast.walk(constructor):
        stored = isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
        if stored and ast.unparse(node.value) == "self" and _is_public(node.attr):
            yield node.attr


class _Plain(ast.NodeTransformer):
    """Takes out of annotations what only pydantic reads: ``int`` for ``Annotated[int, ...]``."""

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        self.generic_visit(node)
        is_annotated = ast.unparse(node.value) == "Annotated"
        return node.slice.elts[0] if is_annotated else node


def _type(annotation: ast.expr) -> str:
    plain = _Plain().visit(ast.parse(ast.unparse(annotation), mode="eval"))
    return ast.unparse(plain)


def _is_public(name: str) -> bool:
    # The checks of the conformance kit are its content, not a part of its interface.
    return not name.startswith(("_", "test_", "pytest_")) and name != "model_config"


def _signature(node: ast.FunctionDef) -> str:
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"({ast.unparse(node.args)}){returns}"


def _bound(node: ast.FunctionDef) -> str:
    """The signature as the caller sees it, without ``self``."""
    return re.sub(r"^\(self(, )?", "(", _signature(node))


@cache
def _definitions(file: str) -> dict[str, ast.FunctionDef | ast.ClassDef]:
    """What a file defines, by qualified name; of methods those of classes at the top."""
    tree = ast.parse(Path(file).read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.ClassDef)
    found = {node.name: node for node in tree.body if isinstance(node, kinds)}
    methods = {
        f"{name}.{each.name}": each
        for name, node in found.items()
        for each in node.body
        if isinstance(each, kinds)
    }
    return found | methods


def _definition(value: Callable[..., object]) -> ast.FunctionDef | ast.ClassDef:
    file = sys.modules[value.__module__].__file__
    return _definitions(str(file))[value.__qualname__]


def _commands() -> Iterator[str]:
    """Commands with their arguments and options; a flag has no value."""
    group = get_command(app)
    for name, command in [("", group), *sorted(group.commands.items())]:
        path = f"fusion:{name}" if name else "fusion"
        yield f"command {path}"
        for parameter in command.params:
            need = " required" if parameter.required else ""
            flag = " flag" if getattr(parameter, "is_flag", False) else ""
            label = parameter.opts[-1]
            yield f"{parameter.param_type_name} {path}:{label}{need}{flag}"


if __name__ == "__main__":
    SNAPSHOT.write_text(public_api(), encoding="utf-8")
    sys.stdout.write(f"wrote {SNAPSHOT}\n")
