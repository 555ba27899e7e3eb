"""Parts: the modules within one whose forward stays Python, and standalone modules, become graphs of their own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import torch
from torch import nn
from torch.fx import GraphModule, Interpreter, Tracer

from fusion_core.errors import FusionError, TraceError
from fusion_core.ledger import Ledger, LedgerEntry
from fusion_core.passes.calls import Calls, Differing, recorded
from fusion_core.passes.edit import Names, finish
from fusion_core.passes.graphs import KEPT_WHOLE, calling, traced
from fusion_core.passes.leaves import Leaves
from fusion_core.passes.parts import whole_ledger, with_replaced
from fusion_core.passes.private_copy import has_hooks
from fusion_core.passes.record import RECORD, Example, Part, PassRecord, members
from fusion_core.passes.shapes import propagate_each
from fusion_core.passes.stand_ins import working
from fusion_core.passes.tracer import joined
from fusion_core.passes.written import memory_kept
from fusion_core.registry import get_backend

AS_PYTHON = "its forward runs as Python"
NEVER_CALLED = "it is never called with the example inputs"

Found: TypeAlias = dict[str, GraphModule]
"""Graphs of modules, by their paths in the module that holds them."""


def add_parts(
    model: GraphModule,
    arguments: tuple[Any, ...],
    leaves: Leaves,
    opaque: Mapping[str, str],
    *,
    prefix: str = "",
) -> bool:
    """Make graphs of the modules in those that are kept whole, and of standalone ones.

    Args:
        model: A traced graph, not yet finished; modules it calls are replaced by copies.
        arguments: Positional arguments of one call, which is made to see what the modules get.
        leaves: What is not inlined.
        opaque: Why modules are kept whole, by path in ``model`` as it was before it was simplified.
        prefix: Path of ``model`` in the user's model.

    Returns:
        Whether there is a part now.

    Raises:
        TraceError: A standalone module cannot be traced.
    """
    holders = list(_holders(model, opaque, prefix))
    if not holders:
        return False
    watched = {id(each): each for holder in holders for each in holder.module.modules()}
    with recorded(watched.values()) as calls, torch.no_grad(), memory_kept(model):
        Interpreter(model).run(*arguments)
    record: PassRecord = getattr(model, RECORD)
    for holder in holders:
        island = _Island(leaves, calls, holder, record.ledger)
        found = island.standalone() if holder.is_standalone(leaves) else island.parts()
        model.add_submodule(holder.target, found)
        record.parts += tuple(island.described)
        island.settle()
    return bool(record.parts)


@dataclass(frozen=True, slots=True)
class _Holder:
    """A call of a module that is kept whole.

    Attributes:
        node: Name of the node in the traced graph.
        target: Path of the module in the graph.
        name: Path in the user's model.
        module: The module.
        reason: Why it is kept whole.
    """

    node: str
    target: str
    name: str
    module: nn.Module
    reason: str

    def is_standalone(self, leaves: Leaves) -> bool:
        """Whether the user wants it as a model of its own."""
        return self.name in leaves.standalone


def _holders(model: GraphModule, opaque: Mapping[str, str], prefix: str) -> Iterator[_Holder]:
    names, seen = Names(model), set()
    for node in model.graph.nodes:
        if node.op != "call_module" or not members(node):
            continue
        (member,) = members(node)
        local = member.path.removeprefix(f"{prefix}.") if prefix else member.path
        if local not in opaque:
            continue
        module = model.get_submodule(str(node.target))
        if node.target in seen:  # without a state, simplify lets several calls have one module
            node.target = names.fresh(f"{node.target}_again")
            model.add_submodule(node.target, with_replaced(module, {}))
            module = model.get_submodule(node.target)
        seen.add(node.target)
        yield _Holder(member.name, str(node.target), member.path, module, opaque[local])


@dataclass(slots=True)
class _Island:
    """One holder, whose modules become parts.

    Attributes:
        leaves: What is not inlined.
        calls: What each module was called with.
        holder: The holder.
        ledger: Told what stays in float, and why.
        described: The parts that were made.
        refused: Why modules did not become parts, by path in the user's model.
    """

    leaves: Leaves
    calls: Mapping[int, Calls]
    holder: _Holder
    ledger: Ledger
    described: list[Part] = field(default_factory=list)
    refused: dict[str, tuple[nn.Module, str]] = field(default_factory=dict)
    macs: int = 0

    def standalone(self) -> nn.Module:
        """The holder as one part.

        Raises:
            TraceError: It cannot be traced.
        """
        holder = self.holder
        try:
            graph = self._graph(holder.module, holder.name)
        except Differing as error:
            raise TraceError(holder.name, type(holder.module).__name__, "?", str(error)) from error
        wanted = self.leaves.standalone[holder.name]
        self.described = [Part(holder.target, (), holder.node, holder.name, wanted)]
        self.macs = whole_ledger(graph).macs().total
        return graph

    def parts(self) -> nn.Module:
        """The holder with its modules replaced by parts, as far as that changes nothing."""
        holder = self.holder
        found = dict(self._found(holder.module, ""))
        aliases = _aliases(holder.module)
        groups = {path: (path, *aliases[path]) for path in found}
        working_ones, problems = working(
            holder.module, self.calls[id(holder.module)], found, groups
        )
        for path, problem in problems.items():
            module = holder.module.get_submodule(path)
            self.refused[joined(holder.name, path)] = (module, problem)
        for path in working_ones:
            name = joined(holder.name, path)
            self.described.append(
                Part(
                    joined(holder.target, path),
                    tuple(joined(holder.target, each) for each in aliases[path]),
                    holder.node,
                    name,
                    self.leaves.standalone.get(name),
                )
            )
            self.macs += whole_ledger(found[path]).macs().total
        replacements = {each: found[path] for path in working_ones for each in groups[path]}
        return with_replaced(holder.module, replacements)

    def settle(self) -> None:
        """Tell the ledger."""
        for line in self.ledger.of((self.holder.node,)):
            line.macs = max(line.macs - self.macs, 0)
            if self.described:
                line.reason = (
                    f"{AS_PYTHON}: {self.holder.reason}; its modules are graphs of their own"
                )
        for name, (module, reason) in self.refused.items():
            self.ledger.open(
                LedgerEntry(node=name, operation=type(module).__name__, path=name, reason=reason)
            )

    def _found(self, module: nn.Module, path: str) -> Iterator[tuple[str, GraphModule]]:
        """Graphs of the largest modules below ``module``, which itself stays as it is."""
        for name, child in module.named_children():
            if not any(True for _ in child.parameters()) and not self._is_wanted(path, name):
                continue  # quantizing for it alone would gain nothing
            yield from self._of_child(child, joined(path, name))

    def _is_wanted(self, path: str, name: str) -> bool:
        return joined(self.holder.name, path, name) in self.leaves.standalone

    def _of_child(self, child: nn.Module, path: str) -> Iterator[tuple[str, GraphModule]]:
        name = joined(self.holder.name, path)
        if type(child).forward is nn.Module.forward:  # a list or dict of modules
            yield from self._found(child, path)
            return
        reason = self._obstacle(child, name)
        if reason is None:
            try:
                yield path, self._graph(child, name)
            except TraceError:
                yield from self._found(child, path)
            except (Differing, FusionError) as error:
                reason = f"{KEPT_WHOLE}{error}"
            else:
                return
        if reason is not None:
            before = len(self.refused)
            inner = list(self._found(child, path))
            if not inner and len(self.refused) == before:
                self.refused[name] = (child, reason)
            yield from inner

    def _obstacle(self, child: nn.Module, name: str) -> str | None:
        if has_hooks(child):
            return f"{KEPT_WHOLE}it has forward hooks, which a graph would not run"
        if id(child) not in self.calls:
            return f"{KEPT_WHOLE}{NEVER_CALLED}"
        if name in self.leaves.python and not self._is_leaf(child):
            return f"{KEPT_WHOLE}{self.leaves.python[name]}"
        return None

    def _is_leaf(self, module: nn.Module) -> bool:
        return type(module) in self.leaves.module_types or Tracer().is_leaf_module(module, "")

    def _graph(self, module: nn.Module, name: str) -> GraphModule:
        wanted, leaves = self.leaves.standalone.get(name), self.leaves
        if wanted is not None and wanted.backend is not None:
            leaves = replace(leaves, backend=get_backend(wanted.backend))
        call = self.calls[id(module)].bound(module)

        def run(drafted: GraphModule) -> None:
            propagate_each(drafted, call.examples)

        arguments = call.examples[0][0]
        if self._is_leaf(module):
            given = dict.fromkeys(call.names)
            local = name.rpartition(".")[2]
            graph = calling(module, leaves, local, given, run, place=name)
        else:
            graph, opaque = traced(
                module,
                leaves,
                omitted=call.omitted,
                constants=call.constants,
                run=run,
                prefix=name,
            )
            add_parts(graph, arguments, leaves, opaque, prefix=name)
        record: PassRecord = getattr(graph, RECORD)
        record.example = Example(arguments)
        return finish(graph)


def _aliases(module: nn.Module) -> dict[str, tuple[str, ...]]:
    """For each path below ``module`` the other paths of the same module."""
    by_module: dict[int, list[str]] = {}
    for path, each in module.named_modules(remove_duplicate=False):
        by_module.setdefault(id(each), []).append(path)
    return {
        path: tuple(other for other in paths if other != path)
        for paths in by_module.values()
        for path in paths
    }
