"""What a lowering rule is, and what fuser methods and lowering rules may answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import ConfigDict
from torch import nn

from fusion_core.configs.names import Function, called_with
from fusion_core.configs.pattern_model import PatternModel
from fusion_core.errors import PatternError
from fusion_core.patterns import render


@dataclass(frozen=True, slots=True)
class Skip:
    """The answer "not this one": a fuser method or lowering rule returns it to leave a match as it is.

    Attributes:
        reason: Why, in words for the report; names what would have to be different.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class Replacement:
    """What a lowering rule puts in the place of its match.

    Attributes:
        target: A module, which becomes part of the model, a function, or the name of a method.
        inputs: Positional arguments of the call: graph nodes or constants.
        options: Keyword arguments of the call.
    """

    target: nn.Module | Callable[..., Any] | str
    inputs: tuple[Any, ...]
    options: dict[str, Any] = field(default_factory=dict)


class LoweringRule(PatternModel):
    """How one pattern of a reference graph becomes a kernel.

    Attributes:
        pattern: An operator, or a tuple of operators in data-flow order.
        complex_pattern: Instead of ``pattern``, one in reverse nested form.
        lower: Called ``lower(node_pattern, modules)``, where ``node_pattern`` mirrors the nested
            pattern with graph nodes in the place of operators and ``modules`` maps paths to
            modules; returns a :class:`Replacement` or a :class:`Skip`.
        name: For reports; default is the rendered pattern.
        priority: Higher goes first among rules that could match the same node.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    lower: Annotated[Function, called_with("the node pattern", "the modules by path")]
    name: str = ""
    priority: int = 0

    def model_post_init(self, _context: object) -> None:
        """Refuse a rule without exactly one valid pattern."""
        if (self.pattern is None) == (self.complex_pattern is None):
            raise PatternError(
                self.pattern, "a lowering rule has either pattern or complex_pattern"
            )
        _ = self.normal_pattern

    @property
    def label(self) -> str:
        """The rule's name, or its rendered pattern."""
        return self.name or render(self.normal_pattern)
