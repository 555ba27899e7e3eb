"""The quick way for patterns without choices: what the walk through the index read is the match.

It takes only what needs no second thought: calls without keyword arguments, with as many arguments as
the pattern names, and inner nodes with one user. Everything else is left to
:class:`fusion_core.matcher.solve.Search`, which comes to the same matches.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, TypeVar

from torch.fx import Node

from fusion_core.matcher.calls import CallGraph
from fusion_core.matcher.result import Match, Part
from fusion_core.matcher.tree import Path
from fusion_core.matcher.words import Call

Entry = TypeVar("Entry")

_NO_CAPTURES: Mapping[str, Any] = MappingProxyType({})


def plain_match(path: Path, calls: CallGraph, entry: Entry) -> Match[Entry] | None:
    """The match that ``path`` is, or None if that takes more than a glance."""
    nodes: list[Node] = []
    free: list[Any] = []
    modules = calls.modules
    rest = path
    while rest is not None:
        value, token, rest = rest
        if type(token) is not Call:
            free.append(value)
            continue
        count = token.count
        if value.kwargs or (count and len(value.args) != count) or value in nodes:
            return None
        # The path begins at the anchor, so it is the last to come.
        if rest is not None and len(value.users) != 1:
            return None
        if value.op == "call_module" and not calls.is_private(modules[value.target]):
            return None
        nodes.append(value)
    for value in free:
        if value in nodes or isinstance(value, (list, tuple, dict, slice)):
            return None
    nodes.reverse()
    return Match(entry, tuple(nodes), _NO_CAPTURES, partial(_parts, path))


def _parts(path: Path) -> tuple[Part, ...]:
    parts: list[Part] = []
    while path is not None:
        value, token, path = path
        if isinstance(token, Call):
            parts.append((value, token.count, token.operator))
        else:
            parts.append((value, -1, None))
    return tuple(reversed(parts))
