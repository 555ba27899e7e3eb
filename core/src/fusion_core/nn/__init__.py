"""The modules that stand in prepared and quantized graphs."""

from fusion_core.nn import fused, qat, reference
from fusion_core.nn.fake_quantize import FakeQuantize
from fusion_core.nn.histogram import HistogramObserver
from fusion_core.nn.observers import (
    FixedQParamsObserver,
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
    Observer,
    PerChannelMinMaxObserver,
    PlaceholderObserver,
)

__all__ = [
    "FakeQuantize",
    "FixedQParamsObserver",
    "HistogramObserver",
    "MinMaxObserver",
    "MovingAverageMinMaxObserver",
    "MovingAveragePerChannelMinMaxObserver",
    "Observer",
    "PerChannelMinMaxObserver",
    "PlaceholderObserver",
    "fused",
    "qat",
    "reference",
]
