"""Finding patterns in graphs. The matcher knows no backend: an index holds any value for a pattern."""

from fusion_core.matcher.calls import CallGraph, CallSite
from fusion_core.matcher.index import PatternIndex
from fusion_core.matcher.match import match_at
from fusion_core.matcher.result import Match, NodePattern, NoMatch
from fusion_core.matcher.scan import Scan, nearest_miss, scan

__all__ = [
    "CallGraph",
    "CallSite",
    "Match",
    "NoMatch",
    "NodePattern",
    "PatternIndex",
    "Scan",
    "match_at",
    "nearest_miss",
    "scan",
]
