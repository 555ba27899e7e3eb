"""The words and brackets of a pattern's text."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from fusion_core.errors import PatternError

_NAME = r"[A-Za-z_\x80-\U0010ffff][0-9A-Za-z_\x80-\U0010ffff]*"
_REAL = r"(?:(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|inf|nan)"
_STRING = r"""'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*\""""
_TOKEN = re.compile(
    rf"""
      (?P<arrow>->)
    | (?P<dots>\.\.\.)
    | (?P<number>[-+]?{_REAL}j?(?!\w) | \([-+]?{_REAL}[-+]{_REAL}j\))
    | (?P<string>{_STRING})
    | getattr\s*\(\s*(?P<attribute>{_NAME}|{_STRING})\s*\)
    | (?P<name>{_NAME}(?:\.{_NAME})*)
    | (?P<method>\.{_NAME})
    | (?P<capture>\${_NAME})
    | (?P<wildcard>\*literal(?!\w)|\*)
    | (?P<symbol>[()\[\],=?:])
    """,
    re.VERBOSE,
)
_BLANK = re.compile(r"\s*")
_CLOSED_BY = {"(": ")", "[": "]"}


@dataclass(frozen=True)
class Token:
    """A word of the text, or a whole bracket with what is in it.

    Attributes:
        kind: ``name``, ``number``, ``arrow``, ...; of a symbol or bracket the character itself.
        text: As written.
        at: Where it starts in the text.
        inside: What a bracket holds.
        end: The bracket that closes it; the place where something is missing.
    """

    kind: str
    text: str
    at: int
    inside: tuple[Token, ...] = ()
    end: int = 0


def brackets(text: str) -> Iterator[Token]:
    """Every bracket of ``text`` in the order in which they close, then the text as a whole.

    A bracket within another is one token in it. So that who reads them in this order has always
    read what is inside, whatever the depth.

    Raises:
        PatternError: A character means nothing, or brackets do not pair.
    """
    opened = [Token("text", "", 0)]
    levels: list[list[Token]] = [[]]
    for token in _tokens(text):
        if token.kind in _CLOSED_BY:
            opened.append(token)
            levels.append([])
        elif token.kind in _CLOSED_BY.values():
            opener = opened.pop()
            if _CLOSED_BY.get(opener.kind) != token.kind:
                raise fault(text, token.at, f"{token.text!r} closes nothing")
            bracket = replace(opener, inside=tuple(levels.pop()), end=token.at)
            yield bracket
            levels[-1].append(bracket)
        else:
            levels[-1].append(token)
    whole = opened.pop()
    if opened:
        raise fault(text, whole.at, f"{whole.text!r} is never closed")
    yield replace(whole, inside=tuple(levels.pop()), end=len(text.rstrip()))


def split(
    tokens: tuple[Token, ...], kind: str, end: int
) -> Iterator[tuple[tuple[Token, ...], int]]:
    """What stands between tokens of ``kind``, one part at least, each with where it ends."""
    start = 0
    for index, token in enumerate(tokens):
        if token.kind == kind:
            yield tokens[start:index], token.at
            start = index + 1
    yield tokens[start:], end


def constant(text: str) -> object:
    """The value of a number or a quoted string."""
    if text[0] in "'\"":
        return ast.literal_eval(text)
    if text[-1] in "j)":
        return complex(text)
    return int(text) if text.lstrip("+-").isdigit() else float(text)


def fault(text: str, at: int, problem: str) -> PatternError:
    """The error that says what is wrong, and shows where."""
    start = text.rfind("\n", 0, at) + 1
    line = f"line {text.count(chr(10), 0, at) + 1}, " if "\n" in text else ""
    shown = text[start:].partition("\n")[0].replace("\t", " ")
    where = f"{line}column {at - start + 1}"
    return PatternError(text, f"{where}: {problem}\n    {shown}\n    {' ' * (at - start)}^")


def _tokens(text: str) -> Iterator[Token]:
    at = _after_blanks(text, 0)
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise fault(text, at, f"{text[at]!r} means nothing here")
        kind = str(found.lastgroup)
        word = found[kind]
        yield Token(word if kind == "symbol" else kind, word, at)
        at = _after_blanks(text, found.end())


def _after_blanks(text: str, at: int) -> int:
    found = _BLANK.match(text, at)
    return at if found is None else found.end()
