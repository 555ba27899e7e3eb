"""The discrimination tree, and the walk through it that a graph leads.

Words with a common beginning share their path from the root. A walk follows the tokens that the graph
offers, so its cost depends on the shape of the graph around a node and not on the number of words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from torch.fx import Node

from fusion_core.matcher.calls import CallGraph
from fusion_core.matcher.constraints import collapsed
from fusion_core.matcher.result import LIST
from fusion_core.matcher.spelling import Key, keys_of
from fusion_core.matcher.words import Call, Constant, Items, Token
from fusion_core.patterns import MatchAllNode

KeyOf: TypeAlias = Callable[[Node], Key]

Path: TypeAlias = "tuple[Any, Token, Path] | None"
"""What a walk read: the last value, the token it was read as, and the path before; None at the root."""

# Stands for the number of operands of a call whose arguments by name are read too.
_MANY = -1

# Values still to be read, next one first.
_Pending: TypeAlias = "tuple[Any, _Pending] | None"


class Tree:
    """A place in the tree: where words with one beginning meet, and how they go on.

    Attributes:
        children: Where each token leads.
        calls: The same for calls, by each key that a node with the operator may have.
        wildcards: The same for what takes any value of the graph.
        anything: The same for what takes any value at all.
        constants: The same for constants, by type and value.
        lists: The same for lists.
        ranks: The patterns whose words end here.
        first: The best of the patterns whose words come by here.
    """

    __slots__ = (
        *("anything", "calls", "children", "constants", "first", "lists", "ranks", "wildcards"),
    )

    def __init__(self, first: int) -> None:
        """A place to which the pattern of rank ``first`` is the first to come."""
        self.children: dict[Token, Tree] = {}
        self.calls: dict[Key, list[tuple[int, Call, Tree]]] = {}
        self.wildcards: list[tuple[Token, Tree]] = []
        self.anything: list[tuple[Token, Tree]] = []
        self.constants: dict[tuple[type, Any], tuple[Token, Tree]] = {}
        self.lists: list[tuple[Items, Tree]] = []
        self.ranks: list[int] = []
        self.first = first

    def child(self, token: Token, rank: int) -> Tree:
        """Where ``token`` leads; made for the pattern of ``rank`` if there is no such place yet."""
        found = self.children.get(token)
        if found is not None:
            return found
        child = self.children[token] = Tree(rank)
        if isinstance(token, Call):
            count = _MANY if token.names else token.count
            for key in keys_of(token.operator):
                self.calls.setdefault(key, []).append((count, token, child))
        elif isinstance(token, Items):
            self.lists.append((token, child))
        elif isinstance(token, Constant):
            self.constants[token.kind, token.value] = token, child
        elif isinstance(token, MatchAllNode) and not token.literals:
            self.wildcards.append((token, child))
        else:
            self.anything.append((token, child))
        return child


class Walk:
    """Walks through a tree, along one graph."""

    __slots__ = ("_calls", "_key_of", "_states")

    def __init__(self, calls: CallGraph, key_of: KeyOf) -> None:
        """Along the graph of ``calls``, whose nodes have the keys that ``key_of`` gives."""
        self._calls = calls
        self._key_of = key_of
        # Places still to go on from: the next value to read, those behind it, and what was read.
        self._states: list[tuple[Tree, Any, _Pending, Path]] = []

    def ends(  # noqa: C901, PLR0912  the hot loop of every pass that matches
        self, root: Tree, anchor: Node, stuck: list[tuple[Tree, Path]] | None = None
    ) -> list[tuple[Tree, Path]]:
        """Where every word ends that the graph spells, and what was read on the way.

        Args:
            root: Where the words begin.
            anchor: The first value to be read.
            stuck: Told of the places from which no word goes on.
        """
        ends: list[tuple[Tree, Path]] = []
        states, key_of = self._states, self._key_of
        states.append((root, anchor, None, None))
        while states:
            tree, value, rest, path = states.pop()
            before = len(states) + len(ends)
            if isinstance(value, Node):
                for count, call, child in tree.calls.get(key_of(value), ()):
                    read = (value, call, path)
                    if count == 1 and len(value.args) == 1 and not value.kwargs:
                        states.append((child, value.args[0], rest, read))
                    elif count:
                        self._read_operands(call, child, rest, read)
                    elif rest is None:
                        ends.append((child, read))
                    else:
                        states.append((child, *rest, read))
                for token, child in tree.wildcards:
                    _go(child, rest, (value, token, path), states, ends)
            elif tree.constants or tree.lists:
                for token, child, more in _plain_values(tree, value, rest):
                    what = LIST if isinstance(token, Items) else value
                    _go(child, more, (what, token, path), states, ends)
            for token, child in tree.anything:
                _go(child, rest, (value, token, path), states, ends)
            if stuck is not None and len(states) + len(ends) == before:
                stuck.append((tree, path))
        return ends

    def _read_operands(
        self, call: Call, child: Tree, rest: _Pending, read: tuple[Node, Token, Path]
    ) -> None:
        """Go on to ``child`` with the operands of a call to be read, if it has as many."""
        site = self._calls.site(read[0])
        if site is None or len(site.arguments) < call.count:
            return
        named = (collapsed(site.argument(name)) for name in call.names)
        first, *others = (*site.arguments[: call.count], *named)
        for operand in reversed(others):
            rest = (operand, rest)
        self._states.append((child, first, rest, read))


def _go(
    tree: Tree,
    pending: _Pending,
    path: Path,
    states: list[tuple[Tree, Any, _Pending, Path]],
    ends: list[tuple[Tree, Path]],
) -> None:
    """Go on from ``tree``, or end there if nothing is left to be read."""
    if pending is None:
        ends.append((tree, path))
    else:
        value, rest = pending
        states.append((tree, value, rest, path))


def _plain_values(tree: Tree, value: Any, rest: _Pending) -> Iterator[tuple[Token, Tree, _Pending]]:
    """Where a value that is no node leads, and what is to be read there."""
    if isinstance(value, (list, tuple)):
        for items, child in tree.lists:
            if len(value) == items.count or (items.open and len(value) > items.count):
                more = rest
                for each in reversed(value[: items.count]):
                    more = (each, more)
                yield items, child, more
    try:
        found = tree.constants.get((type(value), value))
    except TypeError:  # what cannot be hashed is no literal of a pattern
        return
    if found is not None:
        yield (*found, rest)


def depth_of(path: Path) -> int:
    """How many calls were read."""
    depth = 0
    while path is not None:
        _, token, path = path
        depth += isinstance(token, Call)
    return depth
