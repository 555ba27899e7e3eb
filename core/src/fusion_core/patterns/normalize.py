"""Every spelling of a pattern becomes the one canonical form.

Two tuple formats exist and are never guessed between. Sequential tuples list operators in data-flow
order, ``(Conv2d, BatchNorm2d, ReLU)``. Reverse nested tuples put the last operator first and its
inputs behind it, ``(ReLU, (add, MatchAllNode, (BatchNorm2d, Conv2d)))``. A tuple within an
expression is read in the format of the whole.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from fusion_core.errors import PatternError
from fusion_core.patterns.aliases import Operation, as_operator
from fusion_core.patterns.authoring import Expression
from fusion_core.patterns.commutative import order_matters
from fusion_core.patterns.grammar import (
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
from fusion_core.patterns.naming import function_name
from fusion_core.patterns.soundness import sound

_CANONICAL = (Op, Step, AnyOf, Where, Capture, ListOf, MatchAllNode, LiteralValue)
_CONSTANTS = (bool, int, float, complex, torch.dtype, torch.memory_format)
_FEWEST_OPERANDS, _MOST_OPERANDS = 2, 4


def normalize_sequential(pattern: object) -> Pattern:
    """The canonical form of a bare operator or of a tuple in data-flow order.

    Args:
        pattern: An operator, or a tuple of one or more operators. ``any_of``, ``optional`` and the
            like may stand for an operator; the first element may be any pattern. A canonical
            pattern is returned unchanged.

    Returns:
        The canonical pattern; its outermost ``Op`` is the last element.

    Raises:
        PatternError: ``pattern`` is neither, names both formats at once, or has no operator.
    """
    return Reading(pattern, nested=False).result()


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
    return Reading(pattern, nested=True).result()


@dataclass(frozen=True)
class Reading:
    """One pattern being read.

    Attributes:
        whole: The pattern as its author wrote it, for messages.
        nested: Whether tuples are reverse nested.
    """

    whole: object
    nested: bool

    def result(self) -> Pattern:
        """The canonical form of the whole, checked."""
        return sound(lambda: self.pattern(self.whole), self.whole)

    def pattern(self, value: Any) -> Pattern:
        """A value in a place where a whole pattern may stand."""
        if not isinstance(value, tuple) or _is_getattr(value):
            return self.leaf(value)
        if not value:
            raise PatternError(self.whole, "a tuple is empty")
        return self.reversed(value) if self.nested else self.chain(value)

    def chain(self, elements: tuple[Any, ...]) -> Pattern:
        """Elements in data-flow order, each the input of the next."""
        if not elements:
            raise self.error("a chain is empty")
        first, *others = elements
        chain = self.step(first)
        for element in others:
            chain = self.applied(self.step(element), (chain,))
        return chain

    def reversed(self, value: tuple[Any, ...]) -> Pattern:
        """A reverse nested tuple."""
        head, is_open = self.step(value[0]), value[-1] is Ellipsis
        inputs = tuple(map(self.argument, value[1 : len(value) - is_open]))
        return self.applied(head, inputs, is_open=is_open) if inputs else head

    def step(self, value: Any) -> Pattern:
        """A value in a place where an operator must stand."""
        if isinstance(value, tuple) and not _is_getattr(value):
            raise self.error(
                f"{value!r} stands where an operator must; a sequential pattern is a flat tuple, give a nested "
                "one as complex_pattern"
            )
        return self.leaf(value)

    def argument(self, value: Any) -> Pattern:
        """A pattern in argument position, where a number or None is a literal."""
        if value is None or isinstance(value, _CONSTANTS):
            return LiteralValue(value)
        return self.pattern(value)

    def leaf(self, value: Any) -> Pattern:
        """Anything but a tuple."""
        if isinstance(value, _CANONICAL):
            return value
        if isinstance(value, Expression):
            return _FORMS[value.form](self, value)
        if isinstance(value, list):
            return self.list_of(value)
        if isinstance(value, type) and issubclass(value, MatchAllNode):
            return MatchAllNode()
        if _is_getattr(value):
            return Op(Operator("getattr", value[1]))
        return Op(self.operator(value))

    def operator(self, value: Any) -> Operator:
        """A value that is neither tuple nor expression."""
        problem = None
        if isinstance(value, Operation):
            return Operator("operation", value.name)
        if value is getattr:
            problem = "getattr needs the attribute's name: (getattr, 'name')"
        elif isinstance(value, str):
            problem = None if value.isidentifier() else f"{value!r} is not a method name"
        elif isinstance(value, nn.Module):
            problem = f"it names an instance; write its type {type(value).__name__}"
        elif isinstance(value, type) and not issubclass(value, nn.Module):
            problem = f"class {value.__name__} is not a torch.nn.Module"
        elif not callable(value):
            problem = f"{value!r} is neither a module type, a function nor a method name"
        if problem is not None:
            raise self.error(problem)
        return as_operator(value)

    def any_of(self, value: Expression) -> Pattern:
        """Alternatives, flat and each but once."""
        if not value.parts:
            raise self.error("any_of needs at least one alternative")
        choices: list[Pattern] = []
        for part in value.parts:
            choice = self.argument(part)
            if isinstance(choice, Step) and choice.optional and not choice.inputs:
                raise self.error("any_of has an optional alternative; write optional(any_of(...))")
            choices.extend(choice.choices if isinstance(choice, AnyOf) else (choice,))
        distinct = tuple(dict.fromkeys(choices))
        return distinct[0] if len(distinct) == 1 else AnyOf(distinct)

    def optional(self, value: Expression) -> Pattern:
        """A step that may be missing; it has no input yet."""
        head = self.step(value.parts[0])
        heads = head.choices if isinstance(head, AnyOf) else (head,)
        if not all(map(_is_head, heads)):
            raise self.error("optional takes an operator, or any_of several, without inputs")
        return Step(heads, (), optional=True)

    def any_order(self, value: Expression) -> Pattern:
        """An operator and operands that may change places."""
        head, *inputs = value.parts
        if not _FEWEST_OPERANDS <= len(inputs) <= _MOST_OPERANDS:
            raise self.error(f"any_order takes two to four operands, not {len(inputs)}")
        applied = self.applied(self.step(head), tuple(map(self.argument, inputs)))
        return self.commuted(applied)

    def commuted(self, pattern: Pattern) -> Pattern:
        """``pattern`` with the operands of its outermost operator in any order."""
        if isinstance(pattern, Step) and not pattern.optional:
            return AnyOf(
                tuple(self.commuted(self.applied(h, pattern.inputs)) for h in pattern.heads)
            )
        if isinstance(pattern, (Where, Capture)):
            return replace(pattern, pattern=self.commuted(pattern.pattern))
        if not isinstance(pattern, Op):
            raise self.error("any_order takes an operator and its operands")
        problem = order_matters(pattern)
        if problem is not None:
            raise self.error(problem)
        return replace(pattern, any_order=True)

    def where(self, value: Expression) -> Pattern:
        """A pattern with a condition."""
        pattern, predicate, reason = value.parts
        if not callable(predicate):
            raise self.error(f"where takes a predicate(node, module), not {predicate!r}")
        return Where(
            self.decorated(pattern, "where"), predicate, reason or function_name(predicate)
        )

    def capture(self, value: Expression) -> Pattern:
        """A pattern with a name."""
        name, pattern = value.parts
        if not isinstance(name, str) or not name.isidentifier():
            raise self.error(f"capture takes an identifier as its name, not {name!r}")
        return Capture(name, self.decorated(pattern, "capture"))

    def decorated(self, value: Any, form: str) -> Pattern:
        """The pattern that a condition or name is put on."""
        pattern = self.argument(value)
        if isinstance(pattern, Step) and pattern.optional and not pattern.inputs:
            raise self.error(f"{form} around optional; write optional({form}(...))")
        return pattern

    def call(self, value: Expression) -> Pattern:
        """An operator with constraints by name."""
        head, *inputs = value.parts
        is_open = bool(inputs) and inputs[-1] is Ellipsis
        pattern = self.step(head)
        if not isinstance(pattern, Op):
            raise self.error(f"call takes an operator first, not {head!r}")
        keywords = dict(pattern.keywords)
        for name, each in value.options:
            wanted = self.constraint(name, each)
            if keywords.setdefault(name, wanted) != wanted:
                raise self.error(f"call is given {name} twice, as two different values")
        both = tuple(sorted(keywords.items(), key=lambda item: item[0]))
        pattern = replace(pattern, keywords=both, open=is_open or pattern.open)
        operands = tuple(map(self.argument, inputs[: len(inputs) - is_open]))
        return self.applied(pattern, operands, is_open=is_open) if operands else pattern

    def constraint(self, name: str, value: Any) -> Pattern:
        """What the argument ``name`` must be."""
        if isinstance(value, Expression) and value.form == "any_of":
            choices = tuple(self.constraint(name, each) for each in value.parts)
            return self.any_of(replace(value, parts=choices))
        if isinstance(value, (MatchAllNode, LiteralValue)):
            return value
        if isinstance(value, type) and issubclass(value, MatchAllNode):
            return MatchAllNode()
        if isinstance(value, (tuple, list)):
            return LiteralValue(tuple(value))
        if value is None or isinstance(value, (str, *_CONSTANTS)):
            return LiteralValue(value)
        raise self.error(
            f"{name}={value!r}: an argument by name is constrained to a constant, to any_of several, or to "
            "MatchAllNode; name an operand by its position"
        )

    def list_of(self, items: Any) -> Pattern:
        """A list argument, item by item."""
        is_open = bool(items) and items[-1] is Ellipsis
        return ListOf(tuple(map(self.argument, items[: len(items) - is_open])), is_open)

    def applied(
        self, head: Pattern, inputs: tuple[Pattern, ...], *, is_open: bool = False
    ) -> Pattern:
        """``head`` with ``inputs``."""
        if isinstance(head, AnyOf):
            if all(map(_is_head, head.choices)):
                return Step(tuple(map(_opened, head.choices)) if is_open else head.choices, inputs)
            return AnyOf(
                tuple(self.applied(each, inputs, is_open=is_open) for each in head.choices)
            )
        if isinstance(head, Step) and not head.inputs:
            if len(inputs) != 1 or is_open:
                raise self.error(
                    "an optional step has exactly one input, which stands in its place"
                )
            return replace(head, inputs=inputs)
        if isinstance(head, (Where, Capture)):
            return replace(head, pattern=self.applied(head.pattern, inputs, is_open=is_open))
        if not isinstance(head, Op):
            raise self.error(f"{_shown(head)} cannot have inputs")
        if head.operator.kind == "getattr":
            raise self.error(f"{head.operator} reads an attribute and cannot be given inputs")
        if head.inputs is not None:
            raise self.error("an operator already has inputs and cannot be given others")
        return replace(head, inputs=inputs, open=is_open or head.open)

    def error(self, problem: str) -> PatternError:
        """The error that says the pattern has ``problem``."""
        return PatternError(self.whole, problem)


_FORMS: dict[str, Callable[[Reading, Expression], Pattern]] = {
    "any_of": Reading.any_of,
    "any_order": Reading.any_order,
    "call": Reading.call,
    "capture": Reading.capture,
    "chain": lambda reading, value: reading.chain(value.parts),
    "list_of": lambda reading, value: reading.list_of(value.parts),
    "optional": Reading.optional,
    "where": Reading.where,
}


def _is_getattr(value: object) -> bool:
    if not isinstance(value, tuple) or value[:1] != (getattr,):
        return False
    return [type(each) for each in value[1:]] == [str]


def _is_head(pattern: Pattern) -> bool:
    """Whether ``pattern`` is an operator without inputs, under conditions and names or not."""
    while isinstance(pattern, (Where, Capture)):
        pattern = pattern.pattern
    return isinstance(pattern, Op) and pattern.inputs is None


def _opened(head: Pattern) -> Pattern:
    """``head`` with its further arguments free."""
    if isinstance(head, (Where, Capture)):
        return replace(head, pattern=_opened(head.pattern))
    return replace(head, open=True) if isinstance(head, Op) else head


def _shown(pattern: Pattern) -> str:
    return str(pattern) if isinstance(pattern, (MatchAllNode, LiteralValue)) else "any_of patterns"
