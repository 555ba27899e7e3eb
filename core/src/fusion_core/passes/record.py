"""What travels with a model from pass to pass: one picklable record on the GraphModule."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from torch import nn
from torch.fx import GraphModule, Node

from fusion_core.configs import ObserverFactory
from fusion_core.errors import ModelStateError
from fusion_core.ledger import Ledger

RECORD = "fusion_record"
_DEEPCOPIED = "_user_preserved_attributes"
"""Attribute of a GraphModule that holds its record; unlike ``meta`` it survives pickling."""

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
        object_types: What a qconfig mapping can name it by: module type, function or method name.
        order: For each of those, its index among its like within ``scope``.
    """

    name: str
    path: str
    scope: str
    object_types: tuple[Any, ...]
    order: tuple[tuple[Any, int], ...]


@dataclass(frozen=True, slots=True)
class WeightPlan:
    """How the weight of one module will be quantized.

    Attributes:
        observer: Builds the observer that chooses scale and zero point.
        part: Which child carries the weight; empty for the module itself.
        reference: Type of the reference module that replaces it.
    """

    observer: ObserverFactory
    part: str
    reference: Any


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
    """

    stage: Stage
    ledger: Ledger
    backend: str = ""
    backend_identity: Any = None
    weights: dict[str, WeightPlan] = field(default_factory=dict)
    observers: tuple[str, ...] = ()
    module_names: tuple[str, ...] = ()
    preserved: dict[str, Any] = field(default_factory=dict)


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
    mine.ledger = copy.deepcopy(record.ledger)
    mine.weights = dict(record.weights)
    mine.stage = stage
    attach(model, mine)
    return mine
