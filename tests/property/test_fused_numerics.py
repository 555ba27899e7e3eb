"""Whatever the patterns of a backend take out of a graph, the fused model computes what it did."""

from __future__ import annotations

import operator
import random
from collections import Counter
from dataclasses import dataclass
from types import ModuleType

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import fusion_core as core
from fusion_core.patterns import any_order, call, capture, list_of, optional, where
from fusion_core.registry import Registry

WIDTH = 4


class Kept(nn.Module):
    """A fused module: the members of a match, and what the match computed with them."""

    def __init__(self, compute, *members):
        super().__init__()
        self.members = nn.ModuleList([each for each in members if isinstance(each, nn.Module)])
        self.functions = [each for each in members if not isinstance(each, nn.Module)]
        self.compute = compute

    def forward(self, x, *others):
        return self.compute(self, x, *others)


def chained(_is_qat, *members):
    """What one after the other computes; a step that is missing is None."""

    def compute(_self, x):
        for each in steps:
            x = each(x)
        return x

    steps = [each for each in members if each is not None]
    return Kept(compute, *steps)


def fuser(compute):
    """A fuser method that keeps the linear layer of a match, and computes with it."""

    def linear_in(parts):
        for each in parts:
            found = linear_in(each) if isinstance(each, (tuple, list)) else each
            if isinstance(found, nn.Linear):
                return found
        return None

    return lambda _is_qat, *parts: Kept(compute, linear_in(parts))


def has_bias(_node, module):
    return module.bias is not None


def wide(_is_qat, *_members):
    return core.Skip("it is tried first and always refused")


def complex_config(pattern, compute, root, extra=None):
    """A config of a reverse nested pattern; ``root`` and ``extra`` pick nodes out of the match."""
    return core.BackendPatternConfig(
        complex_pattern=pattern,
        fuser_method=fuser(compute),
        root_node_getter=root,
        extra_inputs_getter=extra,
    )


def half(self, x):
    one, two = torch.chunk(self.members[0](x), 2, -1)
    return one + two


HALVES = capture("both", (torch.chunk, nn.Linear, 2, -1))
ACTIVATION = core.any_of(nn.ReLU, torch.sigmoid, core.ops.relu)
CONFIGS = (
    core.BackendPatternConfig(
        (nn.Linear, optional(nn.BatchNorm1d), ACTIVATION), fuser_method=chained
    ),
    core.BackendPatternConfig((where(nn.Linear, has_bias), nn.BatchNorm1d), fuser_method=chained),
    core.BackendPatternConfig((nn.Linear, ACTIVATION), fuser_method=wide, priority=1),
    complex_config(
        any_order(operator.add, core.MatchAllNode, nn.Linear),
        lambda self, x, other: self.members[0](x) + other,
        lambda pattern: pattern[2],
        lambda pattern: [pattern[1]],
    ),
    complex_config(
        any_order(operator.mul, capture("y", nn.Linear), (torch.sigmoid, capture("y"))),
        lambda self, x: nn.functional.silu(self.members[0](x)),
        lambda pattern: pattern[1],
    ),
    complex_config(
        (operator.mul, capture("y", nn.Linear), capture("y")),
        lambda self, x: self.members[0](x) ** 2,
        lambda pattern: pattern[1],
    ),
    complex_config(
        (operator.add, (operator.getitem, HALVES, 0), (operator.getitem, HALVES, 1)),
        half,
        lambda pattern: pattern[1][1][1],
    ),
    complex_config(
        call(torch.cat, list_of(nn.Linear, core.MatchAllNode), dim=-1),
        lambda self, x, other: torch.cat([self.members[0](x), other], -1),
        lambda pattern: pattern[1][0],
        lambda pattern: [pattern[1][1]],
    ),
)


@pytest.fixture(scope="module")
def backend():
    plugin = ModuleType("random_plugin")
    mapping = core.QConfigMapping(global_qconfig=core.catalog.static_qconfig())
    plugin.fusion_pattern_configs = core.hookimpl(lambda: list(CONFIGS))
    plugin.fusion_default_qconfig_mapping = core.hookimpl(lambda: mapping)
    registry = Registry()
    registry.register_backend("random", plugin)
    return registry.get_backend("random")


@dataclass
class Program:
    """A random forward: each step reads values that are there and adds one of the same shape."""

    steps: tuple[tuple[str, int, int], ...]

    def __call__(self, model, x):
        values = [x]
        for place, (step, one, two) in enumerate(self.steps):
            operands = values[-1 - one % min(len(values), 2)], values[two % len(values)]
            values.append(STEPS[step](model, place, *operands))
        return values[-1], values[self.steps[0][1] % len(values)]


def linear(model, place, x, width=WIDTH):
    layer = nn.Linear(x.shape[-1] if isinstance(x, torch.Tensor) else WIDTH, width)
    return _layer(model, f"linear{place}", layer)(x)


def _layer(model, name, made):
    if not hasattr(model, name):
        model.add_module(name, made)
    return getattr(model, name)


def halves(model, place, x, _other):
    one, two = torch.chunk(linear(model, place, x, 2 * WIDTH), 2, -1)
    return one + two


def joined(model, place, x, other):
    both = torch.cat([linear(model, place, x), other], dim=-1)
    return _layer(model, f"linear_after{place}", nn.Linear(2 * WIDTH, WIDTH))(both)


def normed(model, place, x, _other):
    return _layer(model, f"norm{place}", nn.BatchNorm1d(WIDTH))(x)


def gated(model, place, x, _other):
    y = linear(model, place, x)
    return y * torch.sigmoid(y)


def squared(model, place, x, _other):
    y = linear(model, place, x)
    return y * y


STEPS = {
    "linear": lambda model, place, x, _: linear(model, place, x),
    "norm": normed,
    "relu module": lambda model, place, x, _: _layer(model, f"act{place}", nn.ReLU())(x),
    "relu": lambda _model, _place, x, _: torch.relu(x),
    "sigmoid": lambda _model, _place, x, _: torch.sigmoid(x),
    "add": lambda _model, _place, x, other: x + other,
    "added": lambda _model, _place, x, other: other + x,
    "mul": lambda _model, _place, x, other: x * other,
    "halves": halves,
    "joined": joined,
    "gated": gated,
    "squared": squared,
}
OFTEN = ("linear", "linear", "linear", "norm", "norm")


class Net(nn.Module):
    def __init__(self, program):
        super().__init__()
        self.program = program

    def forward(self, x):
        return self.program(self, x)


def random_net(seed, count):
    chance = random.Random(seed)  # noqa: S311  nothing secret
    steps = [
        (chance.choice((*STEPS, *OFTEN)), chance.choice([0, 0, 0, 1]), chance.randrange(9))
        for _ in range(count)
    ]
    net = Net(Program(tuple(steps)))
    x = torch.randn(3, WIDTH)
    net.train()
    for _ in range(2):  # layers are made in the first, statistics in both
        net(x)
    return net.eval(), x


def test_a_fused_graph_computes_what_the_model_does(backend):
    fused_by = Counter()

    @settings(max_examples=40)
    @given(st.binary(min_size=6, max_size=6), st.sampled_from(range(2, 11)))
    def holds(seed, count):
        net, x = random_net(seed, count)
        traced = core.trace(net, x, backend=backend)
        fused = core.fuse(traced, backend)
        for wanted, found in zip(net(x), fused(x), strict=True):
            assert torch.allclose(found, wanted, atol=1e-5, rtol=1e-5)
        kept = [each for each in fused.modules() if isinstance(each, Kept)]
        fused_by.update(each.compute.__code__ for each in kept)

    holds()
    # ``chained`` serves two of the patterns, and one is always refused.
    assert len(fused_by) == len(CONFIGS) - 2
