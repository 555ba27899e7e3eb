"""qnnpack against the conformance kit."""

from fusion_core.testing import BackendConformance


class TestQnnpack(BackendConformance):
    """The kit of fusion-core, whole."""

    backend = "qnnpack"
