"""Graphs of a few lines, and patterns tried on them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from torch import fx, nn

from fusion_core.matcher import CallGraph, PatternIndex, match_at, scan
from fusion_core.patterns import normalize_nested


def _traced(forward, **modules):
    """The call graph of ``forward(self, ...)`` as the method of a module that holds ``modules``."""
    kind = type("Model", (nn.Module,), {"forward": forward})
    model = kind()
    for name, module in modules.items():
        model.add_module(name, module)
    traced = fx.symbolic_trace(model)
    return CallGraph(traced.graph, dict(traced.named_modules(remove_duplicate=False)))


def _last_call(calls):
    return next(node for node in reversed(calls.graph.nodes) if node.op.startswith("call_"))


def _names(node_pattern):
    if isinstance(node_pattern, tuple):
        return tuple(_names(each) for each in node_pattern)
    return getattr(node_pattern, "name", node_pattern)


@pytest.fixture
def graphs():
    """``traced(forward, **modules)`` and what to do with its graph."""

    def match(pattern, calls, node=None):
        return match_at(normalize_nested(pattern), node or _last_call(calls), calls, "entry")

    def sweep(calls, *patterns, accept=lambda _: None):
        index = PatternIndex((normalize_nested(each), place) for place, each in enumerate(patterns))
        return scan(calls, index, accept)

    return SimpleNamespace(
        traced=_traced,
        last_call=_last_call,
        site=lambda forward, **modules: _site(_traced(forward, **modules)),
        obstacle=_obstacle,
        match=match,
        sweep=sweep,
        names=_names,
    )


def _site(calls):
    return calls.site(_last_call(calls))


def _obstacle(forward, **modules):
    calls = _traced(forward, **modules)
    return calls.obstacle(_site(calls))
