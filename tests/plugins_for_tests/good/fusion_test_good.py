"""A plugin with nothing wrong: others must not keep it from working."""

from torch import nn

from fusion_core.configs import BackendPatternConfig
from fusion_core.hookspecs import hookimpl


@hookimpl
def fusion_pattern_configs():
    return [BackendPatternConfig((nn.Linear, nn.ReLU), fuser_method=fuse)]


def fuse(is_qat, linear, relu):  # noqa: ARG001
    return nn.Sequential(linear, relu)
