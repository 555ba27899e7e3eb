"""The quick way for patterns without choices: what the walk through the index read is the match.

It takes only what needs no second thought: calls without keyword arguments, of modules that hide
nothing, with as many arguments as the pattern names, and inner nodes with one user. Everything else is left to
:class:`fusion_core.matcher.solve.Search`, which comes to the same matches.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, TypeVar

from torch.fx import Node

from fusion_core.matcher.result import Match, Part
from fusion_core.matcher.tree import Path
from fusion_core.matcher.words import Call

Entry = TypeVar("Entry")

_NO_CAPTURES: Mapping[str, Any] = MappingProxyType({})


def plain_match(path: Path, careful: Container[Node], entry: Entry) -> Match[Entry] | None:
    """The match that ``path`` is, or None if that takes more than a glance.

    Args:
        path: What was read of the graph.
        careful: Nodes whose calls must be looked at closely.
        entry: Handed through to the match.
    """
    nodes: list[Node] = []
    free: list[Any] = []
    rest = path
    while rest is not None:
        value, token, rest = rest
        if type(token) is not Call:
            free.append(value)
            continue
        # The path begins at the anchor, so it is the last to come.
        if value in careful or value in nodes or (rest is not None and len(value.users) != 1):
            return None
        if token.count and len(value.args) != token.count:
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
