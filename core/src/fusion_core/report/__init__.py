"""The ledger of a model, why its patterns match or do not, and the bytes its parameters take."""

from fusion_core.report.candidates import Candidate
from fusion_core.report.coverage import BackendCoverage, Coverage, coverage
from fusion_core.report.description import BackendDescription, describe
from fusion_core.report.diagnosis import Diagnosis, PluginDiagnosis
from fusion_core.report.doctor import doctor
from fusion_core.report.explain import explain
from fusion_core.report.explained import NodeExplanation, StageExplanation
from fusion_core.report.explanation import Explanation
from fusion_core.report.findings import Finding
from fusion_core.report.lint import Lint, lint
from fusion_core.report.matches import Matches, Miss, match
from fusion_core.report.size import parameter_bytes
from fusion_core.report.summary import Report, report

__all__ = [
    "BackendCoverage",
    "BackendDescription",
    "Candidate",
    "Coverage",
    "Diagnosis",
    "Explanation",
    "Finding",
    "Lint",
    "Matches",
    "Miss",
    "NodeExplanation",
    "PluginDiagnosis",
    "Report",
    "StageExplanation",
    "coverage",
    "describe",
    "doctor",
    "explain",
    "lint",
    "match",
    "parameter_bytes",
    "report",
]
