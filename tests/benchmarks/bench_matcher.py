"""One sweep of our matcher against PyTorch's, over large graphs and up to thousands of patterns.

The patterns are the native table of the catalog and others beside it that match nowhere. PyTorch's
matcher tries every pattern at every node, so it is timed on a shorter graph of the same blocks, of
as many nodes as its row says; its own table stands for the native one, with the same patterns beside
it. The growth is what a node costs us with 5000 patterns beside the table over what it costs with
10, both timed in turn on a shorter graph. The first row of each graph is our matcher against itself,
timed likewise: what differs there is noise.
"""

from __future__ import annotations

import gc
import itertools
import operator
import warnings
from collections.abc import Callable
from typing import Any

import torch
from timing import compare
from torch import fx, nn

import fusion_core as core
from fusion_core.matcher import CallGraph, PatternIndex, scan
from fusion_core.patterns import normalize_nested

NODES = 30_000
ROUNDS = 2
FEWER_NODES = 3_000
# How many times a node meets a pattern in one run of PyTorch's matcher, some tenths of a second.
COMPARISONS = 60_000
FEWEST = 14
COUNTS = (10, 1000, 5000)

Graph = tuple[fx.Graph, dict[str, nn.Module]]


class _Builder:
    """A graph of calls, each of a module of its own, grown node by node."""

    def __init__(self) -> None:
        self.graph = fx.Graph()
        self.modules: dict[str, nn.Module] = {}
        self.last = self.graph.placeholder("x")

    def call(self, kind: type[nn.Module], value: fx.Node | None = None) -> fx.Node:
        path = f"m{len(self.modules)}"
        # Neither matcher looks at a weight, and 30,000 of them take long to make.
        self.modules[path] = kind.__new__(kind)
        nn.Module.__init__(self.modules[path])
        self.last = self.graph.call_module(path, (self.last if value is None else value,))
        return self.last


def _conv_bn_relu(builder: _Builder) -> None:
    for kind in (nn.Conv2d, nn.BatchNorm2d, nn.ReLU):
        builder.call(kind)


def _residual(builder: _Builder) -> None:
    before = builder.last
    _conv_bn_relu(builder)
    builder.call(nn.Conv2d)
    inner = builder.call(nn.BatchNorm2d)
    builder.last = builder.graph.call_function(operator.add, (before, inner))
    builder.call(nn.ReLU)


def _linear_relu(builder: _Builder) -> None:
    for kind in (nn.Linear, nn.ReLU):
        builder.call(kind)


def _graph(block: Callable[[_Builder], None], nodes: int) -> Graph:
    builder = _Builder()
    while len(builder.graph.nodes) < nodes:
        block(builder)
    builder.graph.output(builder.last)
    return builder.graph, builder.modules


def _layer(index: int) -> type[nn.Module]:
    return type(f"Layer{index}", (nn.Module,), {})


# What the patterns beside the table have in common; each has a type of its own in one place.
BESIDE: dict[str, Callable[[type[nn.Module]], Any]] = {
    "own anchor": lambda own: (own, nn.Conv2d),
    "same anchor": lambda own: (nn.ReLU, own),
    "same anchor, input": lambda own: (nn.ReLU, (nn.BatchNorm2d, own)),
}


def run() -> list[dict[str, Any]]:
    """One row per graph and set of patterns; times are per node, the ratio is theirs / ours."""
    blocks = {
        "conv-bn-relu": _conv_bn_relu,
        "residual": _residual,
        "linear-relu": _linear_relu,
    }
    layers = [_layer(index) for index in range(COUNTS[-1])]
    ours, theirs = _our_table(), _their_table()
    cases = [("", 0), *itertools.product(BESIDE, COUNTS)]
    extras = {(how, count): [BESIDE[how](each) for each in layers[:count]] for how, count in cases}
    indices = {
        case: PatternIndex(
            (each, place) for place, each in enumerate([*ours, *map(normalize_nested, extra)])
        )
        for case, extra in extras.items()
    }
    rows = []
    for name, block in blocks.items():
        graph, short, fewer = _graph(block, NODES), _graph(block, FEWER_NODES), {}
        noise = _growth(short, indices["", 0], indices["", 0])
        rows.append({"case": f"{name}: noise", "growth": noise})
        for beside, count in cases:
            table = sorted([*theirs, *extras[beside, count]], key=_length, reverse=True)
            nodes = max(COMPARISONS // len(table), FEWEST)
            fewer.setdefault(nodes, _graph(block, nodes))
            index = indices[beside, count]
            row = _row(graph, index, fewer[nodes], table)
            if count == COUNTS[-1]:
                row["growth"] = _growth(short, indices[beside, COUNTS[0]], index)
            rows.append({"case": f"{name} + {count} {beside}".strip(), **row})
    return rows


def _growth(graph: Graph, small: PatternIndex[int], large: PatternIndex[int]) -> float:
    """How many times longer a sweep takes with ``large`` than with ``small``."""
    first, second = _sweep(graph, small), _sweep(graph, large)
    growth: float = compare("", first, second, rounds=3 * ROUNDS)["ratio"]
    return growth


def _row(graph: Graph, index: PatternIndex[int], fewer: Graph, table: list[Any]) -> dict[str, Any]:
    """Microseconds per node of our matcher on ``graph``, of theirs on ``fewer``, and the ratio."""
    is_match = _their_matcher()

    def theirs() -> None:
        nodes, modules = fewer
        for node in reversed(nodes.nodes):
            next((each for each in table if is_match(modules, node, each)), None)

    timed = compare("", _sweep(graph, index), theirs, rounds=ROUNDS)
    mine, peers = len(graph[0].nodes), len(fewer[0].nodes)
    ratios = {key: timed[key] * mine / peers for key in ("ratio", "ratio_low", "ratio_high")}
    return {
        "ours us": timed["ours_ms"] * 1e3 / mine,
        "theirs us": timed["theirs_ms"] * 1e3 / peers,
        "their nodes": peers,
        **ratios,
    }


def _sweep(graph: Graph, index: PatternIndex[int]) -> Callable[[], object]:
    gc.collect()
    return lambda: scan(CallGraph(*graph), index)


def _our_table() -> list[Any]:
    int8 = core.DTypeConfig(input_dtype=torch.quint8, output_dtype=torch.quint8)
    configs = core.catalog.native([int8], [int8], embedding=[int8], recurrent=[int8])
    return [each.normal_pattern for each in configs]


def _their_table() -> list[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import torch.ao.quantization.quantize_fx  # noqa: F401  the config needs it
        from torch.ao.quantization.backend_config import get_native_backend_config
    return list(get_native_backend_config()._pattern_complex_format_to_config)


def _their_matcher() -> Callable[..., bool]:
    from torch.ao.quantization.fx.match_utils import _is_match

    return _is_match


def _length(pattern: Any) -> int:
    return sum(map(_length, pattern)) if isinstance(pattern, tuple) else 1
