"""One sweep of our matcher against PyTorch's, on a chain with many patterns that cannot match there."""

from __future__ import annotations

import warnings
from typing import Any

from timing import compare
from torch import fx, nn

from fusion_core.matcher import CallGraph, PatternIndex, scan
from fusion_core.patterns import normalize_sequential


def _graph(blocks: int) -> fx.GraphModule:
    layers = [
        layer for _ in range(blocks) for layer in (nn.Conv2d(2, 2, 1), nn.BatchNorm2d(2), nn.ReLU())
    ]
    return fx.symbolic_trace(nn.Sequential(*layers).eval())


def _patterns(count: int) -> list[tuple[type[nn.Module], ...]]:
    """conv-bn-relu, and others that end in ReLU as well but begin with a type of their own."""
    others = [(type(f"Layer{i}", (nn.Module,), {}), nn.ReLU) for i in range(count - 1)]
    return [(nn.Conv2d, nn.BatchNorm2d, nn.ReLU), *others]


def run() -> list[dict[str, Any]]:
    """One row per number of patterns; the ratio is theirs / ours."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.ao.quantization.fx.match_utils import _is_match

    traced = _graph(100)
    modules = dict(traced.named_modules())
    rows = []
    for count in (10, 200, 1000):
        patterns = _patterns(count)
        index = PatternIndex((normalize_sequential(each), each) for each in patterns)
        nested = [_reversed(each) for each in patterns]

        def ours(index: PatternIndex[Any] = index) -> None:
            scan(CallGraph(traced.graph, modules), index)

        def theirs(nested: list[Any] = nested) -> None:
            for node in reversed(traced.graph.nodes):
                next((each for each in nested if _is_match(modules, node, each)), None)

        rows.append(compare(f"300 nodes, {count} patterns", ours, theirs, rounds=5))
    return rows


def _reversed(pattern: tuple[type[nn.Module], ...]) -> Any:
    nested: Any = pattern[0]
    for element in pattern[1:]:
        nested = (element, nested)
    return nested
