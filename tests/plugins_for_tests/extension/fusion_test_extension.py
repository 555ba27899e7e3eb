"""Adds a pattern to the backend `good`, and replaces nothing."""

from torch import nn

from fusion_core.configs import BackendPatternConfig
from fusion_core.hookspecs import hookimpl


@hookimpl
def fusion_pattern_configs():
    return [BackendPatternConfig(nn.Conv2d)]
