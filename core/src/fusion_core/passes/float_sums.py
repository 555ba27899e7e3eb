"""Which sums stay in float because what reads them does: residual streams in front of a norm, masked scores."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

from torch.fx import Node

from fusion_core.configs import GLOBAL, ObservationType, QConfig, Skip
from fusion_core.matcher import CallGraph, Match
from fusion_core.patterns import Operator
from fusion_core.registry import PatternEntry

# A norm over features makes the small ones large again, and softmax the differences of the few that
# a mask leaves: both read what is lost when one step of codes has to do for all values of a sum.
_SENSITIVE: Final = {
    name: Operator("operation", name) for name in ("layer_norm", "rms_norm", "softmax")
}
_SUMS: Final = frozenset(Operator("operation", name) for name in ("add", "sub"))
_SHARED: Final = ObservationType.OUTPUT_SHARE_OBSERVER_WITH_INPUT

Resolve: TypeAlias = Callable[[Match[PatternEntry]], tuple[QConfig | None, str]]
"""The qconfig of a match, None for float, and the name of the rule it comes from."""


def float_sums(
    by_anchor: Mapping[Node, Match[PatternEntry]], calls: CallGraph, resolve: Resolve
) -> dict[Node, Skip]:
    """The sums that stay in float, by their node, each with the reason.

    Args:
        by_anchor: Every match by its anchor.
        calls: The graph.
        resolve: What the qconfig mapping says. A sum that a rule of its own speaks of is none of
            those.
    """
    found: dict[Node, Skip] = {}
    for anchor, match in by_anchor.items():
        if len(match.nodes) > 1 or not _is_any(_SUMS, anchor, calls):
            continue
        qconfig, rule = resolve(match)
        if qconfig is None or rule != GLOBAL:
            continue
        reader = next(_sensitive_readers(anchor, by_anchor, calls, resolve), None)
        if reader is not None:
            found[anchor] = Skip(
                f"{reader} reads it in float, and one step for all its values would lose the small ones"
            )
    return found


def _sensitive_readers(
    value: Node,
    by_anchor: Mapping[Node, Match[PatternEntry]],
    calls: CallGraph,
    resolve: Resolve,
) -> Iterator[str]:
    """Names of the sensitive operations in float that read ``value``, also behind what only moves values."""
    waiting, seen = [value], {value}
    while waiting:
        for reader in waiting.pop().users:
            match = by_anchor.get(reader)
            name = next((n for n, each in _SENSITIVE.items() if _is_any({each}, reader, calls)), "")
            if name and (match is None or resolve(match)[0] is None):
                yield name
            if _moves(match) and reader not in seen:
                seen.add(reader)
                waiting.append(reader)


def _moves(match: Match[PatternEntry] | None) -> bool:
    return match is not None and match.entry.config.observation_type is _SHARED


def _is_any(operators: Any, node: Node, calls: CallGraph) -> bool:
    site = calls.site(node)
    return site is not None and any(each in operators for each in site.operators)
