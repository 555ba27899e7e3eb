"""Patterns compiled into a discrimination tree: a node meets only the patterns that could match there.

Each pattern is read in preorder as a word of tokens, and words with a common beginning share their
path from the root. A walk follows the tokens that the graph offers, so its cost depends on the
shape of the graph around the node and not on the number of patterns.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeAlias, TypeVar

from torch.fx import Node

from fusion_core.matcher.calls import CallGraph
from fusion_core.patterns import AnyOf, LiteralValue, MatchAllNode, Op, Operator, Pattern

Entry = TypeVar("Entry")

# An operator and how many of its inputs follow in the word; None where they are free.
_Token: TypeAlias = tuple[Operator, int | None] | MatchAllNode | tuple[type, Any]


@dataclass(slots=True)
class _TreeNode:
    operators: dict[Operator, dict[int | None, _TreeNode]] = field(default_factory=dict)
    wildcards: dict[MatchAllNode, _TreeNode] = field(default_factory=dict)
    literals: dict[tuple[type, Any], _TreeNode] = field(default_factory=dict)
    ranks: list[int] = field(default_factory=list)

    def child(self, token: _Token) -> _TreeNode:
        if isinstance(token, MatchAllNode):
            return self.wildcards.setdefault(token, _TreeNode())
        if isinstance(token[0], Operator):
            by_count = self.operators.setdefault(token[0], {})
            return by_count.setdefault(token[1], _TreeNode())
        return self.literals.setdefault(token, _TreeNode())


class PatternIndex(Generic[Entry]):
    """An ordered set of patterns, compiled once.

    Attributes:
        entries: What was given, in order; earlier entries are preferred.
    """

    def __init__(self, entries: Iterable[tuple[Pattern, Entry]]) -> None:
        """Compile ``entries``, pairs of a canonical pattern and what it stands for, preferred ones first."""
        self.entries: tuple[tuple[Pattern, Entry], ...] = tuple(entries)
        self._root = _TreeNode()
        self._anchored: dict[Operator, list[int]] = {}
        for rank, (pattern, _) in enumerate(self.entries):
            for word in _words(pattern):
                self._insert(word, rank)

    def _insert(self, word: Sequence[_Token], rank: int) -> None:
        tree = self._root
        for token in word:
            tree = tree.child(token)
        tree.ranks.append(rank)
        anchor = word[0]
        if isinstance(anchor, tuple) and isinstance(anchor[0], Operator):
            ranks = self._anchored.setdefault(anchor[0], [])
            if not ranks or ranks[-1] != rank:
                ranks.append(rank)

    def candidates(self, node: Node, calls: CallGraph) -> Sequence[tuple[Pattern, Entry]]:
        """Patterns whose operators are all in place around ``node``, preferred ones first."""
        site = calls.site(node)
        if site is None or not any(each in self._root.operators for each in site.operators):
            return ()
        return [self.entries[rank] for rank in sorted(set(_walk(self._root, node, calls)))]

    def anchored(self, node: Node, calls: CallGraph) -> Iterator[tuple[Pattern, Entry]]:
        """Patterns whose last operator is the call of ``node``, whether they match or not."""
        site = calls.site(node)
        for operator in site.operators if site else ():
            for rank in self._anchored.get(operator, ()):
                yield self.entries[rank]


def _walk(root: _TreeNode, anchor: Node, calls: CallGraph) -> Iterator[int]:
    """Ranks of every word that the graph spells, starting at ``anchor``."""
    # A state is a place in the tree and the values still to be read, next one last.
    states: list[tuple[_TreeNode, tuple[Any, ...]]] = [(root, (anchor,))]
    while states:
        tree, pending = states.pop()
        if pending:
            states.extend(_steps(tree, pending[-1], pending[:-1], calls))
        else:
            yield from tree.ranks


def _steps(
    tree: _TreeNode, value: Any, rest: tuple[Any, ...], calls: CallGraph
) -> Iterator[tuple[_TreeNode, tuple[Any, ...]]]:
    """Where reading ``value`` leads from a place in the tree."""
    is_node = isinstance(value, Node)
    for wildcard, child in tree.wildcards.items():
        if wildcard.literals or is_node:
            yield child, rest
    if not is_node:
        literal = _literal(tree, value) if tree.literals else None
        if literal is not None:
            yield literal, rest
        return
    site = calls.site(value) if tree.operators else None
    for operator in site.operators if site else ():
        for count, child in tree.operators.get(operator, {}).items():
            if count is None:
                yield child, rest
            elif site is not None and len(site.arguments) >= count:
                yield child, (*rest, *reversed(site.arguments[:count]))


def _words(pattern: Pattern) -> Iterator[tuple[_Token, ...]]:
    """Every way to read ``pattern``, one per combination of alternatives."""
    if isinstance(pattern, AnyOf):
        for choice in pattern.choices:
            yield from _words(choice)
    elif isinstance(pattern, Op):
        inputs = pattern.inputs
        head: _Token = (pattern.operator, None if inputs is None else len(inputs))
        for parts in itertools.product(*(list(_words(each)) for each in inputs or ())):
            yield (head, *itertools.chain.from_iterable(parts))
    elif isinstance(pattern, LiteralValue):
        yield ((type(pattern.value), pattern.value),)
    else:
        yield (pattern,)


def _literal(tree: _TreeNode, value: object) -> _TreeNode | None:
    try:
        return tree.literals.get((type(value), value))
    except TypeError:  # what cannot be hashed is no literal of a pattern
        return None
