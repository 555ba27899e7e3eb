"""What a pattern means, read off the rules one by one: slow, and knows nothing of the matcher.

A reading of a pattern is one way to understand it at a node. All readings are tried, depth first,
alternatives in the order written; what makes a reading a solution is looked at once, at its end.
"""

from __future__ import annotations

import heapq
import itertools
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from torch import fx

from fusion_core.configs import Skip
from fusion_core.patterns import (
    AnyOf,
    Capture,
    ListOf,
    LiteralValue,
    MatchAllNode,
    Op,
    Step,
    Where,
    wildcard_count,
)


class Solution(NamedTuple):
    nodes: tuple[fx.Node, ...]
    captures: dict[str, Any]
    node_pattern: Any


class Reading(NamedTuple):
    """A reading so far."""

    claimed: tuple[fx.Node, ...] = ()
    free: frozenset[fx.Node] = frozenset()
    names: tuple[tuple[str, Any], ...] = ()

    def freeing(self, value):
        return self._replace(free=self.free | nodes_in(value))


def nodes_in(value):
    """The nodes of an argument."""
    found = set()
    fx.map_arg(value, found.add)
    return frozenset(found)


def is_same(one, other):
    """The very same node, or constants equal in type and value."""
    if isinstance(one, fx.Node) or isinstance(other, fx.Node):
        return one is other
    return type(one) is type(other) and one == other


def applied(head, inputs):
    """The head of a step, applied to the step's inputs."""
    if isinstance(head, (Where, Capture)):
        return replace(head, pattern=applied(head.pattern, inputs))
    return replace(head, inputs=inputs)


def orders(arguments):
    """Every order of the arguments; where two are the same, each different order once."""
    seen = []
    for order in itertools.permutations(arguments):
        if not any(all(map(is_same, order, each)) for each in seen):
            seen.append(order)
            yield order


@dataclass(frozen=True)
class Oracle:
    """The rules, a few lines each."""

    made: Any

    def solutions(self, pattern, anchor):
        """Every solution of ``pattern`` at ``anchor``, in order."""
        for reading, part in self.read(pattern, anchor, Reading()):
            claimed = set(reading.claimed)
            is_closed = all(set(node.users) <= claimed for node in reading.claimed[1:])
            if is_closed and not claimed & reading.free:
                yield Solution(reading.claimed, dict(reading.names), part)

    def read(self, pattern, value, so_far):
        """Every reading of ``pattern`` at ``value``, and what then stands in the node pattern."""
        return RULES[type(pattern)](self, pattern, value, so_far)

    def read_all(self, patterns, values, so_far):
        if not patterns:
            yield so_far, ()
            return
        for after, part in self.read(patterns[0], values[0], so_far):
            for last, parts in self.read_all(patterns[1:], values[1:], after):
                yield last, (part, *parts)

    def wildcard(self, pattern, value, so_far):
        if pattern.literals or isinstance(value, fx.Node):
            yield so_far.freeing(value), value

    def literal(self, pattern, value, so_far):
        if is_same(value, pattern.value):
            yield so_far, value

    def list_of(self, pattern, value, so_far):
        count = len(pattern.items)
        if not isinstance(value, (list, tuple)) or len(value) < count:
            return
        if len(value) == count or pattern.open:
            after = so_far.freeing(value[count:])
            for last, parts in self.read_all(pattern.items, value[:count], after):
                yield last, list(parts)

    def any_of(self, pattern, value, so_far):
        for choice in pattern.choices:
            yield from self.read(choice, value, so_far)

    def where(self, pattern, value, so_far):
        for after, part in self.read(pattern.pattern, value, so_far):
            verdict = pattern.predicate(value, self.made.module(value))
            if verdict and not isinstance(verdict, Skip):
                yield after, part

    def capture(self, pattern, value, so_far):
        bound = dict(so_far.names)
        if pattern.name in bound:
            if is_same(bound[pattern.name], value):
                yield so_far, value
            return
        for after, part in self.read(pattern.pattern, value, so_far):
            yield after._replace(names=(*after.names, (pattern.name, value))), part

    def step(self, pattern, value, so_far):
        for head in pattern.heads:
            yield from self.read(applied(head, pattern.inputs), value, so_far)
        if pattern.optional:
            for after, part in self.read(pattern.inputs[0], value, so_far):
                yield after, (None, part)

    def op(self, pattern, value, so_far):
        call = self.made.truth.get(value) if isinstance(value, fx.Node) else None
        if call is None or pattern.operator not in call.operators or value in so_far.claimed:
            return
        named = dict(pattern.keywords)
        if not self.made.is_sound(value) or set(call.modifiers) - set(named):
            return
        if not all(self.holds(each, value, name) for name, each in named.items()):
            return
        after = so_far._replace(claimed=(*so_far.claimed, value))
        after = after.freeing([each for name in named for each in self.made.attribute(value, name)])
        if pattern.inputs is None:
            yield after, value
            return
        count = len(pattern.inputs)
        leading, rest = call.arguments[:count], call.arguments[count:]
        if len(leading) < count or not (pattern.open or self.is_default(call, count, named)):
            return
        for order in orders(leading) if pattern.any_order else [leading]:
            for last, parts in self.read_all(pattern.inputs, order, after.freeing(rest)):
                yield last, (value, *parts)

    def holds(self, constraint, node, name):
        """Whether the argument or attribute ``name`` is what ``constraint`` says."""
        if isinstance(constraint, AnyOf):
            return any(self.holds(each, node, name) for each in constraint.choices)
        values = self.made.attribute(node, name)
        return any(True for each in values for _ in self.read(constraint, each, Reading()))

    def is_default(self, call, count, named):
        """Whether the arguments behind ``count`` say nothing; working in place is nothing."""
        surplus = zip(call.names[count:], call.arguments[count:], strict=True)
        exempt = {*named, "inplace"}
        return all(name in exempt or call.defaults[name] == value for name, value in surplus)

    def sweep(self, entries, priority, accepts):
        """The place of each pattern that is found, and its solution, last node first."""
        taken, found = set(), []
        for node in reversed(self.made.graph.nodes):
            best = None if node in taken else self.best(node, entries, priority, accepts)
            if best is not None:
                found.append(best)
                taken.update(best[1].nodes)
        return found

    def best(self, node, entries, priority, accepts):
        """Of each pattern the next solution competes; one that is refused gives way to its next."""
        competing = []
        for place, pattern in enumerate(entries):
            rank = wildcard_count(pattern), place
            self.enter(competing, priority(place), rank, self.solutions(pattern, node))
        while competing:
            (high, _, *rank), solution, others = heapq.heappop(competing)
            if accepts(rank[-1], solution):
                return rank[-1], solution
            self.enter(competing, -high, rank, others)
        return None

    def enter(self, competing, priority, rank, solutions):
        solution = next(solutions, None)
        if solution is not None:
            key = (-priority, -len(solution.nodes), *rank)
            heapq.heappush(competing, (key, solution, solutions))


RULES = {
    MatchAllNode: Oracle.wildcard,
    LiteralValue: Oracle.literal,
    ListOf: Oracle.list_of,
    AnyOf: Oracle.any_of,
    Where: Oracle.where,
    Capture: Oracle.capture,
    Step: Oracle.step,
    Op: Oracle.op,
}
