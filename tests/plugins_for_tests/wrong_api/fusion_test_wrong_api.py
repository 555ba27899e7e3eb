"""Speaks a plugin interface that no core has."""

from fusion_core.configs import BackendInfo
from fusion_core.hookspecs import hookimpl


@hookimpl
def fusion_backend_info():
    return BackendInfo(api="~=99.0")


@hookimpl
def fusion_hook_of_a_later_core():
    return None
