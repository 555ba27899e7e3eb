"""The passes: trace, fuse, prepare, calibrate, convert, lower; each returns a model of its own."""

from fusion_core.passes.arguments import ExampleInputs
from fusion_core.passes.calibrate import calibrate
from fusion_core.passes.convert import convert
from fusion_core.passes.fuse import fuse
from fusion_core.passes.interface import Interface, Port, interface
from fusion_core.passes.lower import lower
from fusion_core.passes.prepare import prepare
from fusion_core.passes.record import PassRecord, Stage, record_of
from fusion_core.passes.refine import refine
from fusion_core.passes.trace import trace

__all__ = [
    "ExampleInputs",
    "Interface",
    "PassRecord",
    "Port",
    "Stage",
    "calibrate",
    "convert",
    "fuse",
    "interface",
    "lower",
    "prepare",
    "record_of",
    "refine",
    "trace",
]
