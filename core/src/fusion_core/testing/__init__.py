"""The conformance kit for authors of backends; needs pytest, the extra ``fusion-core[testing]``.

In the tests of a backend::

    from fusion_core.testing import BackendConformance


    class TestAcme(BackendConformance):
        backend = "acme"

or without a file: ``pytest --fusion-backend acme``.
"""

from fusion_core.testing.conformance import BackendConformance
from fusion_core.testing.matrix import SupportMatrix, support_matrix
from fusion_core.testing.results import Cell, CheckResult, Support

__all__ = [
    "BackendConformance",
    "Cell",
    "CheckResult",
    "Support",
    "SupportMatrix",
    "support_matrix",
]
