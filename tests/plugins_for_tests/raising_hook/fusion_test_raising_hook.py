"""Has a hook that raises."""

from fusion_core.hookspecs import hookimpl


@hookimpl
def fusion_pattern_configs():
    return {}["conv"]
