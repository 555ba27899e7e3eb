"""What is explained as paragraphs that rich draws: wrapped, indented, and nothing cut off."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from fusion_core.registry import PluginOrigin
from fusion_core.report.candidates import Candidate
from fusion_core.report.explained import NodeExplanation, StageExplanation

_FEW = 2
_SOME = 3
_STYLES = {"accepted": "green", "passed over": "yellow", "refused": "red"}


def heading(
    backend: str, plugins: Sequence[PluginOrigin], notes: Sequence[str]
) -> Iterator[RenderableType]:
    """The lines above everything else."""
    yield Text(f"Explained for {backend}", style="bold")
    yield Text(", ".join(map(str, plugins)))
    for note in notes:
        yield Text(note)


def node_in_short(node: NodeExplanation) -> Iterator[RenderableType]:
    """What becomes of an operation; where it is not quantized, the nearest misses too."""
    yield from _node(node)
    if node.is_quantized or node.has_no_use:
        return
    names = {stage.node for stage in node.stages}
    misses = sorted(_misses(node), key=lambda each: each.nearness, reverse=True)
    misses = misses or [each for stage in node.stages for each in stage.stopped]
    for each in misses[:_FEW]:
        where = "" if each.anchor in names else f", ending in {each.anchor}"
        yield _indented(4, f"nearest{where}: {each.pattern}")
        yield from _failure(each, 6)
    if len(misses) > _FEW:
        yield _indented(4, Text(f"and {len(misses) - _FEW} more", style="dim"))
    if not misses:
        for stage in node.stages[-1:]:
            yield from _hints(stage)


def node_in_full(node: NodeExplanation) -> Iterator[RenderableType]:
    """Everything about an operation."""
    yield from _node(node)
    if node.rule:
        yield _indented(2, f"qconfig mapping: {node.rule}")
    if node.overridden:
        yield _indented(4, ("over ", "dim"), "; ".join(node.overridden))
    for stage in node.stages:
        yield _indented(2, "")
        yield _indented(2, (stage.purpose, "bold"), _result(node.node, stage))
        for each in stage.candidates:
            yield from _candidate(each)
        yield from _hints(stage)
        if stage.pattern is None and stage.stopped:
            yield _indented(4, f"{stage.node} is what stopped these, which would end further on:")
            for each in stage.stopped:
                yield from _candidate(each)


def _node(node: NodeExplanation) -> Iterator[RenderableType]:
    place = f"{node.operation} in {node.path or 'the model'}"
    yield Text("")
    yield Text.assemble((node.node, "bold"), f"  {place}")
    yield _indented(2, (node.outcome, _style(node)))


def _style(node: NodeExplanation) -> str:
    if node.has_no_use:
        return "dim"
    return "green" if node.is_quantized else "red"


def _misses(node: NodeExplanation) -> list[Candidate]:
    return [each for each in node.candidates if each.outcome == "refused"]


def _result(name: str, stage: StageExplanation) -> str:
    alias = f" as {stage.node}" if stage.node != name else ""
    if stage.pattern is None:
        return f"{alias}: no pattern took it"
    others = [each for each in stage.members if each != name]
    together = f", together with {', '.join(others)}" if others else ""
    return f"{alias}: {stage.pattern} took it{together}"


def _candidate(candidate: Candidate) -> Iterator[RenderableType]:
    outcome = (f"{candidate.outcome:<13}", _STYLES[candidate.outcome])
    yield _indented(4, outcome, candidate.pattern)
    yield _indented(17, (f"{candidate.plugin}, priority {candidate.priority}", "dim"))
    if candidate.outcome != "accepted":
        yield from _failure(candidate, 17)


def _failure(candidate: Candidate, indent: int) -> Iterator[RenderableType]:
    refused = candidate.outcome == "refused"
    yield _indented(
        indent,
        why(candidate.stopped_at, candidate.reason),
        f" ({in_place(candidate.depth, candidate.operators)})" if refused else "",
    )
    if candidate.remedy:
        yield _indented(indent, ("to match: ", "dim"), candidate.remedy)


def why(stopped_at: str, reason: str) -> str:
    """The reason, with the operand or argument in front."""
    return f"{stopped_at}: {reason}" if stopped_at else reason


def in_place(depth: int, operators: int) -> str:
    """How much of a pattern is there."""
    if depth >= operators:
        return "all operators in place"
    return f"{depth} of {operators} operators in place"


def _hints(stage: StageExplanation) -> Iterator[RenderableType]:
    if stage.candidates or stage.pattern is not None:
        return
    yield _indented(4, f"no pattern for {stage.purpose} ends in this operator")
    if stage.elsewhere:
        listed, rest = stage.elsewhere[:_SOME], len(stage.elsewhere) - _SOME
        more = f"; and {rest} more" if rest > 0 else ""
        yield _indented(4, f"it stands elsewhere in {'; '.join(listed)}{more}")
    elif stage.near:
        yield _indented(4, f"operators of similar names that have one: {', '.join(stage.near)}")


def _indented(indent: int, *parts: Any) -> Padding:
    return Padding(Text.assemble(*parts), (0, 0, 0, indent))
