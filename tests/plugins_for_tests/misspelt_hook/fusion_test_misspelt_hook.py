"""Has a hook that pluggy alone would never call, and never mention."""

from torch import nn

from fusion_core.configs import BackendPatternConfig
from fusion_core.hookspecs import hookimpl


@hookimpl
def fusion_pattern_configs():
    return [BackendPatternConfig(nn.Linear)]


@hookimpl
def fusion_fuser_method():
    return {}
