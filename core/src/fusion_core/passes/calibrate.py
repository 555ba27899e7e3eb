"""calibrate: run data through a prepared model and see that every observer got some."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from typing import Any

import torch
from rich.console import Console
from rich.progress import track
from torch import nn
from torch.fx import GraphModule
from typing_extensions import Self

from fusion_core.errors import CalibrationError, FusionError, first_few
from fusion_core.nn.switches import observing
from fusion_core.passes.observed import label_of
from fusion_core.passes.parts import modules_with_parts
from fusion_core.passes.processes import agree, is_one_of_several, merge_statistics
from fusion_core.passes.record import Stage, record_of
from fusion_core.passes.written import memory_kept


def calibrate(
    model: GraphModule,
    data: Iterable[Any],
    *,
    has_labels: bool = False,
    limit: int | None = None,
    progress: bool | None = None,
) -> GraphModule:
    """Run ``data`` through a prepared model.

    In a process group of ``torch.distributed`` each process runs data of its own, and all get the
    statistics of all. Calibrate once there: what they had seen before counts once for each process.

    Args:
        model: What :func:`prepare` returned. Its observers are updated in place; calling again adds
            to them.
        data: Inputs, one batch each: a tensor, a tuple or list of positional arguments, or a dict
            of keyword arguments.
        has_labels: Each item is a pair of inputs and labels; the labels are ignored.
        limit: Use at most so many batches.
        progress: Show a progress bar on standard error; default where that is a terminal.

    Returns:
        ``model`` itself.

    Raises:
        CalibrationError: There were no data, an item is no input of the model, or some observers
            saw nothing; names the modules those belong to.
        NonFiniteActivationError: NaN or infinity was met; says where.
        ModelStateError: ``model`` has not been prepared.
    """
    record_of(model, Stage.PREPARED, "calibrate")
    graphs = dict(modules_with_parts(model))
    records = {path: record_of(each, Stage.PREPARED, "calibrate") for path, each in graphs.items()}
    observers = {
        f"{path}.{name}": graphs[path].get_submodule(name)
        for path, record in records.items()
        for name in record.observers
    }
    own = (graphs[path].get_submodule(name) for path, of in records.items() for name in of.observed)
    kept = memory_kept(model, but=(*observers.values(), *own))
    with torch.no_grad(), kept, observing(model), _Reach(observers) as reach:
        total = _total(data, limit)
        batches = shown(itertools.islice(data, limit), "Calibrating", total, progress=progress)
        count = _run_all(model, (without_labels(each) if has_labels else each for each in batches))
    if is_one_of_several():
        merge_statistics(observers)
    if count == 0:
        msg = "the calibration data are empty; pass an iterable of inputs (a generator can be used only once)"
        raise CalibrationError(msg)
    missed = [label_of(observers[path], path) for path in reach.missed()]
    if missed:
        listed = first_few(missed)
        msg = f"calibration never reached: {listed}. Calibrate with data that run these parts, or exclude them"
        raise CalibrationError(msg)
    for record in records.values():
        record.stage = Stage.CALIBRATED
    return model


def _run_all(model: nn.Module, batches: Iterable[Any]) -> int:
    """Run ``model`` on all batches; returns how many there were, in all processes together."""
    count, problem = 0, None
    try:
        for batch in batches:
            run(model, batch, count)
            count += 1
    except Exception as error:
        problem = error  # the other processes must not wait for this one for ever
        raise
    finally:
        if is_one_of_several():
            count = agree(count, problem)
    return count


def run(model: nn.Module, batch: Any, index: int) -> Any:
    """Call ``model`` on one batch in any of the forms that calibration takes.

    Raises:
        CalibrationError: The batch does not fit the model's forward.
    """
    args, kwargs = as_arguments(batch)
    try:
        return model(*args, **kwargs)
    except FusionError:
        raise
    except Exception as error:
        shown = type(batch).__name__ + (f" of {len(batch)}" if hasattr(batch, "__len__") else "")
        msg = (
            f"calibration item {index} ({shown}) is no input of the model: {error}. An item is a tensor, a tuple "
            "of positional arguments or a dict of keyword arguments; with labels, pass has_labels=True"
        )
        raise CalibrationError(msg) from error


def without_labels(item: Any) -> Any:
    """The inputs of a pair of inputs and labels.

    Raises:
        CalibrationError: ``item`` is no pair.
    """
    if isinstance(item, (tuple, list)) and len(item) > 1:
        return item[0]
    msg = (
        f"has_labels=True wants pairs of inputs and labels, and an item is a {type(item).__name__}; "
        "leave has_labels out where there are no labels"
    )
    raise CalibrationError(msg)


def as_arguments(batch: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments of a call on ``batch``."""
    if isinstance(batch, Mapping):
        return (), dict(batch)
    if isinstance(batch, (tuple, list)):
        return tuple(batch), {}
    return (batch,), {}


class _Reach:
    """Counts which observers are called, while it is entered."""

    def __init__(self, observers: Mapping[str, nn.Module]) -> None:
        self._observers = observers
        self._called: set[str] = set()
        self._hooks = ExitStack()

    def __enter__(self) -> Self:
        for path, observer in self._observers.items():
            handle = observer.register_forward_hook(lambda *_, path=path: self._called.add(path))
            self._hooks.callback(handle.remove)
        return self

    def __exit__(self, *_: object) -> None:
        self._hooks.close()

    def missed(self) -> list[str]:
        """Paths of observers that have seen nothing, now or before."""
        return [
            path
            for path, observer in self._observers.items()
            if not getattr(observer, "is_dynamic", False)
            and not getattr(observer, "observed", path in self._called)
        ]


def shown(
    items: Iterable[Any], what: str, total: int | None, *, progress: bool | None
) -> Iterable[Any]:
    """``items`` with a progress bar on standard error, where ``progress`` says so or it is a terminal."""
    show = sys.stderr.isatty() if progress is None else progress
    return track(items, what, total=total, console=Console(stderr=True), disable=not show)


def _total(data: Iterable[Any], limit: int | None) -> int | None:
    try:
        size = len(data)  # type: ignore[arg-type]  # what has no length says so
    except TypeError:
        return limit
    return size if limit is None else min(size, limit)
