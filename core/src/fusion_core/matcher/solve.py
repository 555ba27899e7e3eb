"""Every way to read a pattern at a node: the whole meaning of the grammar, in one place.

A depth-first search with a stack of its own. What is still to be shown is a linked list of goals,
each a pattern and the value in its place; where a pattern leaves a choice, the other goals are kept,
and taken up again when something later fails.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, NamedTuple, TypeAlias, TypeVar

from torch.fx import Node, map_arg

from fusion_core.configs import Skip
from fusion_core.errors import PredicateError
from fusion_core.matcher import reasons
from fusion_core.matcher.calls import MISSING, CallGraph, CallSite
from fusion_core.matcher.constraints import holds
from fusion_core.matcher.result import LIST, Match, NoMatch, Part, Place
from fusion_core.matcher.spelling import keys_of
from fusion_core.patterns import (
    AnyOf,
    Capture,
    ListOf,
    LiteralValue,
    MatchAllNode,
    Op,
    Operator,
    Pattern,
    Step,
    Where,
)

Entry = TypeVar("Entry")

# Pattern, value, inputs that a chain gives it, whose operand the value is, further goals.
_Goals: TypeAlias = "tuple[Any, Any, tuple[Pattern, ...] | None, Place | None, Any] | None"
_FAILED = False
_OTHER = reasons.OTHER_OPERATOR.sentence


def match_at(
    pattern: Pattern, node: Node, calls: CallGraph, entry: Entry
) -> Match[Entry] | NoMatch:
    """Try ``pattern`` with its outermost operator at ``node``.

    * An operator is the call's exact spelling, or the operation that spelling stands for.
    * Every user of an inner node is in the match; the anchor may have any users.
    * Arguments the pattern names, by position or by keyword, must match; the others must have their
      defaults. A bare operator, and a tuple that ends in ``...``, leave the other positional
      arguments free.
    * A node stands in one place of the pattern only, but for the places of one ``capture``; neither
      a wildcard nor an argument left free ever is a node of the match itself.
    * Where a pattern leaves a choice, alternatives are tried in the order written, operands in any
      order as written first, optional steps as present first. The first way in which everything
      fits is the match.

    Args:
        pattern: The canonical pattern.
        node: Where it is anchored.
        calls: The call sites of the node's graph.
        entry: Handed through to the match.

    Returns:
        The match, or why there is none: what went wrong on the way that led furthest.

    Raises:
        PredicateError: A condition of the pattern raised.
    """
    search = Search(pattern, node, calls, entry)
    return search.match() if search.advance() else search.nearest


def matches_at(
    pattern: Pattern, node: Node, calls: CallGraph, entry: Entry
) -> Iterator[Match[Entry]]:
    """Every match of ``pattern`` at ``node``, in order of preference; see :func:`match_at`."""
    search = Search(pattern, node, calls, entry)
    while search.advance():
        yield search.match()


class _Absent(NamedTuple):
    """The goal that an optional step is missing."""

    step: Step


class _Condition(NamedTuple):
    """The goal that a condition holds, once its pattern has matched."""

    where: Where


class _Choice(NamedTuple):
    """Goals that may be taken up instead, and how much was known before."""

    goals: _Goals
    claimed: int
    free: int
    parts: int
    bound: tuple[tuple[str, Any], ...]


class _Shown(NamedTuple):
    """A value as messages name it."""

    value: Any
    site: CallSite | None

    def __str__(self) -> str:
        if self.site is not None:
            return f"{self.value} ({self.site.operators[0]})"
        value = self.value
        return f"{value} ({value.op})" if isinstance(value, Node) else repr(value)


class _Either(list[Operator]):
    """Operators of which any would do, as messages name them."""

    def __str__(self) -> str:
        *others, last = map(str, dict.fromkeys(self))
        return f"{', '.join(others)} or {last}" if others else last


class Search:
    """One pattern being tried at one node.

    Attributes:
        nearest: Of what went wrong so far, the failure that came after most operators.
    """

    __slots__ = (
        *("_bound", "_calls", "_choices", "_claimed", "_entry", "_free", "_goals", "_nearest"),
        "_parts",
    )

    def __init__(self, pattern: Pattern, node: Node, calls: CallGraph, entry: Any) -> None:
        """Try ``pattern`` at ``node``; nothing happens before :meth:`advance`."""
        self._entry = entry
        self._calls = calls
        self._goals: Any = (pattern, node, None, None, None)
        self._claimed: list[Node] = []
        self._free: list[Node] = []
        self._parts: list[Part] = []
        self._bound: tuple[tuple[str, Any], ...] = ()
        self._choices: list[_Choice] = []
        self._nearest: NoMatch | None = None

    @property
    def nearest(self) -> NoMatch:
        """The failure that came after most operators."""
        return self._nearest or NoMatch("nothing was tried")

    @property
    def size(self) -> int:
        """How many nodes the match claims."""
        return len(self._claimed)

    def advance(self) -> bool:
        """Go on to the next match; whether there is one."""
        goals, self._goals = self._goals, _FAILED
        rules = self._RULES
        while True:
            while goals:
                pattern, value, inputs, place, rest = goals
                goals = rules[type(pattern)](self, pattern, value, inputs, place, rest)
            if goals is None and self._is_closed():
                return True
            if not self._choices:
                return False
            choice = self._choices.pop()
            goals, self._bound = choice.goals, choice.bound
            del self._claimed[choice.claimed :]
            del self._free[choice.free :]
            del self._parts[choice.parts :]

    def match(self) -> Match[Any]:
        """The match that :meth:`advance` came to."""
        return Match(self._entry, tuple(self._claimed), dict(self._bound), tuple(self._parts))

    def _is_closed(self) -> bool:
        """Whether nobody outside reads what is to be replaced, the anchor excepted."""
        claimed = self._claimed
        for node in claimed[1:]:
            if len(node.users) > 1:
                outside = [user for user in node.users if user not in claimed]
                if outside:
                    return self._fail(reasons.ALSO_USED, None, node, ", ".join(map(str, outside)))
        for node in self._free:
            if node in claimed:
                return self._fail(reasons.FREE_AND_CLAIMED, None, node)
        return True

    def _fail(self, why: reasons.Why, place: Place | None, *values: Any) -> bool:
        depth = len(self._claimed)
        nearest = self._nearest
        # Of two that came equally far, the one that met the right operator came nearer.
        if (
            nearest is None
            or depth > nearest.depth
            or (depth == nearest.depth and nearest.template == _OTHER and why.sentence != _OTHER)
        ):
            self._nearest = NoMatch(why.sentence, values, depth, place, why.remedy)
        return _FAILED

    def _fail_operator(self, shown: _Shown, wanted: Operator, place: Place | None) -> bool:
        """Fail at an operator; of alternatives in one place, all are named."""
        nearest = self._nearest
        if (
            nearest is not None
            and nearest.template == _OTHER
            and (nearest.depth, nearest.place) == (len(self._claimed), place)
            and nearest.values[0] == shown
        ):
            nearest.values[1].append(wanted)
            return _FAILED
        return self._fail(reasons.OTHER_OPERATOR, place, shown, _Either([wanted]))

    def _or(self, goals: _Goals) -> None:
        """Keep ``goals`` to be tried when the way now taken fails."""
        self._choices.append(
            _Choice(goals, len(self._claimed), len(self._free), len(self._parts), self._bound)
        )

    def _op(self, pattern: Op, value: Any, inputs: Any, place: Any, rest: _Goals) -> Any:
        site = self._calls.site(value) if isinstance(value, Node) else None
        if site is None or site.key not in keys_of(pattern.operator):
            return self._fail_operator(_Shown(value, site), pattern.operator, place)
        inputs = pattern.inputs if inputs is None else inputs
        if self._refuses(pattern, site, 0 if inputs is None else len(inputs), place):
            return _FAILED
        self._claimed.append(site.node)
        if inputs is None:
            self._parts.append((site.node, 0, pattern.operator))
            return rest
        count = len(inputs)
        arguments = site.arguments
        if len(arguments) > count:
            surplus = None if pattern.open else site.surplus(count, _names(pattern))
            if surplus is not None:
                return self._fail(reasons.SURPLUS, place, site.node, surplus)
            map_arg(arguments[count:], self._free.append)
            arguments = arguments[:count]
        self._parts.append((site.node, count, pattern.operator))
        if pattern.any_order:
            for order in _other_orders(arguments):
                self._or(_operands(inputs, arguments, order, site.node, rest))
        return _operands(inputs, arguments, range(count), site.node, rest)

    def _refuses(self, pattern: Op, site: CallSite, count: int, place: Place | None) -> bool:
        """Whether the call, or how it is called, is not what ``pattern`` may stand for."""
        if site.node in self._claimed:
            self._fail(reasons.TWO_PLACES, place, site.node)
            return True
        obstacle = None if site.module is None else self._calls.obstacle(site)
        if obstacle is not None:
            self._fail(reasons.OBSTACLE, place, obstacle)
            return True
        if len(site.arguments) < count:
            self._fail(reasons.TOO_FEW, place, site.node, len(site.arguments), count)
            return True
        if site.modifiers:
            unnamed = [name for name in site.modifiers if name not in _names(pattern)]
            if unnamed:
                shown = f"{unnamed[0]}={site.modifiers[unnamed[0]]!r}"
                self._fail(reasons.SURPLUS, place, site.node, shown)
                return True
        return bool(pattern.keywords) and self._refuses_arguments(pattern, site, place)

    def _refuses_arguments(self, pattern: Op, site: CallSite, place: Place | None) -> bool:
        for name, wanted in pattern.keywords:
            actual = site.argument(name)
            if not holds(wanted, actual):
                shown = "no such argument" if actual is MISSING else f"{name}={actual!r}"
                self._fail(reasons.OTHER_ARGUMENT, place, site.node, shown, name, wanted)
                return True
            map_arg(actual, self._free.append)
        return False

    def _step(self, pattern: Step, value: Any, _inputs: Any, place: Any, rest: _Goals) -> Any:
        if pattern.optional:
            self._or((_Absent(pattern), value, None, place, rest))
        for head in reversed(pattern.heads[1:]):
            self._or((head, value, pattern.inputs, place, rest))
        return (pattern.heads[0], value, pattern.inputs, place, rest)

    def _absent(self, goal: _Absent, value: Any, _inputs: Any, place: Any, rest: _Goals) -> Any:
        self._parts.append((None, 1, None))
        return (goal.step.inputs[0], value, None, place, rest)

    def _any_of(self, pattern: AnyOf, value: Any, inputs: Any, place: Any, rest: _Goals) -> Any:
        for choice in reversed(pattern.choices[1:]):
            self._or((choice, value, inputs, place, rest))
        return (pattern.choices[0], value, inputs, place, rest)

    def _where(self, pattern: Where, value: Any, inputs: Any, place: Any, rest: _Goals) -> Any:
        condition = (_Condition(pattern), value, None, place, rest)
        return (pattern.pattern, value, inputs, place, condition)

    def _condition(self, goal: _Condition, value: Any, _inputs: Any, place: Any, rest: Any) -> Any:
        where = goal.where
        module = self._calls.module(value) if isinstance(value, Node) else None
        try:
            verdict = where.predicate(value, module)
        except Exception as error:
            raise PredicateError(self._entry, where.reason, value, error) from error
        if isinstance(verdict, Skip) or not verdict:
            reason = verdict.reason if isinstance(verdict, Skip) else where.reason
            return self._fail(reasons.CONDITION, place, value, reason)
        return rest

    def _capture(self, pattern: Capture, value: Any, inputs: Any, place: Any, rest: Any) -> Any:
        for name, other in self._bound:
            if name == pattern.name:
                same = value is other or LiteralValue(other).accepts(value)
                if not same:
                    return self._fail(reasons.OTHER_CAPTURE, place, value, other, name)
                self._parts.append((value, -1, None))
                return rest
        self._bound = (*self._bound, (pattern.name, value))
        return (pattern.pattern, value, inputs, place, rest)

    def _list(self, pattern: ListOf, value: Any, _inputs: Any, place: Any, rest: Any) -> Any:
        count = len(pattern.items)
        if not isinstance(value, (list, tuple)):
            return self._fail(reasons.NO_LIST, place, _Shown(value, None))
        if len(value) < count or (len(value) > count and not pattern.open):
            return self._fail(reasons.OTHER_LENGTH, place, len(value), count)
        map_arg(tuple(value[count:]), self._free.append)
        self._parts.append((LIST, count, None))
        for item, each in zip(reversed(pattern.items), reversed(value[:count]), strict=True):
            rest = (item, each, None, place, rest)
        return rest

    def _wildcard(
        self, pattern: MatchAllNode, value: Any, _inputs: Any, place: Any, rest: Any
    ) -> Any:
        if not pattern.literals and not isinstance(value, Node):
            return self._fail(reasons.NO_NODE, place, value)
        map_arg(value, self._free.append)
        self._parts.append((value, -1, None))
        return rest

    def _literal(
        self, pattern: LiteralValue, value: Any, _inputs: Any, place: Any, rest: Any
    ) -> Any:
        if isinstance(value, Node) or not pattern.accepts(value):
            return self._fail(reasons.OTHER_LITERAL, place, value, pattern)
        self._parts.append((value, -1, None))
        return rest

    _RULES: ClassVar[dict[type, Callable[..., Any]]] = {
        Op: _op,
        Step: _step,
        AnyOf: _any_of,
        Where: _where,
        Capture: _capture,
        ListOf: _list,
        MatchAllNode: _wildcard,
        LiteralValue: _literal,
        _Absent: _absent,
        _Condition: _condition,
    }


def _operands(
    inputs: tuple[Pattern, ...],
    arguments: tuple[Any, ...],
    order: Sequence[int],
    node: Node,
    rest: Any,
) -> Any:
    """The goals that the arguments, taken in ``order``, are the inputs, the first input first."""
    for index in range(len(inputs) - 1, -1, -1):
        place = order[index]
        rest = (inputs[index], arguments[place], None, (node, place), rest)
    return rest


def _other_orders(arguments: tuple[Any, ...]) -> list[tuple[int, ...]]:
    """Every order of ``arguments`` but their own, by place, each once, the last one first."""
    orders: list[tuple[int, ...]] = []
    for order in itertools.permutations(range(len(arguments))):
        if not any(_are_alike(arguments, order, known) for known in orders):
            orders.append(order)
    return orders[:0:-1]


def _are_alike(arguments: tuple[Any, ...], order: tuple[int, ...], other: tuple[int, ...]) -> bool:
    return all(arguments[a] is arguments[b] for a, b in zip(order, other, strict=True))


def _names(pattern: Op) -> tuple[str, ...]:
    return tuple(name for name, _ in pattern.keywords)
