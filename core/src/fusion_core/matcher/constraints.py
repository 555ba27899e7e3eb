"""Whether an argument given by name is what a pattern asks for."""

from __future__ import annotations

from typing import Any

from torch.fx import Node

from fusion_core.matcher.calls import MISSING
from fusion_core.patterns import AnyOf, LiteralValue, MatchAllNode, Pattern


def holds(wanted: Pattern, actual: Any) -> bool:
    """Whether ``actual`` is ``wanted``; one number stands for as many alike, as torch lets it."""
    if isinstance(wanted, AnyOf):
        return any(holds(each, actual) for each in wanted.choices)
    if isinstance(wanted, MatchAllNode):
        return actual is not MISSING and (wanted.literals or isinstance(actual, Node))
    return isinstance(wanted, LiteralValue) and _is(wanted.value, actual)


def _is(wanted: Any, actual: Any) -> bool:
    wanted_list, actual_list = isinstance(wanted, (tuple, list)), isinstance(actual, (tuple, list))
    if wanted_list and actual_list:
        return len(wanted) == len(actual) and all(map(_is, wanted, actual))
    if actual_list:
        return bool(actual) and all(_is(wanted, each) for each in actual)
    if wanted_list:
        return bool(wanted) and all(_is(each, actual) for each in wanted)
    return not isinstance(actual, Node) and LiteralValue(wanted).accepts(actual)


def collapsed(value: Any) -> Any:
    """One value for all that :func:`holds` takes as the same: ``(3, 3)`` becomes 3."""
    if isinstance(value, (tuple, list)):
        items = tuple(map(collapsed, value))
        alike = bool(items) and all(_is(items[0], each) for each in items)
        return items[0] if alike else items
    return value
