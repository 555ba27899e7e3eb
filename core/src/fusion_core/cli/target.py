"""``MODULE:FACTORY`` and ``--input``: the model that a command is about, and one input for it."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from fusion_core.errors import ModelTargetError, first_few

_SHAPE = re.compile(r"(?P<sizes>\d+(x\d+)*)(:(?P<dtype>\w+))?", re.ASCII)
_DTYPES = {name: value for name, value in vars(torch).items() if isinstance(value, torch.dtype)}

Inputs: TypeAlias = Any
"""One input of a model, in any form that tracing takes; None where there is none."""


def load_model(target: str) -> tuple[nn.Module, Inputs]:
    """The model that ``target`` stands for, in eval mode, and the inputs that came with it.

    Args:
        target: ``package.module:name`` or ``path/to/file.py:name``. The name stands for a module,
            or for something that is called without arguments and returns a module, or a pair of a
            module and one input. The current folder is searched first.

    Raises:
        ModelTargetError: It stands for nothing of the kind; says what there is.
    """
    place, colon, name = target.rpartition(":")
    if not colon or not place or not name:
        raise ModelTargetError(
            target, "it is not MODULE:FACTORY, such as nets:build or nets.py:build"
        )
    found = _attribute(_module(target, place), target, name)
    model, inputs = _called(found, target, name), None
    if isinstance(model, tuple) and len(model) == 2:  # noqa: PLR2004  a pair
        model, inputs = model
    if not isinstance(model, nn.Module):
        problem = f"it gives {type(model).__name__}, neither a torch.nn.Module nor (model, inputs)"
        raise ModelTargetError(target, problem)
    return model.eval(), inputs


def _module(target: str, place: str) -> ModuleType:
    is_file = place.endswith(".py")
    folders = [Path.cwd(), *([Path(place).resolve().parent] if is_file else [])]
    for folder in map(str, folders):
        if folder not in sys.path:
            sys.path.insert(0, folder)
    if is_file and not Path(place).is_file():
        raise ModelTargetError(target, f"there is no file {place} in {Path.cwd()}")
    try:
        return _executed(Path(place)) if is_file else importlib.import_module(place)
    except ModuleNotFoundError as error:
        searched = f"; searched were the current folder and what is installed for {sys.executable}"
        raise ModelTargetError(target, f"{error}{searched}") from error
    except Exception as error:
        problem = f"importing {place} raised {type(error).__name__}: {error}"
        raise ModelTargetError(target, problem) from error


def _executed(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        msg = f"{file} cannot be read as a module"
        raise ImportError(msg)
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module  # before it runs, as import does: dataclasses look there
    spec.loader.exec_module(module)
    return module


def _attribute(module: ModuleType, target: str, name: str) -> object:
    found: object = module
    for part in name.split("."):
        if not hasattr(found, part):
            raise ModelTargetError(target, _missing(found, part))
        found = getattr(found, part)
    return found


def _missing(holder: object, name: str) -> str:
    public = (
        [each for each in vars(holder) if not each.startswith("_")]
        if hasattr(holder, "__dict__")
        else []
    )
    usable = [each for each in public if _is_usable(getattr(holder, each))]
    near = difflib.get_close_matches(name, usable, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    shown = getattr(holder, "__name__", type(holder).__name__)
    return f"{shown} has no {name!r}; it has {first_few(usable, 12) or 'nothing that could be a model'}.{hint}"


def _is_usable(value: object) -> bool:
    return callable(value) and not isinstance(value, ModuleType)


def _called(found: object, target: str, name: str) -> object:
    """What ``found`` gives when it is called; a module is one already."""
    if isinstance(found, nn.Module):
        return found
    if not callable(found):
        kind = type(found).__name__
        raise ModelTargetError(target, f"{name} is {kind}, neither a torch.nn.Module nor callable")
    try:
        return found()
    except Exception as error:
        problem = f"calling {name}() raised {type(error).__name__}: {error}"
        raise ModelTargetError(target, problem) from error


def read_inputs(shapes: list[str]) -> tuple[Tensor, ...]:
    """Tensors of zeros.

    Args:
        shapes: For each its sizes and its dtype, float32 where there is none: ``1x3x224x224``,
            ``1x16:int64``.

    Raises:
        ModelTargetError: One is not of this form.
    """
    return tuple(map(_input, shapes))


def _input(text: str) -> Tensor:
    read = _SHAPE.fullmatch(text)
    if read is None:
        raise ModelTargetError(
            text, "it is not a shape and a dtype, such as 1x3x224x224 or 1x16:int64"
        )
    dtype = read["dtype"] or "float32"
    if dtype not in _DTYPES:
        near = difflib.get_close_matches(dtype, _DTYPES, n=3)
        hint = f" Did you mean {' or '.join(near)}?" if near else ""
        raise ModelTargetError(text, f"torch has no dtype {dtype!r}.{hint}")
    return torch.zeros([int(size) for size in read["sizes"].split("x")], dtype=_DTYPES[dtype])
