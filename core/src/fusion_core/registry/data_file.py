"""A backend without code: a TOML or JSON file, read into an object with hooks like any other plugin."""

from __future__ import annotations

import difflib
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ValidationError

from fusion_core.configs import (
    BackendInfo,
    BackendPatternConfig,
    DTypeConfig,
    DTypeWithConstraints,
    LoweringRule,
    ObserverSpec,
    QConfig,
    QConfigMapping,
)
from fusion_core.errors import BackendFileError, FusionError
from fusion_core.hookspecs import hookimpl
from fusion_core.patterns import object_named

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    import os

Model = TypeVar("Model", bound=BaseModel)

# Tables within tables, whose keys may be misspelt too.
_WITHIN = (DTypeConfig, DTypeWithConstraints, QConfig, ObserverSpec)


class DataBackend:
    """A plugin made from a file; it has the hooks that the file has something to say to.

    Attributes:
        path: The file.
    """

    def __init__(self, path: Path, answers: Mapping[str, Callable[[], object]]) -> None:
        self.path = path
        for hook, answer in answers.items():
            setattr(self, hook, hookimpl(answer))

    def __repr__(self) -> str:
        return f"read_backend({str(self.path)!r})"


def read_backend(path: str | os.PathLike[str]) -> DataBackend:
    """A plugin from a file of data, for :func:`register_backend` or as the target of an entry point.

    ::

        backend = read_backend(Path(__file__).with_name("acme.toml"))

    The file has a table ``info`` with fields of ``BackendInfo``, arrays of tables ``patterns`` and
    ``lowering_rules`` with fields of ``BackendPatternConfig`` and ``LoweringRule``, ``qconfig``,
    which is a table with fields of ``QConfigMapping`` or the qualified name of a function that
    returns a qconfig mapping or a qconfig, and ``qconfigs``, a table of such values by name; each
    may be left out. Patterns are text, see :func:`parse`; functions, types and dtypes go by name.

    Args:
        path: A file whose name ends in ``.toml`` or ``.json``.

    Raises:
        BackendFileError: The file is not TOML or JSON, a key is unknown, or a value is wrong; names
            the file and the table.
        OSError: The file cannot be read.
    """
    file = Path(path)
    tables = _tables(file)
    answers: dict[str, Callable[[], object]] = {}
    for key, value in tables.items():
        if key not in _HOOKS:
            raise BackendFileError(file, f"there is no table {key!r}{_near(key, _HOOKS)}")
        hook, read = _HOOKS[key]
        answers[hook] = read(file, key, value)
    if not answers:
        raise BackendFileError(file, f"it has none of the tables {', '.join(_HOOKS)}")
    return DataBackend(file, answers)


def _tables(file: Path) -> dict[str, Any]:
    formats = {".toml": tomllib.loads, ".json": json.loads}
    loads = formats.get(file.suffix.lower())
    if loads is None:
        raise BackendFileError(file, f"its name ends in none of {', '.join(formats)}")
    try:
        tables = loads(file.read_text("utf-8"))
    except ValueError as error:  # what both readers raise, and what is not UTF-8
        raise BackendFileError(file, str(error)) from error
    if not isinstance(tables, dict):
        raise BackendFileError(file, f"it holds a {type(tables).__name__}, not an object with keys")
    return tables


def _info(file: Path, key: str, table: object) -> Callable[[], object]:
    info = _model(BackendInfo, table, file, key)
    return lambda: info


def _patterns(file: Path, key: str, tables: object) -> Callable[[], object]:
    return _models(BackendPatternConfig, tables, file, key)


def _lowering_rules(file: Path, key: str, tables: object) -> Callable[[], object]:
    return _models(LoweringRule, tables, file, key)


def _qconfig(file: Path, key: str, value: object) -> Callable[[], object]:
    if isinstance(value, str):
        return _qconfig_function(_named(value, file, key))
    mapping = _model(QConfigMapping, value, file, key)
    by_type = mapping.object_type_qconfigs.items()
    mapping.object_type_qconfigs = {
        # Without a dot it is the name of a method.
        _named(name, file, f"{key}.object_type_qconfigs") if "." in name else name: qconfig
        for name, qconfig in by_type
    }
    return lambda: mapping


def _qconfigs(file: Path, key: str, tables: object) -> Callable[[], object]:
    if not isinstance(tables, dict):
        raise BackendFileError(file, f"{key} is not a table; in TOML, write [{key}.<name>]")
    answers = {name: _qconfig(file, f"{key}.{name}", each) for name, each in tables.items()}
    return lambda: {name: answer() for name, answer in answers.items()}


def _qconfig_function(function: Callable[[], object]) -> Callable[[], object]:
    def answer() -> object:
        made = function()
        return QConfigMapping(global_qconfig=made) if isinstance(made, QConfig) else made

    return answer


# By key of the file: the hook it answers, and what reads it.
_HOOKS: Mapping[str, tuple[str, Callable[[Path, str, object], Callable[[], object]]]] = {
    "info": ("fusion_backend_info", _info),
    "patterns": ("fusion_pattern_configs", _patterns),
    "lowering_rules": ("fusion_lowering_rules", _lowering_rules),
    "qconfig": ("fusion_default_qconfig_mapping", _qconfig),
    "qconfigs": ("fusion_qconfig_mappings", _qconfigs),
}


def _models(kind: type[Model], tables: object, file: Path, key: str) -> Callable[[], object]:
    if not isinstance(tables, list):
        raise BackendFileError(file, f"{key} is not an array of tables; in TOML, write [[{key}]]")
    models = [_model(kind, each, file, f"{key}[{index}]") for index, each in enumerate(tables)]
    return lambda: models


def _model(kind: type[Model], table: object, file: Path, where: str) -> Model:
    """``table`` as a model; read as JSON, in which patterns and objects are text."""
    try:
        model = kind.model_validate_json(json.dumps(table, default=str))
        if isinstance(model, (BackendPatternConfig, LoweringRule)):
            _ = model.normal_pattern  # which a config may lack, but not one that is complete
    except ValidationError as error:
        problems = "; ".join(_shown(each, kind) for each in error.errors(include_url=False))
        raise BackendFileError(file, f"{where}: {problems}") from error
    except FusionError as error:
        raise BackendFileError(file, f"{where}: {error}") from error
    return model


def _shown(error: Any, kind: type[BaseModel]) -> str:
    # Where a field may be of several types, pydantic names the type it tried as well.
    field = ".".join(str(each) for each in error["loc"] if "[" not in str(each))
    if error["type"] == "extra_forbidden":
        known = [name for each in (kind, *_WITHIN) for name in each.model_fields]
        return f"there is no field {field!r}{_near(error['loc'][-1], known)}"
    problem = error["msg"].removeprefix("Value error, ")
    return f"field {field}: {problem}" if field else problem


def _named(name: str, file: Path, where: str) -> Any:
    try:
        found = object_named(name)
    except LookupError as error:
        raise BackendFileError(file, f"{where}: {error.args[0]}") from error
    if not callable(found):
        raise BackendFileError(file, f"{where}: {name} is neither a type nor a function")
    return found


def _near(name: str, known: Any) -> str:
    near = difflib.get_close_matches(name, [*known], n=3)
    return f"; did you mean {' or '.join(near)}?" if near else f"; there are {', '.join(known)}"
