"""Has a name that cannot be one."""

from torch import nn

from fusion_core.configs import BackendPatternConfig
from fusion_core.hookspecs import hookimpl


@hookimpl
def fusion_pattern_configs():
    return [BackendPatternConfig(nn.Linear)]
