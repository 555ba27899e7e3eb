"""What travels with a model from pass to pass: one picklable record on the GraphModule."""

from __future__ import annotations

import copy
import importlib
import operator
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any

import torch
from torch import nn
from torch.fx import GraphModule, Node

from fusion_core.configs import CustomConfig, ObserverFactory, Standalone
from fusion_core.errors import ModelStateError
from fusion_core.ledger import Ledger
from fusion_core.patterns.pickling import by_name, from_name

RECORD = "fusion_record"
"""Attribute of a GraphModule that holds its record; unlike ``meta`` it survives pickling."""

_DEEPCOPIED = "_user_preserved_attributes"

MEMBERS = "fusion_members"


class Stage(IntEnum):
    """How far a model has come."""

    TRACED = 1
    FUSED = 2
    PREPARED = 3
    CALIBRATED = 4
    CONVERTED = 5
    LOWERED = 6


@dataclass(frozen=True, slots=True)
class Member:
    """An operation of the traced graph, as nodes made from it remember it.

    Attributes:
        name: Name of the node in the traced graph.
        path: Path of the module that is called, or in which a function is called.
        scope: Path of the module in whose forward the call stands.
        object_types: What a qconfig mapping can name it by: module type, function or method name, the
            operation that this spells, and the types of the modules it stands in, inside out.
        order: For each name that is its own, its index among its like within ``scope``.
    """

    name: str
    path: str
    scope: str
    object_types: tuple[Any, ...]
    order: tuple[tuple[Any, int], ...]

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled with functions and types by name, for some do not pickle, or not where it is read."""
        named = tuple(map(_by_name, self.object_types))
        order = tuple((_by_name(kind), index) for kind, index in self.order)
        return _member, (self.name, self.path, self.scope, named, order)


def _member(name: str, path: str, scope: str, object_types: Any, order: Any) -> Member:
    types = tuple(map(_from_name, object_types))
    return Member(name, path, scope, types, tuple((_from_name(kind), i) for kind, i in order))


def _by_name(kind: Any) -> Any:
    is_foreign = isinstance(kind, type) and not kind.__module__.startswith("torch.")
    return UserClass.named(kind) if is_foreign else by_name(kind)


def _from_name(named: Any) -> Any:
    """The object of a name; a type that is not to be had stays a name, which no mapping can mean."""
    if isinstance(named, UserClass):
        return named.kind or named
    return from_name(named)


@dataclass(frozen=True, slots=True)
class WeightPlan:
    """How the weight of one module will be quantized.

    Attributes:
        observer: Builds the observer that chooses scale and zero point.
        part: Which child carries the weight; empty for the module itself.
        reference: Type of the reference module that replaces it.
        bias: Dtype that the bias is rounded to, or None for float32.
    """

    observer: ObserverFactory
    part: str
    reference: Any
    bias: torch.dtype | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of the model that is a graph of its own, and that every pass goes through as such.

    Attributes:
        path: Where its GraphModule is in the GraphModule that calls it, or in a module this calls.
        aliases: Other paths of the same.
        holder: Name of the node of the traced graph that calls it, or the module it is in.
        name: Its path in the user's model.
        standalone: Set where it is a model of its own by request, else it is part of a module
            whose forward stays Python.
    """

    path: str
    aliases: tuple[str, ...]
    holder: str
    name: str
    standalone: Standalone | None = None


class UserClass:
    """The class of the user's model, whose methods the results have; pickled by name, if it has one.

    Attributes:
        name: ``module:qualified.name``.
    """

    __slots__ = ("_kind", "name")

    def __init__(self, name: str = "", kind: type | None = None) -> None:
        self.name = name
        self._kind = kind

    @classmethod
    def of(cls, model: nn.Module) -> UserClass:
        """The class of ``model``."""
        return cls.named(type(model))

    @classmethod
    def named(cls, kind: type) -> UserClass:
        """``kind`` by its name."""
        return cls(f"{kind.__module__}:{kind.__qualname__}", kind)

    @property
    def kind(self) -> type | None:
        """The class; None where it cannot be imported, or was defined within a function."""
        if self._kind is None and self.name and "<locals>" not in self.name:
            module, _, qualified = self.name.partition(":")
            try:
                self._kind = operator.attrgetter(qualified)(importlib.import_module(module))
            except (ImportError, AttributeError):
                self.name = ""
        return self._kind

    def __deepcopy__(self, _memo: dict[int, Any]) -> UserClass:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return UserClass, (self.name,)


class Example:
    """The input a model was traced with, held by reference only: neither pickled nor deep-copied.

    Attributes:
        arguments: Positional arguments of one call, or None where they have been lost.
    """

    __slots__ = ("arguments",)

    def __init__(self, arguments: tuple[Any, ...] | None = None) -> None:
        self.arguments = arguments

    def __deepcopy__(self, _memo: dict[int, Any]) -> Example:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return Example, ()


@dataclass(slots=True)
class PassRecord:
    """State between passes.

    Attributes:
        stage: The last pass that ran.
        ledger: The decisions so far.
        backend: Name of the backend, once one is chosen.
        backend_identity: Its fingerprint, versions and plugins, for comparison when the model is
            loaded.
        weights: How the weight of each quantized module is quantized, by the module's path.
        observers: Paths of the observer modules.
        module_names: Every module path and ``type`` name of the user's model, for checking qconfig
            mappings.
        preserved: Plain attributes of the user's model, which copies of the graph keep.
        nodes: What each node remembers, in order, with the path in front where it reads an
            attribute. Pickling a graph loses what its nodes hold.
        example: What a traced model was traced with, for verifying fused modules on it.
        custom: What the user said about special modules, inputs, outputs and attributes.
        parts: Pieces of the model that are graphs of their own.
        observed: Paths of the user's own observed modules.
        user_class: Whose methods the model has.
        qat: Whether the model is to be trained.
        rules: For each operation, by its name in the traced graph, the rule of the qconfig mapping
            that decides, then those it overrides, in words.
    """

    stage: Stage
    ledger: Ledger
    backend: str = ""
    backend_identity: Any = None
    weights: dict[str, WeightPlan] = field(default_factory=dict)
    observers: tuple[str, ...] = ()
    module_names: tuple[str, ...] = ()
    preserved: dict[str, Any] = field(default_factory=dict)
    nodes: tuple[tuple[str, dict[str, Any]], ...] = ()
    example: Example = field(default_factory=Example)
    custom: CustomConfig = field(default_factory=CustomConfig)
    parts: tuple[Part, ...] = ()
    observed: tuple[str, ...] = ()
    user_class: UserClass = field(default_factory=UserClass)
    qat: bool = False
    rules: dict[str, tuple[str, ...]] = field(default_factory=dict)


def remember_nodes(model: GraphModule) -> None:
    """Put what the nodes of ``model`` hold into its record."""
    record = getattr(model, RECORD, None)
    if isinstance(record, PassRecord):
        record.nodes = tuple((_attribute(node), _kept(node.meta)) for node in model.graph.nodes)


def recall_nodes(model: GraphModule) -> None:
    """Give the nodes of an unpickled ``model`` back what they held."""
    record = getattr(model, RECORD, None)
    nodes = list(model.graph.nodes)
    if not isinstance(record, PassRecord) or any("tensor_meta" in node.meta for node in nodes):
        return
    # Pickling traces the code anew, which keeps calls in order and may move the reading of attributes.
    in_order = [held for attribute, held in record.nodes if not attribute]
    by_attribute = {attribute: held for attribute, held in record.nodes if attribute}
    calls = [node for node in nodes if not _attribute(node)]
    if len(calls) != len(in_order):
        return
    for node, held in zip(calls, in_order, strict=True):
        node.meta.update(held)
    for node in nodes:
        node.meta.update(by_attribute.get(_attribute(node), {}))


def _attribute(node: Node) -> str:
    return str(node.target) if node.op == "get_attr" else ""


def _kept(meta: dict[str, Any]) -> dict[str, Any]:
    kept = {key: meta[key] for key in (MEMBERS, "tensor_meta") if key in meta}
    # One tensor has a shape; a memory format does not pickle in the protocol that torch.save uses.
    if hasattr(kept.get("tensor_meta"), "shape"):
        kept["tensor_meta"] = kept["tensor_meta"]._replace(memory_format=None)
    return {key: value for key, value in kept.items() if key == MEMBERS or hasattr(value, "shape")}


def attach(model: GraphModule, record: PassRecord) -> None:
    """Make ``record`` the record of ``model``: pickling keeps attributes, deepcopy what torch looks for."""
    setattr(model, RECORD, record)
    model.meta = {**model.meta, _DEEPCOPIED: {**record.preserved, RECORD: record}}


def record_of(model: nn.Module, at_least: Stage, wanted_by: str) -> PassRecord:
    """The record of ``model``.

    Raises:
        ModelStateError: It has none, or has not come as far as ``at_least``.
    """
    record = getattr(model, RECORD, None)
    if not isinstance(record, PassRecord) or record.stage < at_least:
        have = (
            f"a {record.stage.name.lower()} model"
            if isinstance(record, PassRecord)
            else type(model).__name__
        )
        msg = f"{wanted_by} needs a {at_least.name.lower()} model and was given {have}; run the passes in order"
        raise ModelStateError(msg)
    return record


def members(nodes: Node | Iterable[Node]) -> tuple[Member, ...]:
    """The operations of the traced graph that ``nodes`` were made from."""
    if isinstance(nodes, Node):
        nodes = (nodes,)
    found: dict[str, Member] = {}
    for node in nodes:
        found.update((member.name, member) for member in node.meta.get(MEMBERS, ()))
    return tuple(found.values())


def member_names(nodes: Node | Iterable[Node]) -> tuple[str, ...]:
    """Names in the traced graph of what ``nodes`` were made from."""
    return tuple(member.name for member in members(nodes))


def advance(model: GraphModule, record: PassRecord, stage: Stage) -> PassRecord:
    """Give ``model`` its own copy of ``record`` at ``stage``, and return that copy."""
    mine = copy.copy(record)
    mine.ledger = Ledger(record.ledger.backend, list(record.ledger.notes))
    for line in record.ledger:
        mine.ledger.open(replace(line))  # of plain values, so nothing more is to be copied
    mine.weights = dict(record.weights)
    mine.stage = stage
    attach(model, mine)
    return mine
