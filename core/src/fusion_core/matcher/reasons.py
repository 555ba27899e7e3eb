"""The ways in which a pattern can fail at a node: what is said, and what would make it match."""

from __future__ import annotations

from typing import NamedTuple


class Why(NamedTuple):
    """A kind of failure.

    Attributes:
        sentence: Format string of the reason.
        remedy: Format string, with the same values, of what to do so that the pattern matches.
    """

    sentence: str
    remedy: str


OTHER_OPERATOR = Why(
    "{} is not {}", "have {1} in this place of the model, or a pattern for what stands there"
)
ALSO_USED = Why(
    "{} is also used by {}",
    "let nobody outside the match read {0}: compute it a second time for {1}",
)
FREE_AND_CLAIMED = Why(
    "{} stands for an operator and is an operand left free at once",
    "give the two places one name with capture if they are meant to be the same value",
)
TWO_PLACES = Why(
    "{} stands in two places",
    "give the two places one name with capture if they are meant to be the same value",
)
OBSTACLE = Why("{}", "remove that before the model is traced")
TOO_FEW = Why(
    "{} has {} arguments, not {}", "write the pattern with as many operands as the call has"
)
SURPLUS = Why(
    "{} has {}, which no place of the pattern names",
    "call {0} without {1}, or name the argument in the pattern: call(..., {1})",
)
OTHER_ARGUMENT = Why("{0} has {1}; {2} must be {3}", "call {0} with {2}={3}")
CONDITION = Why(
    "{} does not fulfil the condition: {}",
    "change {0} so that the condition holds, or relax the condition of the pattern",
)
OTHER_CAPTURE = Why(
    "{} is not {}, which stands for {}", "have {1} in this place too, or give it another name"
)
NO_LIST = Why("{} is not a list", "pass a list in this place")
OTHER_LENGTH = Why(
    "the list has {} items, not {}",
    "pass a list of {1} items, or let the pattern's list end in ...",
)
NO_NODE = Why(
    "the wildcard stands for a value of the graph, not {!r}",
    "write MatchAllNode(literals=True) in this place, if a constant is as good",
)
OTHER_LITERAL = Why("{!r} is not {}", "pass the constant {1} in this place")
