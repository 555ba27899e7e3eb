"""A pattern as text: ``Conv2d -> BatchNorm2d -> ReLU``, ``ReLU(operator.add(*, Conv2d))``."""

from __future__ import annotations

from fusion_core.patterns.grammar import AnyOf, Op, Pattern


def render(pattern: Pattern) -> str:
    """The shortest faithful text of ``pattern``.

    Chains are written in data-flow order with arrows, anything else as nested calls.
    """
    chain = _as_chain(pattern)
    if chain is not None:
        return " -> ".join(chain)
    return _as_call(pattern)


def _as_chain(pattern: Pattern) -> list[str] | None:
    """Names in data-flow order where every operator but the first has exactly one input."""
    names: list[str] = []
    while isinstance(pattern, Op) and pattern.inputs is not None:
        if len(pattern.inputs) != 1 or pattern.open:
            return None
        names.append(str(pattern.operator))
        pattern = pattern.inputs[0]
    if isinstance(pattern, AnyOf):
        if any(isinstance(choice, Op) and choice.inputs for choice in pattern.choices):
            return None
        names.append(_as_call(pattern))
    else:
        names.append(str(pattern.operator) if isinstance(pattern, Op) else str(pattern))
    return names[::-1]


def _as_call(pattern: Pattern) -> str:
    if isinstance(pattern, AnyOf):
        return f"any_of({', '.join(render(choice) for choice in pattern.choices)})"
    if not isinstance(pattern, Op):
        return str(pattern)
    if pattern.inputs is None:
        return str(pattern.operator)
    inputs = [_as_call(each) for each in pattern.inputs]
    return f"{pattern.operator}({', '.join([*inputs, '...'] if pattern.open else inputs)})"
