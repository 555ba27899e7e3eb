"""Every spelling of a pattern becomes the one canonical form.

Two tuple formats exist and are never guessed between. Sequential tuples list operators in data-flow
order, ``(Conv2d, BatchNorm2d, ReLU)``. Reverse nested tuples put the last operator first and its
inputs behind it, ``(ReLU, (add, MatchAllNode, (BatchNorm2d, Conv2d)))``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from fusion_core.errors import PatternError
from fusion_core.patterns.aliases import Operation, as_operator
from fusion_core.patterns.grammar import (
    Alternatives,
    AnyOf,
    FreeArguments,
    LiteralValue,
    MatchAllNode,
    Op,
    Operator,
    Pattern,
)

_CANONICAL = (Op, AnyOf, MatchAllNode, LiteralValue)


def normalize_sequential(pattern: object) -> Pattern:
    """The canonical form of a bare operator or of a tuple in data-flow order.

    Args:
        pattern: An operator, or a tuple of one or more operators. ``any_of`` may stand for an
            operator, and for the first it may list chains; ``MatchAllNode`` may stand for the
            first. A canonical pattern is returned unchanged.

    Returns:
        The canonical pattern; its outermost ``Op`` is the last element.

    Raises:
        PatternError: ``pattern`` is neither, names both formats at once, or has no operator.
    """
    return _checked(_sequential(pattern, pattern), pattern)


def normalize_nested(pattern: object) -> Pattern:
    """The canonical form of a reverse nested pattern.

    Args:
        pattern: An operator, or a tuple of an operator and the patterns of its arguments in order.
            A canonical pattern is returned unchanged.

    Returns:
        The canonical pattern; its outermost ``Op`` is the first element.

    Raises:
        PatternError: An element is not an operator, or a wildcard or literal is given inputs.
    """
    return _checked(_nested(pattern, pattern), pattern)


def _sequential(pattern: object, whole: object) -> Pattern:
    if isinstance(pattern, Alternatives):
        return _any_of(pattern, whole, _sequential)
    if not isinstance(pattern, tuple) or _is_getattr(pattern):
        return _leaf(pattern, whole)
    if not pattern:
        raise PatternError(whole, "the tuple is empty")
    first, *others = pattern
    is_chain = isinstance(first, Alternatives)
    chain = _sequential(first, whole) if is_chain else _leaf(first, whole)
    for element in others:
        chain = _with_inputs(_leaf(element, whole), (chain,), whole)
    return chain


def _nested(pattern: object, whole: object) -> Pattern:
    if isinstance(pattern, _CANONICAL):
        return pattern
    if isinstance(pattern, Alternatives):
        return _any_of(pattern, whole, _nested)
    if not isinstance(pattern, tuple) or _is_getattr(pattern):
        return _argument(pattern, whole)
    if not pattern:
        raise PatternError(whole, "a nested tuple is empty")
    is_open = pattern[-1] is Ellipsis
    inputs = tuple(_nested(argument, whole) for argument in pattern[1 : len(pattern) - is_open])
    head = _leaf(pattern[0], whole)
    return _with_inputs(head, inputs, whole, is_open=is_open) if inputs else head


def _argument(value: object, whole: object) -> Pattern:
    """A leaf in argument position, where a number or None is a literal."""
    if value is None or isinstance(value, (bool, int, float, complex)):
        return LiteralValue(value)
    return _leaf(value, whole)


def _leaf(value: Any, whole: object) -> Pattern:
    if isinstance(value, _CANONICAL):
        return value
    if isinstance(value, Alternatives):
        return _any_of(value, whole, _leaf)
    if isinstance(value, FreeArguments):
        return Op(_operator(value.operator, whole), open=True)
    if isinstance(value, type) and issubclass(value, MatchAllNode):
        return MatchAllNode()
    if _is_getattr(value):
        return Op(Operator("getattr", value[1]))
    return Op(_operator(value, whole))


def _operator(value: Any, whole: object) -> Operator:
    if isinstance(value, Operation):
        return Operator("operation", value.name)
    if isinstance(value, tuple):
        raise PatternError(
            whole,
            f"{value!r} stands where an operator must; a sequential pattern is a flat tuple, give a nested "
            "one as complex_pattern",
        )
    if value is getattr:
        raise PatternError(whole, "getattr needs the attribute's name: (getattr, 'name')")
    if isinstance(value, str):
        if not value.isidentifier():
            raise PatternError(whole, f"{value!r} is not a method name")
        return Operator("method", value)
    if isinstance(value, type) and not issubclass(value, nn.Module):
        raise PatternError(whole, f"class {value.__name__} is not a torch.nn.Module")
    if isinstance(value, nn.Module):
        raise PatternError(whole, f"it names an instance; write its type {type(value).__name__}")
    if not callable(value):
        raise PatternError(
            whole, f"{value!r} is neither a module type, a function nor a method name"
        )
    return as_operator(value)


def _is_getattr(value: object) -> bool:
    if not isinstance(value, tuple) or value[:1] != (getattr,):
        return False
    return [type(each) for each in value[1:]] == [str]


def _any_of(
    value: Alternatives, whole: object, each: Callable[[object, object], Pattern]
) -> Pattern:
    if not value.choices:
        raise PatternError(whole, "any_of needs at least one alternative")
    choices: list[Pattern] = []
    for choice in value.choices:
        normal = each(choice, whole)
        choices.extend(normal.choices if isinstance(normal, AnyOf) else (normal,))
    distinct = tuple(dict.fromkeys(choices))
    return distinct[0] if len(distinct) == 1 else AnyOf(distinct)


def _with_inputs(
    head: Pattern, inputs: tuple[Pattern, ...], whole: object, *, is_open: bool = False
) -> Pattern:
    if isinstance(head, AnyOf):
        return AnyOf(
            tuple(_with_inputs(choice, inputs, whole, is_open=is_open) for choice in head.choices)
        )
    if not isinstance(head, Op):
        raise PatternError(whole, f"{head} cannot have inputs")
    if head.operator.kind == "getattr":
        raise PatternError(whole, f"{head.operator} reads an attribute and cannot be given inputs")
    if head.inputs is not None:
        raise PatternError(whole, "an operator already has inputs and cannot be given others")
    return Op(head.operator, inputs, is_open or head.open)


def _checked(pattern: Pattern, whole: object) -> Pattern:
    """Refuse what could never anchor a match: a wildcard or a literal as the outermost element."""
    choices = pattern.choices if isinstance(pattern, AnyOf) else (pattern,)
    for choice in choices:
        if not isinstance(choice, Op):
            raise PatternError(
                whole, "the last operator to run is a wildcard or a literal, so nothing anchors it"
            )
    return pattern
