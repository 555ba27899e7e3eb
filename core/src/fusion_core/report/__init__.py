"""The ledger of a model, why its patterns match or do not, and the bytes its parameters take."""

from fusion_core.report.candidates import Candidate
from fusion_core.report.explain import explain
from fusion_core.report.explained import NodeExplanation, StageExplanation
from fusion_core.report.explanation import Explanation
from fusion_core.report.matches import Matches, Miss, match
from fusion_core.report.size import parameter_bytes
from fusion_core.report.summary import Report, report

__all__ = [
    "Candidate",
    "Explanation",
    "Matches",
    "Miss",
    "NodeExplanation",
    "Report",
    "StageExplanation",
    "explain",
    "match",
    "parameter_bytes",
    "report",
]
