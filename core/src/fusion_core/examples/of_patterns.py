"""``examples_of``: for each way to read a pattern, a small model in which it is found."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import GraphModule

from fusion_core.errors import NoExampleError, PredicateError
from fusion_core.examples import functions, modules
from fusion_core.examples.build import SHAPES, Builder
from fusion_core.examples.readings import is_module, operators_of, readings_of
from fusion_core.matcher import CallGraph, PatternIndex, scan
from fusion_core.passes.shapes import propagate
from fusion_core.patterns import Op, Operator, Pattern, Where, all_parts, render, with_parts

SETTINGS: tuple[dict[str, Any], ...] = (
    {"kernel_size": 1, "padding": 0},
    {"kernel_size": 5, "padding": 2},
    {"kernel_size": 7, "padding": 3},
    {"stride": 2},
    {"groups": 2},
    {"groups": 4},
    {"bias": False},
    {"dilation": 2, "padding": 2},
    {"padding_mode": "reflect"},
    {"out_channels": 16},
    {"out_features": 16},
    {"inplace": True},
    {"batch_first": True},
    {"bidirectional": True},
)
"""What is tried, besides the usual, for patterns with conditions of their own."""

_SEED = 7


@dataclass(frozen=True, eq=False)
class PatternExample:
    """A model in which a pattern is found once.

    Attributes:
        model: The model, in eval mode, float32; an FX graph module whose nodes know their shapes.
            Whoever asks for the example again gets the same one, so copy it before you change it.
        inputs: What it is called with.
        text: Which way of reading the pattern it shows.
        pattern: The pattern.
    """

    model: GraphModule
    inputs: tuple[Tensor, ...]
    text: str
    pattern: Pattern


def examples_of(pattern: Pattern, *, limit: int = 64) -> tuple[PatternExample, ...]:
    """Small models that a pattern matches: one for each alternative, optional step and kind of spelling.

    Each was matched before it is returned. Ways to read the pattern for which no model can be made
    are left out, as long as there is one for another.

    Args:
        pattern: The canonical pattern.
        limit: At most so many.

    Returns:
        The models; at least one.

    Raises:
        NoExampleError: None can be made; says what stands in the way.
    """
    found: list[PatternExample] = []
    problems: dict[str, None] = {}
    conditional = any(isinstance(each, Where) for each in all_parts(pattern))
    readings = dict.fromkeys(itertools.islice(readings_of(pattern), _MOST))
    for reading in readings:
        if len(found) == limit:
            break
        example = _example(pattern, reading, conditional=conditional)
        if isinstance(example, PatternExample):
            found.append(example)
        else:
            problems[example] = None
    if not found:
        raise NoExampleError(render(pattern), next(iter(problems)))
    return tuple(found)


@lru_cache(maxsize=4096)
def _example(pattern: Pattern, reading: Pattern, *, conditional: bool) -> PatternExample | str:
    """The example of one reading, or why there is none."""
    has_run, problem = False, ""
    try:
        for tried in _tries(reading, conditional=conditional):
            if tried.model is None:
                problem = problem or tried.problem
                continue
            has_run = True
            if count_matches(pattern, tried.model) == 1:
                return PatternExample(tried.model, tried.inputs, render(reading), pattern)
    except PredicateError as error:
        return str(error)
    if has_run:
        what = "its conditions refuse" if conditional else "it does not match"
        return f"{what} every model that was made for {render(reading)}"
    return _problem(reading, problem)


_MOST = 64
"""Ways to read a pattern that are tried."""


@dataclass(frozen=True)
class _Try:
    """A model that may be an example, or the error that came up when it was built."""

    model: GraphModule | None
    inputs: tuple[Tensor, ...]
    problem: str = ""


def _tries(reading: Pattern, *, conditional: bool) -> Iterator[_Try]:
    """Models of a reading, the usual ones first."""
    calls_only_modules = all(map(is_module, operators_of(reading)))
    choices = range(1 if calls_only_modules else functions.MOST_CHOICES + 1)
    runs: list[tuple[int, int]] = []
    for rank, fills in itertools.product(_ranks(reading), choices):
        tried = _built(reading, Builder(rank, fills, {}))
        yield tried
        if tried.model is not None:
            runs.append((rank, fills))
    # What ran only with other settings would be another way to call it; one that runs is enough.
    for settings in SETTINGS if conditional else ():
        for rank, fills in runs[:1]:
            yield _built(reading, Builder(rank, fills, settings))


def with_other_settings(pattern: Pattern) -> Iterator[tuple[str, GraphModule, tuple[Tensor, ...]]]:
    """Models of a pattern's operators with settings that its conditions may not hold for.

    Yields:
        The settings in words, the model and its inputs; nothing for a pattern without conditions.
    """
    if not any(
        isinstance(each, Where) or (isinstance(each, Op) and each.keywords)
        for each in all_parts(pattern)
    ):
        return
    reading = _without_constraints(next(readings_of(pattern)))
    for settings in SETTINGS:
        tries = (_built(reading, Builder(rank, 1, settings)) for rank in _ranks(reading))
        for tried in tries:
            if tried.model is not None:
                text = " and ".join(f"{name}={value!r}" for name, value in settings.items())
                yield f"it has {text}", tried.model, tried.inputs
                break


def _without_constraints(reading: Pattern) -> Pattern:
    if isinstance(reading, Op):
        reading = replace(reading, keywords=())
    return with_parts(reading, _without_constraints)


def _built(reading: Pattern, builder: Builder) -> _Try:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(_SEED)
        try:
            model = builder.model(reading)
            propagate(model, tuple(each.clone() for each in builder.inputs))
        except Exception as error:  # noqa: BLE001  whatever a call does not like about its arguments
            return _Try(None, (), f"{type(error).__name__}: {error}".splitlines()[0])
    return _Try(model, tuple(builder.inputs))


def count_matches(pattern: Pattern, model: GraphModule) -> int:
    """How often ``pattern`` is found in ``model``."""
    return len(scan(CallGraph.of(model), PatternIndex([(pattern, pattern)])).matches)


def _ranks(reading: Pattern) -> list[int]:
    """Numbers of dimensions that an input may have, the likeliest first."""
    asked = [_rank_of(each) for each in operators_of(reading)]
    known = [each for each in reversed(asked) if each is not None]
    return list(dict.fromkeys([*known, 4, 2, 3, *SHAPES]))


def _rank_of(operator: Operator) -> int | None:
    if is_module(operator):
        return modules.rank_of(operator.target)
    return functions.rank_of(operator)


def _problem(reading: Pattern, problem: str) -> str:
    """Why no model of a reading was built, where the first try met ``problem``."""
    custom = [
        each.target.__name__
        for each in operators_of(reading)
        if inspect.isclass(each.target)
        and issubclass(each.target, nn.Module)
        and not each.target.__module__.startswith(("torch.nn", "fusion_core."))
    ]
    if custom:
        return f"how to make a {custom[0]} is not known ({problem})"
    return f"no call of {render(reading)} was found that works ({problem})"
