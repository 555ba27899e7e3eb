"""Finding patterns in graphs. The matcher knows no backend: an index holds any value for a pattern."""

from fusion_core.matcher.calls import MISSING, CallGraph, CallSite
from fusion_core.matcher.index import PatternIndex
from fusion_core.matcher.result import Match, NodePattern, NoMatch
from fusion_core.matcher.scan import Scan, nearest_miss, scan
from fusion_core.matcher.solve import match_at, matches_at

__all__ = [
    "MISSING",
    "CallGraph",
    "CallSite",
    "Match",
    "NoMatch",
    "NodePattern",
    "PatternIndex",
    "Scan",
    "match_at",
    "matches_at",
    "nearest_miss",
    "scan",
]
