"""Has a hook that expects an argument."""

from fusion_core.configs import BackendPatternConfig
from fusion_core.hookspecs import hookimpl


@hookimpl
def fusion_pattern_configs(model):
    return [BackendPatternConfig(model)]
