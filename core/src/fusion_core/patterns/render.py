"""A pattern as text: ``Conv2d -> BatchNorm2d -> any_of(relu, clamp(...))``, ``ReLU(add(*, Conv2d))``."""

from __future__ import annotations

from fusion_core.patterns.grammar import AnyOf, Op, Pattern


def render(pattern: Pattern) -> str:
    """The shortest faithful text of ``pattern``.

    Chains are written in data-flow order with arrows, anything else as nested calls. An operator
    whose further arguments are free is followed by ``(...)``.
    """
    chain = _as_chain(pattern)
    return _as_call(pattern) if chain is None else " -> ".join(chain)


def _as_chain(pattern: Pattern) -> list[str] | None:
    """Names in data-flow order where every operator but the first has exactly one input."""
    names: list[str] = []
    while (link := _last_link(pattern)) is not None:
        name, pattern = link
        names.append(name)
    if isinstance(pattern, Op) and pattern.inputs is not None:
        return None
    if isinstance(pattern, AnyOf) and not all(map(_is_bare, pattern.choices)):
        return None
    names.append(_as_call(pattern))
    return names[::-1]


def _last_link(pattern: Pattern) -> tuple[str, Pattern] | None:
    """The last operator of a chain, or its alternatives, and what comes before."""
    choices = pattern.choices if isinstance(pattern, AnyOf) else (pattern,)
    names: list[str] = []
    before: Pattern | None = None
    for choice in choices:
        if not isinstance(choice, Op) or choice.inputs is None or len(choice.inputs) != 1:
            return None
        if before is not None and choice.inputs[0] != before:
            return None
        before = choice.inputs[0]
        names.append(f"{choice.operator}(...)" if choice.open else str(choice.operator))
    if before is None:
        return None
    return names[0] if len(names) == 1 else f"any_of({', '.join(names)})", before


def _is_bare(pattern: Pattern) -> bool:
    return isinstance(pattern, Op) and pattern.inputs is None


def _as_call(pattern: Pattern) -> str:
    if isinstance(pattern, AnyOf):
        return f"any_of({', '.join(render(choice) for choice in pattern.choices)})"
    if not isinstance(pattern, Op):
        return str(pattern)
    if pattern.inputs is None:
        return str(pattern.operator)
    inputs = [_as_call(each) for each in pattern.inputs]
    return f"{pattern.operator}({', '.join([*inputs, '...'] if pattern.open else inputs)})"
