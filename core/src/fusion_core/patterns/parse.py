"""A pattern from its text, the inverse of :func:`fusion_core.patterns.render`.

::

    chain     := step ("->" step)*
    step      := ("$" name ":")* atom arguments* "?"?
    atom      := name | "." method | "getattr(" attribute ")" | "$" name | "*" | "*literal" | literal
               | "[" chain, ... "]" | "(" chain ")" | "any_of(" chain, ... ")"
               | "any_order(" operator, chain, ... ")" | "where(" chain, predicate, reason ")"
    arguments := "(" chain, ..., "...", keyword "=" chain, ... ")"

A bare name is an operation of the alias table, else a class of torch.nn; a name with dots is what
can be imported by it. What all this means is not decided here: the text is turned into what an
author would write in Python, and read as that.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NoReturn

import torch
from torch import nn

from fusion_core.errors import PatternError
from fusion_core.patterns.aliases import SPELLINGS, Operation
from fusion_core.patterns.authoring import Expression
from fusion_core.patterns.grammar import (
    AnyOf,
    ListOf,
    LiteralValue,
    MatchAllNode,
    Op,
    Operator,
    Pattern,
)
from fusion_core.patterns.naming import FORMS, NAMESPACES, object_named
from fusion_core.patterns.normalize import Reading
from fusion_core.patterns.soundness import sound
from fusion_core.patterns.tokens import Token, brackets, constant, fault, split

_CONSTANTS: Mapping[str, object] = MappingProxyType(
    {"None": None, "True": True, "False": False, "Ellipsis": Ellipsis}
)
_VALUES = (torch.dtype, torch.memory_format, torch.layout, torch.qscheme)
_SPELLED_OTHERWISE: Mapping[str, str] = MappingProxyType(
    {
        "any_arguments": "write ... among the operator's arguments",
        "call": "write the operator with its arguments in parentheses behind it",
        "capture": "write $name, or $name: before a step",
        "chain": "write the steps with -> between them",
        "list_of": "write the items in square brackets",
        "literal": "write the constant alone",
        "optional": "write a question mark behind the step",
        "MatchAllNode": "write *, or *literal to take constants too",
    }
)


def parse(text: str) -> Pattern:
    """The canonical pattern that ``text`` stands for.

    ::

        parse("Conv2d -> BatchNorm2d? -> relu")
        parse("add(*, Conv2d -> BatchNorm2d) -> any_of(ReLU, ReLU6)")
        parse("mul($x, torch.sigmoid($x))")

    Args:
        text: What ``render`` writes: steps in data-flow order with arrows between them, nested
            calls, or a mixture. Names are those of operations (``relu``) and of classes in torch.nn
            (``Conv2d``); all others have dots (``functional.relu``, ``aten.add.Tensor``,
            ``acme.nn.Block``). Constants are written as in Python.

    Raises:
        PatternError: The text cannot be read, a name in it is not known, or it stands for no valid
            pattern; says where.
    """
    if not isinstance(text, str):
        raise PatternError(text, "the text of a pattern is a string")
    return sound(_Text(text).pattern, text)


@dataclass
class _Content:
    """What stands in a pair of brackets.

    Attributes:
        items: The patterns.
        dots: ``(...,)`` if three dots stand behind them, else nothing.
        keywords: The patterns given by name.
        is_tuple: Whether there is a comma or nothing at all.
    """

    items: list[Pattern] = field(default_factory=list)
    dots: tuple[Any, ...] = ()
    keywords: dict[str, Pattern] = field(default_factory=dict)
    is_tuple: bool = True


@dataclass(frozen=True)
class _Reading(Reading):
    """Reads what stands at one place of a text; errors point there.

    Attributes:
        at: The place.
    """

    at: int

    def error(self, problem: str) -> PatternError:
        return fault(str(self.whole), self.at, problem)


class _Text:
    """One text being read, innermost brackets first."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.contents: dict[int, _Content] = {}

    def pattern(self) -> Pattern:
        *inner, whole = brackets(self.text)
        for bracket in inner:
            self.contents[bracket.at] = self.content(bracket)
        for token in whole.inside:
            if token.kind in {",", "="}:
                self.fail(token.at, f"{token.text!r} stands in brackets only")
        return self.chain(whole.inside, whole.end)

    def content(self, bracket: Token) -> _Content:
        parts = list(split(bracket.inside, ",", bracket.end))
        content = _Content(is_tuple=len(parts) > 1 or not bracket.inside)
        if not parts[-1][0]:  # nothing at all, or a comma behind the last item
            parts.pop()
        for part, end in parts:
            if [each.kind for each in part] == ["dots"] and not (content.dots or content.keywords):
                content.dots = (...,)
            elif [each.kind for each in part[1:2]] == ["="]:
                self.add_keyword(content, part, end)
            elif content.dots or content.keywords:
                self.fail(
                    part[0].at if part else end, "'...' and keywords come last, in this order"
                )
            else:
                content.items.append(self.chain(part, end))
        return content

    def add_keyword(self, content: _Content, part: tuple[Token, ...], end: int) -> None:
        name = part[0].text
        if part[0].kind == "string":
            name = str(constant(name))
        elif part[0].kind != "name" or "." in name:
            self.fail(part[0].at, f"{name!r} is not a keyword")
        if name in content.keywords:
            self.fail(part[0].at, f"{name} is given twice")
        content.keywords[name] = self.chain(part[2:], end)

    def chain(self, tokens: tuple[Token, ...], end: int) -> Pattern:
        """The pattern of ``tokens``, behind which comes the place ``end``."""
        (first, stop), *others = split(tokens, "arrow", end)
        chain = self.step(first, stop)
        for part, stop in others:
            step = self.step(part, stop)
            chain = self.reading(part[0].at).applied(step, (chain,))
        return chain

    def step(self, tokens: tuple[Token, ...], end: int) -> Pattern:
        """One step: names before it, what it is, arguments, a question mark."""
        names: list[Token] = []
        while len(tokens) > 1 and tokens[0].kind == "capture" and tokens[1].kind == ":":
            names.append(tokens[0])
            tokens = tokens[2:]
        if not tokens:
            self.fail(end, "an operator is missing here")
        is_optional = len(tokens) > 1 and tokens[-1].kind == "?"
        first, *others = tokens[: len(tokens) - is_optional]
        if first.text in FORMS and [each.kind for each in others[:1]] == ["("]:
            step = self.form(first, others.pop(0))
        else:
            step = self.atom(first)
        for each in others:
            if each.kind != "(":
                self.fail(each.at, f"'->' or a comma is missing before {each.text!r}")
            step = self.applied(step, each)
        for name in reversed(names):
            step = self.captured(name, step)
        expression = Expression("optional", (step,))
        return self.reading(first.at).optional(expression) if is_optional else step

    def atom(self, token: Token) -> Pattern:
        read = _ATOMS.get(token.kind)
        if read is None:
            self.fail(token.at, f"an operator is missing before {token.text!r}")
        return read(self, token)

    def named(self, token: Token) -> Pattern:
        """What a name stands for: a constant, an operation, or an object that can be imported."""
        name, found = token.text, None
        if name in _CONSTANTS:
            return LiteralValue(_CONSTANTS[name])
        if name in FORMS:
            self.fail(token.at, f"{name} is written with its arguments in parentheses")
        if name in SPELLINGS:
            return self.reading(token.at).leaf(Operation(name))
        if name in _SPELLED_OTHERWISE:
            self.fail(token.at, f"{name}: {_SPELLED_OTHERWISE[name]}")
        try:
            found = object_named(name)
        except LookupError as error:
            self.fail(token.at, f"{error.args[0]}{_near(name)}")
        if isinstance(found, _VALUES):
            return LiteralValue(found)
        if not callable(found) and not isinstance(found, Operation):
            self.fail(token.at, f"{name} is a {type(found).__name__} and not an operator")
        return self.reading(token.at).leaf(found)

    def bracket(self, token: Token) -> Pattern:
        """A list, a tuple of constants, or a chain in parentheses."""
        content = self.contents[token.at]
        if content.keywords or (content.dots and token.kind == "("):
            self.fail(token.at, "keywords and '...' need an operator before the parentheses")
        if token.kind == "[":
            return self.reading(token.at).list_of((*content.items, *content.dots))
        if not content.is_tuple:
            return content.items[0]
        values = _values(content.items)
        if len(values) != len(content.items):
            self.fail(token.at, "a tuple holds constants; for alternatives write any_of(...)")
        return LiteralValue(values)

    def form(self, name: Token, arguments: Token) -> Pattern:
        """``any_of``, ``any_order`` or ``where``."""
        content, reading = self.contents[arguments.at], self.reading(name.at)
        items = content.items
        if content.keywords or (content.dots and name.text != "any_order"):
            self.fail(name.at, f"{name.text} takes no keywords and no '...'")
        if name.text == "any_of":
            return reading.any_of(Expression("any_of", tuple(items)))
        if name.text == "where":
            return reading.where(Expression("where", self.condition(name, items)))
        if not items:
            self.fail(name.at, "any_order takes an operator and its operands")
        if content.dots:
            items[0] = reading.call(Expression("call", (items[0], ...)))
        return reading.any_order(Expression("any_order", tuple(items)))

    def condition(self, name: Token, items: list[Pattern]) -> tuple[Pattern, Any, str]:
        """What ``where`` is given: a pattern, a function and, if need be, words."""
        match [*items, LiteralValue("")][: max(len(items), 3)]:
            case [
                pattern,
                Op(Operator("function" | "module", predicate), None, False, ()),
                LiteralValue(str(reason)),
            ]:
                return pattern, predicate, reason
        problem = (
            "where takes a pattern, the name with dots of a predicate, and the reason in quotes"
        )
        return self.fail(name.at, problem)

    def applied(self, head: Pattern, arguments: Token) -> Pattern:
        """``head`` with what stands in the parentheses behind it."""
        content, reading = self.contents[arguments.at], self.reading(arguments.at)
        if not (content.items or content.dots or content.keywords):
            self.fail(arguments.at, "there is nothing in the parentheses; leave them out")
        if content.items and not content.keywords:
            return reading.applied(head, tuple(content.items), is_open=bool(content.dots))
        if not isinstance(head, Op) or head.keywords:
            self.fail(arguments.at, "keywords and '...' need an operator before the parentheses")
        options = sorted((key, _constraint(value)) for key, value in content.keywords.items())
        parts = (head, *content.items, *content.dots)
        return reading.call(Expression("call", parts, tuple(options)))

    def literal(self, token: Token) -> Pattern:
        return LiteralValue(constant(token.text))

    def attribute(self, token: Token) -> Pattern:
        name = constant(token.text) if token.text[0] in "'\"" else token.text
        return self.reading(token.at).leaf((getattr, name))

    def captured(self, name: Token, pattern: Pattern) -> Pattern:
        return self.reading(name.at).capture(Expression("capture", (name.text[1:], pattern)))

    def reading(self, at: int) -> _Reading:
        return _Reading(self.text, nested=False, at=at)

    def fail(self, at: int, problem: str) -> NoReturn:
        raise fault(self.text, at, problem)


_ATOMS: Mapping[str, Callable[[_Text, Token], Pattern]] = MappingProxyType(
    {
        "name": _Text.named,
        "(": _Text.bracket,
        "[": _Text.bracket,
        "number": _Text.literal,
        "string": _Text.literal,
        "attribute": _Text.attribute,
        "capture": lambda text, token: text.captured(token, MatchAllNode()),
        "method": lambda text, token: text.reading(token.at).leaf(token.text[1:]),
        "wildcard": lambda _text, token: MatchAllNode(literals=token.text != "*"),
    }
)


def _values(items: Sequence[Pattern]) -> tuple[Any, ...]:
    return tuple(each.value for each in items if isinstance(each, LiteralValue))


def _constraint(value: Pattern) -> object:
    """What an author would give by keyword."""
    if isinstance(value, AnyOf):
        return Expression("any_of", tuple(map(_constraint, value.choices)))
    if (
        isinstance(value, ListOf)
        and not value.open
        and len(_values([*value.items])) == len(value.items)
    ):
        return _values([*value.items])
    return value


def _near(name: str) -> str:
    """Names that may have been meant, for a message."""
    room, _, last = name.rpartition(".")
    if room:
        namespace = NAMESPACES.get(room, sys.modules.get(room))
        found = difflib.get_close_matches(last, [] if namespace is None else dir(namespace))
        near = [f"{room}.{each}" for each in found]
    else:
        known = [*SPELLINGS, *(each for each in dir(nn) if isinstance(getattr(nn, each), type))]
        functions = [f"{room}.{name}" for room, value in NAMESPACES.items() if hasattr(value, name)]
        alike = [each for each in known if each.lower() == name.lower()]
        near = list(dict.fromkeys([*functions, *alike, *difflib.get_close_matches(name, known)]))
    return f"; near names are {', '.join(near)}" if near else ""
