"""A set of patterns, compiled once: a node meets only those that could match there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Generic, TypeAlias, TypeVar

from torch.fx import Node

from fusion_core.matcher.calls import CallGraph
from fusion_core.matcher.spelling import Key, keys_of
from fusion_core.matcher.tree import Path, Tree, Walk, depth_of
from fusion_core.matcher.words import Call, Token, is_plain, words_of
from fusion_core.patterns import Pattern, operator_count, wildcard_count

Entry = TypeVar("Entry")

Bound: TypeAlias = tuple[int, int, int, int]
"""Sort key of a pattern: priority, most nodes it can claim, wildcards, place; smaller goes first."""

Candidate: TypeAlias = tuple[Bound, Path]
"""A pattern's bound, and what was read on the way to it, if that says all there is to the pattern."""


class PatternIndex(Generic[Entry]):
    """An ordered set of patterns.

    Attributes:
        entries: What was given, in order; where nothing else decides, earlier entries are preferred.
        bounds: For each, the best that a match of it can be.
    """

    def __init__(
        self,
        entries: Iterable[tuple[Pattern, Entry]],
        priority: Callable[[Entry], int] = lambda _entry: 0,
    ) -> None:
        """Compile ``entries``, pairs of a canonical pattern and what it stands for.

        Args:
            entries: The patterns; where nothing else decides, preferred ones first.
            priority: Higher goes first, whatever the pattern.
        """
        self.entries: tuple[tuple[Pattern, Entry], ...] = tuple(entries)
        self.bounds: list[Bound] = [
            (-priority(entry), -operator_count(pattern), wildcard_count(pattern), rank)
            for rank, (pattern, entry) in enumerate(self.entries)
        ]
        self._plain = {rank for rank, (pattern, _) in enumerate(self.entries) if is_plain(pattern)}
        self._anchored: dict[Key, list[int]] = {}
        best_first = sorted(self.bounds)
        self._root = Tree(best_first[0][3] if best_first else 0)
        for _, _, _, rank in best_first:
            for word in words_of(self.entries[rank][0]):
                self._insert(word, rank)

    def _insert(self, word: Sequence[Token], rank: int) -> None:
        tree = self._root
        for token in word:
            tree = tree.child(token, rank)
        if not tree.ranks or tree.ranks[-1] != rank:
            tree.ranks.append(rank)
        anchor = word[0]
        if isinstance(anchor, Call):
            for key in keys_of(anchor.operator):
                ranks = self._anchored.setdefault(key, [])
                if not ranks or ranks[-1] != rank:
                    ranks.append(rank)

    def ends_with(self, key: Key) -> bool:
        """Whether the last operator of any pattern may be that of a node with ``key``."""
        return key in self._anchored

    def found(self, node: Node, walk: Walk) -> list[Candidate]:
        """The patterns that could match at ``node``, best bound first."""
        found: list[Candidate] = [
            (self.bounds[rank], path if rank in self._plain else None)
            for tree, path in walk.ends(self._root, node)
            for rank in tree.ranks
        ]
        if len(found) > 1:
            found = sorted(dict(found).items())
        return found

    def candidates(self, node: Node, calls: CallGraph) -> list[tuple[Pattern, Entry]]:
        """The patterns that could match at ``node``, best bound first."""
        return [self.entries[bound[3]] for bound, _ in self.found(node, Walk(calls, calls.key))]

    def anchored(self, node: Node, calls: CallGraph) -> Iterator[tuple[Pattern, Entry]]:
        """Patterns whose last operator is the call of ``node``, whether they match or not."""
        for rank in self._anchored.get(calls.key(node), ()):
            yield self.entries[rank]

    def nearest(self, node: Node, calls: CallGraph) -> tuple[Pattern, Entry] | None:
        """Of the patterns that end in the call of ``node``, one whose operators are in place furthest."""
        stuck: list[tuple[Tree, Path]] = []
        ends = Walk(calls, calls.key).ends(self._root, node, stuck)
        reached = [(depth_of(path), tree) for tree, path in ends or stuck]
        furthest = max((depth for depth, _ in reached), default=0)
        ranks = [tree.first for depth, tree in reached if depth == furthest > 0]
        return self.entries[min(ranks, key=self.bounds.__getitem__)] if ranks else None
