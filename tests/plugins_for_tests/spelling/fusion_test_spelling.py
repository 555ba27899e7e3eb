"""Spells its name as people do."""

from torch import nn

from fusion_core.configs import BackendPatternConfig
from fusion_core.hookspecs import hookimpl


@hookimpl
def fusion_pattern_configs():
    return [BackendPatternConfig(nn.Linear)]
