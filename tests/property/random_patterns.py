"""Random patterns that match somewhere in a random graph more often than not."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st
from torch import fx, nn

from fusion_core.configs import Skip
from fusion_core.errors import PatternError
from fusion_core.patterns import (
    AnyOf,
    Capture,
    ListOf,
    LiteralValue,
    MatchAllNode,
    Op,
    Operator,
    Step,
    Where,
    normalize_nested,
)

from .random_graphs import SPELLINGS, random_graph

DEEPEST = 4
STRANGE = tuple(Op(each) for spelling in SPELLINGS for each in spelling.operators)


def has_an_even_name(node, _module):
    return len(str(node)) % 2 == 0


def calls_a_module(_node, module):
    return module is not None


def has_a_short_name(node, _module):
    return len(str(node)) < 8 or Skip("its name is long")


PREDICATES = (has_an_even_name, calls_a_module, has_a_short_name)


def any_of(*choices):
    """Alternatives in canonical form: flat, each once."""
    flat = [each for one in choices for each in (one.choices if isinstance(one, AnyOf) else (one,))]
    distinct = tuple(dict.fromkeys(flat))
    return distinct[0] if len(distinct) == 1 else AnyOf(distinct)


@dataclass
class Author:
    """Writes patterns of the values of a graph."""

    chance: random.Random
    made: Any
    captured: dict[fx.Node, str] = field(default_factory=dict)
    names: int = 0

    def one_in(self, count):
        return self.chance.randrange(count) == 0

    def one_of(self, values):
        return self.chance.choice(values)

    def mixed(self, values):
        return tuple(self.chance.sample(values, len(values)))

    def near(self, value, depth):
        """A pattern that matches ``value`` more often than not."""
        if not isinstance(value, fx.Node):
            return self.constant(value, depth)
        if value in self.captured and not self.one_in(6):
            return Capture(self.captured[value], MatchAllNode())
        pattern = self.node(value, depth)
        return pattern if depth == 0 else self.decorated(pattern, value, depth)

    def constant(self, value, depth):
        wildcards = [MatchAllNode(literals=True), MatchAllNode()]
        if isinstance(value, (list, tuple)):
            if self.one_in(4):
                return self.one_of([*wildcards, wildcards[0]])
            count = len(value) - (len(value) > 1 and self.one_in(3))
            items = tuple(self.near(each, depth - 1) for each in value[:count])
            return ListOf(items, open=self.one_in(3) or count < len(value))
        return self.one_of(
            [*[LiteralValue(value), wildcards[0]] * 5, LiteralValue(2), wildcards[1]]
        )

    def node(self, value, depth):
        call = self.made.truth.get(value)
        if call is None or depth <= 0 or (depth < DEEPEST and self.one_in(9)):
            return MatchAllNode()
        if self.one_in(12):  # a step that is missing here
            return Step((self.one_of(STRANGE),), (self.near(value, depth - 1),), optional=True)
        head = self.head(value, call)
        most = len(call.arguments)
        count = self.one_of([*[most] * 7, max(most - 1, 1), 0])
        inputs = tuple(self.near(each, depth - 1) for each in call.arguments[:count])
        if not inputs or call.operators[0].kind == "getattr":
            return head
        return self.applied(head, inputs, value)

    def head(self, value, call):
        """The operator of a call, without inputs."""
        head = self.one_of(STRANGE) if self.one_in(20) else Op(self.one_of(call.operators))
        keywords = {} if not self.one_in(5) else dict([self.keyword(value, call)])
        for name in call.modifiers:
            if not self.one_in(5):
                keywords[name] = self.constraint(call.modifiers[name])
        ordered = tuple(sorted(keywords.items()))
        return Op(head.operator, None, open=self.one_in(3), keywords=ordered)

    def keyword(self, value, call):
        kept = [name for name, each in call.named.items() if not isinstance(each, (list, fx.Node))]
        kept += ["groups"] if isinstance(self.made.module(value), nn.Conv2d) else []
        kept += ["start_dim"] if isinstance(self.made.module(value), nn.Flatten) else []
        name = self.one_of([*kept * 6, *call.names[:1], "nonesuch"])
        return name, self.constraint(*(self.made.attribute(value, name) or [7]))

    def constraint(self, value):
        if isinstance(value, (fx.Node, list)):
            return self.one_of(
                [*[MatchAllNode(), MatchAllNode(literals=True)] * 3, LiteralValue(1)]
            )
        exact = LiteralValue(value)
        either = AnyOf((LiteralValue(7), exact))
        return self.one_of([*[exact, either, MatchAllNode(literals=True)] * 2, LiteralValue(2)])

    def applied(self, head, inputs, value):
        """An operator on its inputs, in one of the forms of the grammar."""
        form = self.one_of(["op", "op", "op", "any_order", "step", "step"])
        if form == "any_order" and len(inputs) > 1:
            mixed = self.mixed(inputs)
            return Op(head.operator, mixed, head.open, head.keywords, any_order=True)
        if form != "step":
            return Op(head.operator, inputs, head.open, head.keywords)
        heads = [head, *self.chance.choices(STRANGE, k=self.chance.randrange(3))]
        if self.one_in(4):
            heads[0] = self.where(head, value)
        if self.one_in(4):
            heads[0] = Capture(self.fresh_name(), heads[0])
        heads = tuple(dict.fromkeys(self.mixed(heads)))
        return Step(heads, inputs, optional=len(inputs) == 1 and self.one_in(2))

    def where(self, pattern, value):
        """A condition that holds, most of the time."""
        true = [each for each in PREDICATES if each(value, self.made.module(value)) is True]
        return Where(pattern, self.one_of([*true * 5, *PREDICATES]), "a condition")

    def decorated(self, pattern, value, depth):
        """``pattern`` under a condition, among others, with a name; or as it is."""
        if self.one_in(12):
            pattern = self.where(pattern, value)
        if self.one_in(5):
            other = self.near(self.one_of([value, *self.made.values]), depth - 1)
            pattern = any_of(*self.mixed([pattern, other]))
        is_shared = len(value.users) > 1 or any(
            sum(each is value for each in node.args) > 1 for node in value.users
        )
        if self.chance.random() < (0.7 if is_shared else 0.1):
            self.captured[value] = self.fresh_name()
            pattern = Capture(self.captured[value], pattern)
        return pattern

    def fresh_name(self):
        self.names += 1
        return f"name{self.names}"


def sound(pattern):
    """The pattern as the matcher gets it, or None for one that nothing anchors or names twice."""
    try:
        return normalize_nested(pattern)
    except PatternError:
        return None


SIZES = st.sampled_from(range(1, 12))
SEEDS = st.binary(min_size=6, max_size=6)
"""A whole example comes of a few bytes, so that large ones are as cheap and as likely as small ones."""


@st.composite
def graphs_with_patterns(draw, *, most=4):
    """A random graph, and patterns near some of its nodes."""
    count = draw(SIZES)
    chance = random.Random(draw(SEEDS))  # noqa: S311  nothing secret
    made = random_graph(chance, count)
    calls = [each for each in made.values if each in made.truth]
    anchors = chance.choices([*calls, *calls[-2:] * 5], k=chance.randint(1, most))
    patterns = [sound(Author(chance, made).near(anchor, DEEPEST)) for anchor in anchors]
    return made, [each for each in patterns if each is not None]


def legacy_near(chance, made, value, depth):
    """A pattern of operators, wildcards and constants in tuples, as PyTorch has them."""
    if not isinstance(value, fx.Node):
        return LiteralValue(chance.choice([value, value, 2]))
    call = made.truth.get(value)
    if call is None or depth == 0 or (depth < DEEPEST and chance.randrange(7) == 0):
        return MatchAllNode()
    head = call.operators[0]
    if chance.randrange(15) == 0:
        head = chance.choice([Operator("module", nn.Conv2d), Operator("method", "relu")])
    most = len(call.arguments)
    count = chance.choice([most, most, most, max(most - 1, 1), 0])
    if "getattr" in {head.kind, call.operators[0].kind} or count == 0:
        return Op(head)
    return Op(head, tuple(legacy_near(chance, made, x, depth - 1) for x in call.arguments[:count]))


@st.composite
def legacy_graphs_with_patterns(draw):
    count = draw(SIZES)
    chance = random.Random(draw(SEEDS))  # noqa: S311  nothing secret
    made = random_graph(chance, count, legacy=True)
    anchors = chance.choices(made.values[1:], k=chance.randint(1, 5))
    return made, [legacy_near(chance, made, anchor, DEEPEST) for anchor in anchors]
