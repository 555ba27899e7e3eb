"""Returns a pattern where a config is expected."""

from torch import nn

from fusion_core.configs import BackendPatternConfig
from fusion_core.hookspecs import hookimpl


@hookimpl
def fusion_pattern_configs():
    return [BackendPatternConfig(nn.Linear), (nn.Conv2d, nn.ReLU)]
