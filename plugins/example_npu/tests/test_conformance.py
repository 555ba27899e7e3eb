from __future__ import annotations

from fusion_core.testing import BackendConformance


class TestExampleNpu(BackendConformance):
    backend = "example_npu"
