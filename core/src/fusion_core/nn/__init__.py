"""The modules that stand in prepared and quantized graphs."""

from fusion_core.nn import fused, reference
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
    "FixedQParamsObserver",
    "HistogramObserver",
    "MinMaxObserver",
    "MovingAverageMinMaxObserver",
    "MovingAveragePerChannelMinMaxObserver",
    "Observer",
    "PerChannelMinMaxObserver",
    "PlaceholderObserver",
    "fused",
    "reference",
]
