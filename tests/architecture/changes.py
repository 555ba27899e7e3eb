"""What differs between two texts of the public interface, and whether it breaks who relies on it."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping

_LINE = re.compile(r"(?P<key>\S+ [^\s(=]*?)(?P<rest>(:? .*|[(=].*|))")
_CALLABLE = ("function", "method")


def changes(before: str, after: str) -> tuple[list[str], list[str]]:
    """Breaks and additions, one line each.

    What is gone or different is a break, unless a function only takes more arguments that may be
    left out. What is new is an addition, unless it is a thing that callers must now give.
    """
    old, new = _facts(before), _facts(after)
    breaks = [f"removed: {key}{each}" for key in old for each in old[key] if key not in new]
    additions: list[str] = []
    for key, rests in new.items():
        if key not in old:
            target = breaks if any(map(_is_demand, [key], rests)) else additions
            target.extend(f"new: {key}{rest}" for rest in rests)
        elif rests != old[key]:
            target = additions if _only_grown(key, old[key], rests) else breaks
            target.append(
                f"changed: {key}\n  from {' | '.join(old[key])}\n  to   {' | '.join(rests)}"
            )
    return breaks, additions


def _facts(text: str) -> Mapping[str, list[str]]:
    """What is said of each name; several things of an overloaded function."""
    facts: defaultdict[str, list[str]] = defaultdict(list)
    for line in text.splitlines():
        read = _LINE.fullmatch(line)
        if read is None:
            msg = f"not a line of the public interface: {line!r}"
            raise ValueError(msg)
        facts[read["key"]].append(read["rest"])
    return facts


def _is_demand(key: str, rest: str) -> bool:
    """Whether something new has to be given by those who managed without it."""
    kind = key.partition(" ")[0]
    return rest.endswith(" required") or (kind == "field" and "=" not in rest)


def _only_grown(key: str, old: list[str], new: list[str]) -> bool:
    if key == "api minor":
        return True
    if not key.startswith(_CALLABLE) or len(old) != 1 or len(new) != 1:
        return False
    (was, was_returned), (now, now_returned) = _parameters(old[0]), _parameters(new[0])
    kept = [each for each in now if each in was]
    added = [place for place, each in enumerate(now) if each not in was]
    # One that may be given by its place must come behind all that could be so far.
    last = max(
        (place for place, (kind, _) in enumerate(now) if (kind, _) in was and kind == "place"),
        default=-1,
    )
    return (
        was_returned == now_returned
        and kept == was
        and all(
            "=" in now[place][1] and (now[place][0] == "name" or place > last) for place in added
        )
    )


def _parameters(signature: str) -> tuple[list[tuple[str, str]], str]:
    """Kind and text of each parameter, and what is returned."""
    (function,) = ast.parse(f"def f{signature}: ...").body
    given, returns = function.args, function.returns
    listed = list(_by_place(given))
    listed += [
        ("name", _text(each, default))
        for each, default in zip(given.kwonlyargs, given.kw_defaults, strict=True)
    ]
    listed += [("rest", each.arg) for each in (given.vararg, given.kwarg) if each is not None]
    return listed, "" if returns is None else ast.unparse(returns)


def _by_place(given: ast.arguments) -> Iterator[tuple[str, str]]:
    places = [*given.posonlyargs, *given.args]
    defaults = [None] * (len(places) - len(given.defaults)) + given.defaults
    for each, default in zip(places, defaults, strict=True):
        yield "place", _text(each, default)


def _text(parameter: ast.arg, default: ast.expr | None) -> str:
    return ast.unparse(parameter) + ("" if default is None else f" = {ast.unparse(default)}")
