"""Parts of a model that are graphs of their own: where they are, every pass on each, one ledger of all."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from torch import nn
from torch.fx import GraphModule

from fusion_core.ledger import Ledger
from fusion_core.passes.edit import copy_module
from fusion_core.passes.record import RECORD, Part, PassRecord
from fusion_core.registry import Backend, get_backend


def parts_of(model: nn.Module) -> Iterator[tuple[Part, GraphModule]]:
    """The parts of ``model``, without those within parts."""
    record: PassRecord = getattr(model, RECORD)
    for part in record.parts:
        module: Any = model.get_submodule(part.path)
        yield part, module


def each_part(model: GraphModule, change: Callable[[GraphModule, Part], GraphModule]) -> None:
    """Put what ``change`` makes of each part in its place.

    Args:
        model: A graph of its own; modules that it calls and that hold parts are copied, not changed.
        change: A pass.
    """
    replacements: dict[str, nn.Module] = {}
    for part, module in parts_of(model):
        changed = change(module, part)
        replacements.update(dict.fromkeys((part.path, *part.aliases), changed))
    for head, within in _by_head(replacements).items():
        model.add_module(head, _replaced(model._modules[head], within))  # noqa: SLF001  torch has no public view


def backend_of(part: Part, backend: Backend) -> Backend:
    """The backend of a part: its own, or that of what it is part of."""
    wanted = None if part.standalone is None else part.standalone.backend
    return backend if wanted is None else get_backend(wanted)


def with_replaced(module: nn.Module, replacements: Mapping[str, nn.Module]) -> nn.Module:
    """A module of the same type with other modules at some paths; everything else is shared."""
    copied = copy_module(module)
    for head, within in _by_head(replacements).items():
        copied.add_module(head, _replaced(module._modules[head], within))  # noqa: SLF001  torch has no public view
    return copied


def _replaced(module: nn.Module | None, within: Mapping[str, nn.Module]) -> nn.Module | None:
    if "" in within:
        return within[""]
    return None if module is None else with_replaced(module, within)


def _by_head(replacements: Mapping[str, nn.Module]) -> Mapping[str, Mapping[str, nn.Module]]:
    """Replacements by the first name of their paths, with what is left of these."""
    found: defaultdict[str, dict[str, nn.Module]] = defaultdict(dict)
    for path, module in replacements.items():
        head, _, rest = path.partition(".")
        found[head][rest] = module
    return found


def modules_with_parts(model: nn.Module) -> Iterator[tuple[str, GraphModule]]:
    """``model`` and all its parts, at any depth, with the path of each."""
    graph: Any = model
    yield "", graph
    for part, module in parts_of(model):
        for path, inner in modules_with_parts(module):
            yield f"{part.path}.{path}" if path else part.path, inner


def whole_ledger(model: nn.Module) -> Ledger:
    """The decisions on a model and all its parts; those of a part come behind what calls it.

    A standalone module has no line of its own beside those of what is in it.
    """
    record: PassRecord = getattr(model, RECORD)
    if not record.parts:
        return record.ledger
    merged = Ledger(record.ledger.backend, list(record.ledger.notes))
    by_holder: defaultdict[str, list[tuple[Part, GraphModule]]] = defaultdict(list)
    for part, module in parts_of(model):
        by_holder[part.holder].append((part, module))
    for line in record.ledger:
        held = by_holder.get(line.node, ())
        if not any(part.name == line.path for part, _ in held):
            merged.open(line)
        for part, module in held:
            _append(merged, whole_ledger(module), part.name)
    return merged


def _append(merged: Ledger, ledger: Ledger, name: str) -> None:
    for note in ledger.notes:
        said = f"{name}: {note}"
        if note not in merged.notes and said not in merged.notes:
            merged.notes.append(said)
    for line in ledger:
        merged.open(replace(line, node=f"{name}/{line.node}"))
