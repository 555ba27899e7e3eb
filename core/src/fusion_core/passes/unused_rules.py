"""Rules of a qconfig mapping that speak of nothing in the model: errors where only a slip explains them, else notes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from fusion_core.configs import QConfigMapping
from fusion_core.errors import UnknownCallError, UnknownModuleNameError, first_few
from fusion_core.ledger import Ledger, Status
from fusion_core.passes.record import Member
from fusion_core.patterns import Operation


def unused_rules(
    mapping: QConfigMapping,
    members: Iterable[Member],
    module_names: Iterable[str],
    *,
    ledger: Ledger,
    own: QConfigMapping | None = None,
) -> tuple[str, ...]:
    """Notes on the rules of ``mapping`` that are without effect on a model.

    Types and regexes may come from a preset that is for any model, so they are only noted. Names of
    modules and of calls are of this model, so one that does not exist is an error.

    Args:
        mapping: The rules.
        members: The operations of the model.
        module_names: Paths of its modules.
        ledger: Tells of operations that were removed, which count as well.
        own: The backend's mapping, whose rules are for any model: they are not noted.

    Raises:
        UnknownModuleNameError: A module is named that the model does not have.
        UnknownCallError: A call is named by an index that is too large.
    """
    operations, names = tuple(members), tuple(module_names)
    removed = {line.operation for line in ledger if line.status is Status.REMOVED}
    _refuse_unknown_modules(mapping, names)
    _refuse_unknown_calls(mapping, operations, removed)
    own = own or QConfigMapping()
    types = {kind for each in operations for kind in each.object_types}
    missing = [
        _shown(kind)
        for kind in mapping.object_type_qconfigs
        if kind not in types
        and kind not in own.object_type_qconfigs
        and _shown(kind) not in removed
    ]
    regexes = [
        repr(regex)
        for regex in mapping.module_name_regex_qconfigs
        if regex not in own.module_name_regex_qconfigs
        and not any(re.match(regex, name) for name in names)
    ]
    return tuple(_notes(missing, regexes))


def _notes(types: list[str], regexes: list[str]) -> Iterator[str]:
    if types:
        yield f"the qconfig mapping has rules for types that do not occur in the model: {first_few(types)}"
    if regexes:
        yield f"the qconfig mapping has regexes that match no module: {first_few(regexes)}"


def _refuse_unknown_modules(mapping: QConfigMapping, known: tuple[str, ...]) -> None:
    scopes = (key[0] for key in mapping.module_name_object_type_order_qconfigs)
    for name in (*mapping.module_name_qconfigs, *scopes):
        if name not in known:
            raise UnknownModuleNameError(name, known)


def _refuse_unknown_calls(
    mapping: QConfigMapping, operations: tuple[Member, ...], removed: set[str]
) -> None:
    calls = {(each.scope, kind, index) for each in operations for kind, index in each.order}
    for key in mapping.module_name_object_type_order_qconfigs:
        scope, kind, index = key
        if key in calls or _shown(kind) in removed:
            continue
        indices = sorted(call[2] for call in calls if call[:2] == (scope, kind))
        raise UnknownCallError(scope, _shown(kind), index, indices)


def _shown(kind: Any) -> str:
    """A key as ledgers name the operation: ``Linear``, ``.view``, ``relu``."""
    if isinstance(kind, Operation):
        return kind.name
    return f".{kind}" if isinstance(kind, str) else str(getattr(kind, "__name__", kind))
