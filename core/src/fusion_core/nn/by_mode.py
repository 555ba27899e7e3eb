"""Functions that are given other constants in training than in eval mode, as modules that follow the mode."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from torch import nn
from torch.fx.node import map_aggregate

Arguments: TypeAlias = tuple[tuple[Any, ...], Mapping[str, Any]]
"""Positional and keyword arguments, with an :class:`Operand` for each value that is computed."""


@dataclass(frozen=True, slots=True)
class Operand:
    """Stands in the arguments of a function for a value that is given with each call.

    Attributes:
        index: Which of the values.
    """

    index: int


class ByMode(nn.Module):
    """A call of a function whose constants are others in training, as in ``p if self.training else 0``.

    Attributes:
        function: What is called.
    """

    def __init__(
        self, function: Callable[..., Any], evaluating: Arguments, training: Arguments
    ) -> None:
        """Of a function, and what it is called with in each mode."""
        super().__init__()
        self.function = function
        self._arguments = {False: evaluating, True: training}

    def forward(self, *operands: Any) -> Any:
        """The function on ``operands`` and the constants of the present mode."""

        def given(value: Any) -> Any:
            return operands[value.index] if isinstance(value, Operand) else value

        args, kwargs = self._arguments[self.training]
        placed: Any = map_aggregate(args, given)
        named: Any = map_aggregate(dict(kwargs), given)
        return self.function(*placed, **named)

    def extra_repr(self) -> str:
        """The function's name."""
        return getattr(self.function, "__name__", repr(self.function))


class OnlyInTraining(ByMode):
    """A call that gives its operand itself in eval mode, as stochastic depth does."""
