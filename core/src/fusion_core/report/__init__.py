"""The ledger of a model for people and for programs, and the bytes its parameters take."""

from fusion_core.report.size import parameter_bytes
from fusion_core.report.summary import Report, report

__all__ = ["Report", "parameter_bytes", "report"]
