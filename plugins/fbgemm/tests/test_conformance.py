"""The backend does what it claims."""

from __future__ import annotations

from fusion_core.testing import BackendConformance


class TestFbgemm(BackendConformance):
    backend = "fbgemm"
