"""One pattern at one node: the whole meaning of the grammar, in one place."""

from __future__ import annotations

from typing import Any, TypeVar

from torch.fx import Node, map_arg

from fusion_core.matcher.calls import CallGraph, CallSite
from fusion_core.matcher.result import Match, NodePattern, NoMatch
from fusion_core.patterns import AnyOf, LiteralValue, MatchAllNode, Op, Pattern

Entry = TypeVar("Entry")


def match_at(
    pattern: Pattern, node: Node, calls: CallGraph, entry: Entry
) -> Match[Entry] | NoMatch:
    """Try ``pattern`` with its outermost operator at ``node``.

    * An operator is the call's exact spelling, or the operation that spelling stands for.
    * Inner nodes have exactly one user; the anchor may have any number.
    * Arguments the pattern names must match; the others must have their defaults. A bare operator,
      and a tuple that ends in ``...``, leave the other positional arguments free.
    * A node stands in one place of the pattern only; neither a wildcard nor an argument left free
      ever is a node of the match itself.
    * Of alternatives, the first that matches in its place is taken, whatever its neighbours then
      do.

    Args:
        pattern: The canonical pattern.
        node: Where it is anchored.
        calls: The call sites of the node's graph.
        entry: Handed through to the match.

    Returns:
        The match, or why there is none.
    """
    attempt = _Attempt(calls)
    found = attempt.value(pattern, node, inner=False)
    if isinstance(found, NoMatch):
        return found
    caught = next((each for each in attempt.claimed if each in attempt.unclaimed), None)
    if caught is not None:
        return NoMatch(
            "{} stands for an operator and is an operand left free at once",
            (caught,),
            len(attempt.claimed),
        )
    return Match(entry, node, tuple(attempt.claimed), found)


class _Attempt:
    """What has been claimed so far while one pattern is tried."""

    def __init__(self, calls: CallGraph) -> None:
        self.calls = calls
        self.claimed: list[Node] = []
        self.unclaimed: set[Node] = set()

    def value(self, pattern: Pattern, value: Any, *, inner: bool) -> NodePattern | NoMatch:
        if isinstance(pattern, MatchAllNode):
            return self._wildcard(pattern, value)
        if isinstance(pattern, LiteralValue):
            return value if pattern.accepts(value) else self._no("{!r} is not {}", value, pattern)
        if isinstance(pattern, AnyOf):
            return self._any_of(pattern, value, inner=inner)
        return self._operator(pattern, value, inner=inner)

    def _wildcard(self, pattern: MatchAllNode, value: Any) -> NodePattern | NoMatch:
        if isinstance(value, Node):
            self.unclaimed.add(value)
            return value
        return (
            value
            if pattern.literals
            else self._no("the wildcard stands for a value of the graph, not {!r}", value)
        )

    def _any_of(self, pattern: AnyOf, value: Any, *, inner: bool) -> NodePattern | NoMatch:
        nearest: NoMatch | None = None
        for choice in pattern.choices:
            claimed, unclaimed = len(self.claimed), set(self.unclaimed)
            found = self.value(choice, value, inner=inner)
            if not isinstance(found, NoMatch):
                return found
            del self.claimed[claimed:]
            self.unclaimed = unclaimed
            if nearest is None or found.depth > nearest.depth:
                nearest = found
        return nearest or self._no("no alternative")

    def _operator(self, pattern: Op, value: Any, *, inner: bool) -> NodePattern | NoMatch:
        site = self.calls.site(value) if isinstance(value, Node) else None
        if site is None or pattern.operator not in site.operators:
            return self._no("{} is not {}", _describe(value, site), pattern.operator)
        refusal = self._refusal(site, inner=inner)
        if refusal is not None:
            return refusal
        self.claimed.append(site.node)
        if pattern.inputs is None:
            return site.node
        return self._inputs(pattern, pattern.inputs, site)

    def _refusal(self, site: CallSite, *, inner: bool) -> NoMatch | None:
        node = site.node
        if inner and len(node.users) != 1:
            return self._no(
                "{} is also used by {}", node, ", ".join(map(str, list(node.users)[1:]))
            )
        if node in self.claimed:
            return self._no("{} stands in two places", node)
        if site.obstacle is not None:
            return self._no("{}", site.obstacle)
        if site.modifiers:
            return self._no(
                "{} has {}, which no place of the pattern names", node, site.modifiers[0]
            )
        return None

    def _inputs(
        self, pattern: Op, inputs: tuple[Pattern, ...], site: CallSite
    ) -> NodePattern | NoMatch:
        if len(site.arguments) < len(inputs):
            return self._no(
                "{} has {} arguments, not {}", site.node, len(site.arguments), len(inputs)
            )
        surplus = None if pattern.open else site.surplus(len(inputs))
        if surplus is not None:
            return self._no("{} has {}, which no place of the pattern names", site.node, surplus)
        map_arg(site.arguments[len(inputs) :], self.unclaimed.add)
        parts: list[NodePattern] = [site.node]
        for each, argument in zip(inputs, site.arguments, strict=False):
            found = self.value(each, argument, inner=True)
            if isinstance(found, NoMatch):
                return found
            parts.append(found)
        return tuple(parts)

    def _no(self, template: str, *values: Any) -> NoMatch:
        return NoMatch(template, values, len(self.claimed))


def _describe(value: Any, site: CallSite | None) -> str:
    if site is not None:
        return f"{value} ({site.operators[0]})"
    return f"{value} ({value.op})" if isinstance(value, Node) else repr(value)
