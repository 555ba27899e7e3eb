"""fuse: run the fuser method of every match, and put what it returns at the root node."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

from torch import nn
from torch.fx import GraphModule, Node

from fusion_core.configs import Skip
from fusion_core.errors import FuseError, first_few
from fusion_core.ledger import Ledger
from fusion_core.matcher import CallGraph, Match, NoMatch, Scan, scan
from fusion_core.nn.weighted import operator_type
from fusion_core.passes.activations import activation_module
from fusion_core.passes.arguments import ExampleInputs
from fusion_core.passes.edit import copy_model, erase, evaluating, finish, take_modes
from fusion_core.passes.indices import fusion_index
from fusion_core.passes.parts import backend_of, each_part
from fusion_core.passes.record import (
    MEMBERS,
    RECORD,
    Example,
    PassRecord,
    Stage,
    advance,
    member_names,
    members,
    record_of,
)
from fusion_core.passes.roots import blame, call_plugin, extra_inputs, fuser_arguments, root_node
from fusion_core.passes.verify import Verifier, example_arguments
from fusion_core.patterns import MatchAllNode, render
from fusion_core.registry import Backend, PatternEntry, get_backend


def fuse(
    model: GraphModule,
    backend: str | Backend,
    *,
    qat: bool = False,
    verify: bool | ExampleInputs = False,
) -> GraphModule:
    """Fuse what ``backend`` can fuse.

    A fuser method that returns a :class:`Skip` leaves its match to the next pattern; the ledger
    keeps the reason.

    Args:
        model: What :func:`trace` returned. It is not changed.
        backend: Name of a backend, or the backend.
        qat: What fuser methods get as ``is_qat``; True for a model that was traced for training.
        verify: Run the model and call each fused module on what its operations got. One that raises
            or gives other numbers than they did is refused like a skip, with the reason in the
            ledger. True takes the inputs the model was traced with; or pass inputs, in the same
            forms.

    Returns:
        A new GraphModule with the fused modules.

    Raises:
        FuseError: A fuser method or getter failed, or returned what it must not.
        ModelStateError: ``model`` has not been traced, or there are no inputs to verify it on.
    """
    chosen = get_backend(backend)
    record = record_of(model, Stage.TRACED, "fuse")
    fused = copy_model(model)
    mine = advance(fused, record, Stage.FUSED)
    mine.backend = mine.ledger.backend = chosen.name
    mine.example = Example()  # the traced model still has it
    mine.qat = qat = qat or record.qat
    arguments = example_arguments(model, record, verify=verify)  # a draft has no signature
    with nullcontext() if arguments is None else evaluating(fused):
        result, fusing = _sweep(fused, chosen, qat=qat, arguments=arguments)
    if fusing.verifier is not None:
        mine.ledger.notes.append(fusing.verdict())
    for match in result.matches:
        _replace(fused, match, fusing.modules[match.anchor])
    _set_modes(fused, model, fusing, is_trained=record.qat)
    for node, refusals in result.refusals.items():
        _keep_reasons(mine.ledger, node, refusals)
    verifies = verify is not False
    each_part(
        fused,
        lambda graph, part: fuse(graph, backend_of(part, chosen), qat=qat, verify=verifies),
    )
    return finish(fused)


def _set_modes(
    fused: GraphModule, model: GraphModule, fusing: _Fusing, *, is_trained: bool
) -> None:
    """Put the fused modules in the mode of a model that was traced for training, else in that of ``qat``."""
    if is_trained:
        take_modes(fused, model)
        return
    for module in fusing.modules.values():
        module.train(fusing.qat)


def find_fusions(
    model: GraphModule, backend: Backend, *, qat: bool = False
) -> tuple[Scan[PatternEntry], dict[Node, nn.Module]]:
    """What :func:`fuse` does to ``model``, without doing it: the sweep, and each anchor's fused module."""
    result, fusing = _sweep(model, backend, qat=qat)
    return result, fusing.modules


def _sweep(
    model: GraphModule, backend: Backend, *, qat: bool, arguments: tuple[Any, ...] | None = None
) -> tuple[Scan[PatternEntry], _Fusing]:
    """The matches of ``model`` and what became of them; verified on ``arguments``, where there are any."""
    calls = CallGraph.of(model)
    index = fusion_index(backend)
    verifier = None if arguments is None else Verifier(calls, index, model, arguments)
    fusing = _Fusing(calls, qat, verifier)
    return scan(calls, index, fusing.accept), fusing


@dataclass
class _Fusing:
    """Runs fuser methods while the graph is swept.

    Attributes:
        calls: Call sites of the graph.
        qat: What fuser methods get as ``is_qat``.
        verifier: Compares fused modules with what they replace, or None.
        modules: The fused module by the anchor of its match.
        wrong: Anchors at which a fused module was refused by ``verifier``.
    """

    calls: CallGraph
    qat: bool
    verifier: Verifier | None = None
    modules: dict[Node, nn.Module] = field(default_factory=dict)
    wrong: dict[Node, None] = field(default_factory=dict)

    def accept(self, match: Match[PatternEntry]) -> NoMatch | None:
        """Fuse ``match``, or say why not."""
        config = match.entry.config
        if config.constraint is not None:
            verdict = call_plugin(match, "constraint", config.constraint, match.node_pattern)
            if isinstance(verdict, Skip):
                return NoMatch("{}", (verdict.reason,), len(match.nodes))
        root = root_node(match)
        if self.calls.module(root) is None:
            return NoMatch("its root node {} calls no module", (root,), len(match.nodes))
        arguments = fuser_arguments(match, lambda node: self._argument(match, node))
        fuser: Any = config.fuser_method
        if not isinstance(fuser, type):
            arguments = (self.qat, *arguments)
        fused = call_plugin(match, "fuser method", fuser, *arguments)
        if isinstance(fused, Skip):
            return NoMatch("{}", (fused.reason,), len(match.nodes))
        wanted = config.fused_module or nn.Module
        if not (isinstance(fused, wanted) or issubclass(operator_type(fused), wanted)):
            problem = f"its fuser method returned {type(fused).__name__}, not {wanted.__name__}"
            raise FuseError(blame(match, problem))
        if self.verifier is not None:
            refusal = self.verifier.refusal(match, fused, *_arguments(match, root))
            if refusal is not None:
                self.wrong[match.anchor] = None
                return refusal
        self.modules[match.anchor] = fused
        return None

    def verdict(self) -> str:
        """What verification found, in a line."""
        found = f"fused modules verified on the example inputs: {len(self.modules)} right"
        names = (node.name for node in self.wrong)
        return f"{found}, refused at {first_few(names)}" if self.wrong else found

    def _argument(self, match: Match[PatternEntry], node: Node) -> Any:
        """A module for a module call or an activation, the function for another call, else the wildcard."""
        if node not in match.nodes:
            return MatchAllNode
        module = self.calls.module(node)
        if module is not None:
            return module
        site = self.calls.site(node)
        return (activation_module(site) if site else None) or node.target


def _arguments(match: Match[PatternEntry], root: Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What the fused module is called with."""
    return (*root.args, *extra_inputs(match)), dict(root.kwargs)


def _replace(model: GraphModule, match: Match[PatternEntry], module: nn.Module) -> None:
    root = root_node(match)
    model.add_submodule(str(root.target), module)
    with model.graph.inserting_before(match.anchor):
        call = model.graph.call_module(str(root.target), *_arguments(match, root))
    call.meta = {**match.anchor.meta, MEMBERS: members(reversed(match.nodes))}
    match.anchor.replace_all_uses_with(call)
    erase(model.graph, match.nodes)
    record: PassRecord = getattr(model, RECORD)
    for line in record.ledger.of(member_names(call)):
        line.plugin, line.priority = str(match.entry.origin), match.entry.priority
        line.pattern = render(match.reading)


def _keep_reasons(ledger: Ledger, node: Node, refusals: list[tuple[PatternEntry, NoMatch]]) -> None:
    entry, nearest = max(refusals, key=lambda refusal: refusal[1].depth)
    for line in ledger.of(member_names(node)):
        line.near_miss = f"{render(entry.pattern)}: {nearest.reason}"
