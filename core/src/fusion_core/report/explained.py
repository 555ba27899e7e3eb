"""What becomes of one operation: plain values, for people, programs and the text that is made of them."""

from __future__ import annotations

from dataclasses import dataclass

from fusion_core.report.candidates import Candidate


@dataclass(frozen=True, slots=True)
class StageExplanation:
    """What one of the passes makes of an operation.

    Attributes:
        purpose: What the patterns are looked for: ``"fusing"``, ``"quantizing"``, ``"lowering"``.
        node: The node that was looked at, by its name in the graph of that pass.
        pattern: The pattern that took the node; None if none did.
        members: Names of the operations that this pattern took together.
        candidates: The patterns that end in the node's operator: those that match in order of
            preference, then those that do not, the nearest miss first.
        stopped: Candidates further on in the graph that this node stopped.
        elsewhere: Patterns that have the node's operator, but do not end in it.
        near: Operators of a similar name that patterns do end in, where none has this one.
    """

    purpose: str
    node: str
    pattern: str | None
    members: tuple[str, ...]
    candidates: tuple[Candidate, ...]
    stopped: tuple[Candidate, ...]
    elsewhere: tuple[str, ...]
    near: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NodeExplanation:
    """What becomes of one operation of the traced model, and why.

    Attributes:
        node: Name of its node in the traced graph.
        operation: What it does, for example ``Conv2d``.
        path: Module it is called in, or is; empty for the model itself.
        outcome: What becomes of it, as a sentence.
        is_quantized: Whether it is quantized.
        has_no_use: Whether there is nothing to quantize: it gives no tensor, or is removed.
        rule: Rule of the qconfig mapping that speaks of it, in words; empty where that was not
            asked.
        stages: What each pass makes of it.
        overridden: Rules that speak of it, too, and are less specific; the first comes next.
    """

    node: str
    operation: str
    path: str
    outcome: str
    is_quantized: bool
    has_no_use: bool
    rule: str
    stages: tuple[StageExplanation, ...]
    overridden: tuple[str, ...] = ()

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """The candidates of all passes."""
        return tuple(each for stage in self.stages for each in stage.candidates)
