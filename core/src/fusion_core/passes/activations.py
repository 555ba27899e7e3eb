"""The module that does what a functional activation does, for fuser methods, which take modules."""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.fx import Node

from fusion_core.matcher import CallSite

_CLAMPS = frozenset({"clamp", "clamp_min", "clamp_max"})


def activation_module(site: CallSite) -> nn.Module | None:
    """A module equal to the call, or None where the call is no activation with constant arguments."""
    operation = next((each.target for each in site.operators if each.kind == "operation"), None)
    bound = site.bound()
    if operation == "relu":
        return nn.ReLU()
    if operation == "relu6":
        return nn.ReLU6()
    if operation == "hardtanh":
        return _hardtanh(bound.get("min_val", -1.0), bound.get("max_val", 1.0))
    if operation in _CLAMPS:
        return _clamp(bound.get("min"), bound.get("max"))
    return None


def _clamp(low: Any, high: Any) -> nn.Module | None:
    if high is None and not isinstance(low, Node) and low is not None and low == 0:
        return nn.ReLU()
    return _hardtanh(low, high)


def _hardtanh(low: Any, high: Any) -> nn.Module | None:
    if (
        any(isinstance(each, bool) or not isinstance(each, (int, float)) for each in (low, high))
        or low >= high
    ):
        return None
    return nn.Hardtanh(float(low), float(high))
