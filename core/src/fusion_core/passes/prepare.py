"""prepare: put observers where the backend's patterns want them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from torch import nn
from torch.fx import GraphModule, Node

from fusion_core.configs import ObserverFactory, QConfigMapping, quantized_type
from fusion_core.nn import FakeQuantize, MovingAverageMinMaxObserver
from fusion_core.passes.constants import observe_constants
from fusion_core.passes.dropout import SetAside
from fusion_core.passes.edit import Names, after, copy_model, finish
from fusion_core.passes.fixed_range import keeps_range, taken_as_given
from fusion_core.passes.groups import SHARED, Group, find_groups
from fusion_core.passes.mappings import mapping_for
from fusion_core.passes.parts import (
    backend_of,
    each_part,
    modules_with_parts,
    whole_ledger,
)
from fusion_core.passes.qat import restore_norms, swap_weighted, training_observer
from fusion_core.passes.record import Part, Stage, advance, members, record_of
from fusion_core.passes.rules import rules_of
from fusion_core.passes.tuples import one_part_per_call
from fusion_core.passes.unused_rules import unused_rules
from fusion_core.passes.wishes import Wishes, observe_own_modules
from fusion_core.registry import Backend, get_backend

Slot: TypeAlias = tuple[Node, ObserverFactory]
"""A value, and how it is observed. A value that two readers want observed differently has two slots."""


def prepare(
    model: GraphModule,
    backend: str | Backend | None = None,
    qconfig_mapping: Any = None,
    *,
    mode: str | None = None,
    qconfig: Any = None,
    qat: bool = False,
) -> GraphModule:
    """Insert observers.

    Every value that a supported operation reads or gives is observed once for each distinct
    observer asked for. Operations whose output shares its input's parameters make one set with all
    others they touch, and the set has one observer.

    Args:
        model: What :func:`fuse` returned. It is not changed.
        backend: Name of the backend, or the backend; default the one the model was fused for.
        qconfig_mapping: Which operation gets which observers: a :class:`QConfigMapping`, or
            PyTorch's; default the backend's own for ``mode``, and where it has none
            :func:`fusion_core.catalog.static_qconfig` for everything.
        mode: ``"static"``, ``"dynamic"`` or ``"weight_only"``; see :func:`fusion_core.quantize`.
        qconfig: Name of a preset, or one qconfig for everything.
        qat: Prepare for quantization-aware training: what is observed is rounded as well, and
            weights are rounded in forward. The model must have been traced and fused with
            ``qat=True``.

    Returns:
        A new GraphModule that computes the same and records what flows through it; in training, one
        that computes what the quantized model will.

    Raises:
        ModelStateError: ``model`` has not been fused, or not for training.
        QConfigError: What is asked for contradicts itself or is not known; its subclasses say what
            the backend has.
        UnknownModuleNameError: The mapping names a module the model does not have.
        UnknownCallError: The mapping names a call by an index that the model does not have.
    """
    record = record_of(model, Stage.FUSED, "prepare")
    chosen = get_backend(record.backend if backend is None else backend)
    qat = qat or record.qat
    asked = {"mode": "qat" if qat else mode, "preset": qconfig, "given": qconfig_mapping}
    mapping = mapping_for(chosen, **asked)
    notes = _notes(mapping, model, chosen)
    prepared = _prepared(model, chosen, mapping, asked, qat=qat)
    record_of(prepared, Stage.PREPARED, "prepare").ledger.notes.extend(notes)
    return prepared


def _prepared(
    model: GraphModule,
    chosen: Backend,
    mapping: QConfigMapping,
    asked: Mapping[str, Any],
    *,
    qat: bool,
) -> GraphModule:
    """``model`` and its parts with observers; ``asked`` is what :func:`mapping_for` is asked for a part."""
    record = record_of(model, Stage.FUSED, "prepare")
    prepared = copy_model(model)
    mine = advance(prepared, record, Stage.PREPARED)
    mine.backend = mine.ledger.backend = chosen.name
    mine.backend_identity = chosen.identity
    mine.qat = qat
    one_part_per_call(prepared, chosen)
    aside = SetAside.of(prepared) if qat else SetAside()
    wishes = Wishes.of(prepared, mine, mapping)
    groups = find_groups(prepared, chosen, mapping, mine.ledger, wishes)
    mine.rules = rules_of(prepared, mapping, groups)
    mine.weights = {
        str(group.root.target): group.weight for group in groups if group.weight is not None
    }
    if qat:
        own = wishes.own_modules
        swap_weighted(prepared, [group for group in groups if group.match.anchor not in own])
    mine.observed = observe_own_modules(prepared, wishes)
    built = training_observer if qat else _observer
    slots = _Slots.of(groups)
    wishes.require_observed(slots.quantized())
    mine.observers = _insert(prepared, slots, built)
    aside.restore(prepared)
    restore_norms(prepared)
    observe_constants(prepared, mine.observers)

    def prepare_part(graph: GraphModule, part: Part) -> GraphModule:
        own = None if part.standalone is None else part.standalone.qconfig_mapping
        backend = backend_of(part, chosen)
        if own is not None:
            return prepare(graph, backend, own, qat=qat)
        theirs = mapping if backend is chosen else mapping_for(backend, **asked)
        return _prepared(graph, backend, theirs, asked, qat=qat)

    each_part(prepared, prepare_part)
    return finish(prepared)


def _notes(mapping: QConfigMapping, model: GraphModule, backend: Backend) -> tuple[str, ...]:
    """What rules of the mapping are without effect; refuses those that can only be slips."""
    return unused_rules(
        mapping,
        [each for _path, graph in modules_with_parts(model) for each in members(graph.graph.nodes)],
        record_of(model, Stage.FUSED, "prepare").module_names,
        ledger=whole_ledger(model),
        own=backend.qconfig_mapping,
    )


@dataclass
class _Slots:
    """Which values are observed, and which of them together.

    Attributes:
        own: For values that an operation gives quantized, its observer.
        readers: For each slot, the nodes that read the value through it.
    """

    own: dict[Node, ObserverFactory] = field(default_factory=dict)
    readers: dict[Slot, list[Node]] = field(default_factory=dict)
    _parent: dict[Slot, Slot] = field(default_factory=dict)

    @classmethod
    def of(cls, groups: Iterable[Group]) -> _Slots:
        """The slots that ``groups``, in execution order, ask for."""
        slots = cls()
        for group in groups:
            slots._add(group)
        return slots

    def _add(self, group: Group) -> None:
        wanted, given = group.qconfig.input_observer, group.qconfig.output_observer
        if group.observation is SHARED:
            wanted = given = self._of_set(group)
        anchor = group.match.anchor
        output = (anchor, given)
        if not group.gives_float:
            self.own[anchor] = given
            self._slot(*output)
        for value in group.inputs:
            own = self.own.get(value)
            as_given = own is not None and _takes_as_given(group, own)
            slot = self._slot(value, own if own and as_given else wanted)
            self.readers[slot].extend(group.match.nodes)
            if group.observation is SHARED:
                self._parent[self.representative(slot)] = self.representative(output)
        for weight in group.functional_weights:
            self.readers[self._slot(weight, group.qconfig.weight)].extend(group.match.nodes)

    def _of_set(self, group: Group) -> ObserverFactory:
        """The observer its first quantized member already has, so that nothing is requantized.

        A fixed range is that of a set only if nothing in it can leave the range.
        """
        owns = [self.own[each] for each in group.inputs if each in self.own]
        is_one = len(owns) == len(group.inputs) and len(set(owns)) == 1
        if is_one and keeps_range(group.match.nodes):
            return owns[0]
        measured = (each for each in owns if quantized_type(each).fixed is None)
        return next(measured, group.qconfig.input_observer)

    def _slot(self, value: Node, observer: ObserverFactory) -> Slot:
        slot = (value, observer)
        self._parent.setdefault(slot, slot)
        self.readers.setdefault(slot, [])
        return slot

    def quantized(self) -> set[Node]:
        """Values that have a slot."""
        return {value for value, _ in self.readers}

    def representative(self, slot: Slot) -> Slot:
        """The slot that stands for all that share an observer with ``slot``."""
        while (parent := self._parent[slot]) != slot:
            self._parent[slot] = self._parent[parent]
            slot = parent
        return slot

    def by_value(self) -> dict[Node, list[Slot]]:
        """The slots of each value, its own first."""
        found: dict[Node, list[Slot]] = {}
        for slot in self.readers:
            found.setdefault(slot[0], []).append(slot)
        for value, slots in found.items():
            slots.sort(key=lambda slot: slot[1] != self.own.get(value))
        return found


def _takes_as_given(group: Group, given: ObserverFactory) -> bool:
    entry: Any = group.match.entry
    if group.observation is SHARED or entry is None:  # None is a module of the user's own
        return False
    weighted = group.weight is not None or bool(group.functional_weights)
    return taken_as_given(given, entry.config.dtype_configs, group.qconfig, weighted=weighted)


def _observer(factory: ObserverFactory) -> nn.Module:
    return factory()


def _insert(
    model: GraphModule, slots: _Slots, built: Callable[[ObserverFactory], nn.Module]
) -> tuple[str, ...]:
    """Call an observer at every slot, as ``built`` builds it; returns the paths of the observers."""
    names = Names(model)
    paths: dict[Slot, str] = {}
    calls: Counter[str] = Counter()
    for value, of_value in slots.by_value().items():
        current = value
        for slot in of_value:
            shared = slots.representative(slot)
            is_own = slot[1] == slots.own.get(value)
            if shared not in paths:
                paths[shared] = names.fresh("observer")
                observer: Any = built(slot[1]).train(model.training)
                observer.label = _label(slot, slots, is_own=is_own)
                model.add_submodule(paths[shared], observer)
            call = _observe(model, current, paths[shared])
            calls[paths[shared]] += 1
            if is_own:
                current.replace_all_uses_with(call)
                call.replace_input_with(call, current)
                current = call
                continue
            for reader in slots.readers[slot]:
                reader.replace_input_with(current, call)
    for path, places in calls.items():
        _tell_places(model.get_submodule(path), places)
    return tuple(paths.values())


def _tell_places(observer: nn.Module, places: int) -> None:
    averaging = observer.observer if isinstance(observer, FakeQuantize) else observer
    if isinstance(averaging, MovingAverageMinMaxObserver):
        averaging.places = places


def _observe(model: GraphModule, value: Node, path: str) -> Node:
    with model.graph.inserting_before(after(value)):
        call = model.graph.call_module(path, (value,))
    call.meta = {key: each for key, each in value.meta.items() if key == "tensor_meta"}
    return call


def _label(slot: Slot, slots: _Slots, *, is_own: bool) -> str:
    """Where the slot is, in terms of the user's model."""
    value = slot[0]
    if is_own:
        return f"the output of {_place(value)}"
    readers = slots.readers[slot]
    return f"the input {value.name} of {_place(readers[0])}" if readers else value.name


def _place(node: Node) -> str:
    last = next(reversed(members(node)), None)
    if last is None:
        return node.name
    return (
        last.path
        if last.path and last.path != last.scope
        else f"{last.name} in {last.path or 'the model'}"
    )
