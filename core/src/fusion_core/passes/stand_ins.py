"""Which graphs can stand in for modules of one that runs as Python, without changing what it gives."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import GraphModule

from fusion_core.passes.calls import Calls, recorded
from fusion_core.passes.parts import with_replaced
from fusion_core.passes.written import memory_kept

_SEED = 0
_RELATIVE, _ABSOLUTE = 1e-4, 1e-5


def working(
    holder: nn.Module,
    calls: Calls,
    graphs: Mapping[str, GraphModule],
    groups: Mapping[str, Sequence[str]],
) -> tuple[list[str], dict[str, str]]:
    """Paths of the graphs that can stand in, and of the others why not.

    ``holder`` is run with and without them on what it was called with: it may read attributes of its
    modules, ask for their types, or call them by another way than their forward.

    Args:
        holder: The module that runs as Python; it is not changed.
        calls: What it was called with.
        graphs: By path in ``holder``.
        groups: For each of those all paths of the same module.
    """
    if not graphs:
        return [], {}
    modules = {path: holder.get_submodule(path) for path in graphs}
    wanted, counts = _run(holder, calls, modules)
    again, _ = _run(holder, calls, modules)
    if _difference(wanted, again) is not None:
        why = "kept whole: what holds it gives something else each time, so nothing in it can be compared"
        return [], dict.fromkeys(graphs, why)
    problems: dict[str, str] = {}

    def tried(paths: Sequence[str]) -> list[str]:
        """Halving finds the few that do not work without trying each alone."""
        chosen = {path: graphs[path] for path in paths}
        problem = _problem(holder, calls, chosen, groups, (wanted, counts))
        if problem is None:
            return list(paths)
        if len(paths) == 1:
            problems[paths[0]] = f"kept whole: with a graph in its place, {problem}"
            return []
        middle = len(paths) // 2
        return tried(paths[:middle]) + tried(paths[middle:])

    return tried(list(graphs)), problems


def _problem(
    holder: nn.Module,
    calls: Calls,
    chosen: Mapping[str, GraphModule],
    groups: Mapping[str, Sequence[str]],
    expected: tuple[list[Any], Mapping[str, int]],
) -> str | None:
    replacements = {each: graph for path, graph in chosen.items() for each in groups[path]}
    try:
        outputs, counts = _run(with_replaced(holder, replacements), calls, chosen)
    except Exception as error:  # noqa: BLE001  whatever the user's forward raises
        return f"what holds it raises {type(error).__name__}: {error}"
    if any(counts[path] != expected[1][path] for path in chosen):
        return "what holds it does not call it"
    difference = _difference(expected[0], outputs)
    return None if difference is None else f"what holds it gives {difference}"


def _run(
    holder: nn.Module, calls: Calls, watched: Mapping[str, nn.Module]
) -> tuple[list[Any], dict[str, int]]:
    """What ``holder`` gives, and how often each of the ``watched`` modules is called for it."""
    with torch.random.fork_rng(devices=()), torch.no_grad(), recorded(watched.values()) as seen:
        torch.manual_seed(_SEED)
        with memory_kept(holder):
            outputs = [holder(*args, **kwargs) for args, kwargs in calls.distinct.values()]
    return outputs, {
        path: seen[id(each)].count if id(each) in seen else 0 for path, each in watched.items()
    }


def _difference(wanted: Any, given: Any) -> str | None:
    """How two results differ, in words; None if they are as good as equal."""
    pairs = list(_tensors(wanted)), list(_tensors(given))
    if len(pairs[0]) != len(pairs[1]):
        return "another number of tensors"
    for mine, theirs in zip(*pairs, strict=True):
        if mine.shape != theirs.shape or mine.dtype != theirs.dtype:
            return f"{theirs.dtype} of shape {tuple(theirs.shape)} instead of {mine.dtype} of {tuple(mine.shape)}"
        if not torch.allclose(mine, theirs, _RELATIVE, _ABSOLUTE, equal_nan=True):
            return "other values"
    return None


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _tensors(each)
    elif isinstance(value, (tuple, list)):
        for each in value:
            yield from _tensors(each)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for item in dataclasses.fields(value):
            yield from _tensors(getattr(value, item.name))
