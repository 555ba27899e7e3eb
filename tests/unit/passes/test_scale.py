"""Depth and size of a graph are no limit: nothing recurses along it. Counts are asserted, never times."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.fx import Graph

import fusion_core as core
from fusion_core.nn.fused import LinearReLU
from fusion_core.passes.edit import erase

OPERATIONS = 2_500


def linears(count):
    pairs = (each for _ in range(count // 2) for each in (nn.Linear(4, 4), nn.ReLU()))
    return nn.Sequential(*pairs).eval()


@pytest.fixture
def toy(backend, linear):
    fused = core.BackendPatternConfig(
        (nn.Linear, nn.ReLU),
        fuser_method=lambda _qat, linear, relu: LinearReLU(linear, relu),
        fused_module=LinearReLU,
    )
    observed = core.BackendPatternConfig(
        LinearReLU,
        dtype_configs=linear.dtype_configs,
        root_module=nn.Linear,
        fused_module=LinearReLU,
        reference_quantized_module=core.nn.reference.Linear,
    )
    return backend(fused, observed, linear)


@pytest.mark.slow
def test_a_long_chain_of_modules_is_traced_fused_and_prepared(toy, ops, ledger):
    x = torch.randn(2, 4)
    traced = core.trace(linears(OPERATIONS), x, backend=toy)
    fused = core.fuse(traced, toy)
    prepared = core.prepare(fused, toy)

    assert len(ledger(traced)) == len(ops(traced)) == OPERATIONS
    assert ops(fused) == ["LinearReLU"] * (OPERATIONS // 2)
    # One observer behind each fused layer, one for the input.
    assert len(ops(prepared)) == OPERATIONS + 1


@pytest.mark.slow
def test_a_long_chain_of_functions_is_traced_fused_and_prepared(toy, net, ops):
    def forward(_self, x):
        for _ in range(OPERATIONS // 2):
            x = torch.relu(x + 0.5)
        return x

    traced = core.trace(net(forward), torch.zeros(2, 4), backend=toy)
    prepared = core.prepare(core.fuse(traced, toy), toy)

    assert ops(prepared) == ["add", "relu"] * (OPERATIONS // 2)


@pytest.mark.slow
def test_a_chain_longer_than_the_stack_is_quantized(toy, ops):
    x = torch.randn(2, 4)
    fused = core.fuse(core.trace(linears(1200), x, backend=toy), toy, verify=True)
    calibrated = core.calibrate(core.prepare(fused, toy), [x])
    lowered = core.lower(core.convert(calibrated), toy)

    assert ops(lowered).count("LinearReLU") == 600
    assert lowered(x).shape == (2, 4)


def test_a_value_written_in_place_over_and_over_is_read_as_it_was_last(net, ops):
    def forward(_self, x):
        y = x * 1
        for _ in range(2000):
            y.add_(1)
        return y + y

    model = net(forward)
    x = torch.zeros(2, 4)
    traced = core.trace(model, x)

    assert ops(traced) == ["mul", *["add"] * 2001]
    assert torch.equal(traced(x), model(x))


def test_forks_that_join_again_are_not_walked_path_by_path(toy, net):
    """Sixty forks in a row make 2 ** 60 paths from the quantized layer to the end."""

    def forward(self, x):
        x = self.fc(x)
        for _ in range(60):
            x = torch.tanh(x) + torch.sin(x)
        return x

    x = torch.randn(2, 4)
    model = net(forward, fc=nn.Linear(4, 4))
    prepared = core.prepare(core.fuse(core.trace(model, x, backend=toy), toy), toy)
    lowered = core.lower(core.convert(core.calibrate(prepared, [x])), toy)

    (line,) = [each for each in core.report(lowered).ledger if each.path == "fc"]
    assert line.reason == "the backend has no kernel for it"


def test_what_is_erased_may_fork_and_join_and_come_in_any_order():
    graph = Graph()
    x = graph.placeholder("x")
    top = graph.call_function(torch.relu, (x,))
    left, right = (graph.call_function(torch.neg, (top,)) for _ in range(2))
    bottom = graph.call_function(torch.add, (left, right))
    graph.output(x)
    erase(graph, (top, bottom, left, right))

    assert [node.op for node in graph.nodes] == ["placeholder", "output"]


def test_what_something_else_uses_is_not_erased():
    graph = Graph()
    x = graph.placeholder("x")
    top = graph.call_function(torch.relu, (x,))
    bottom = graph.call_function(torch.neg, (top,))
    graph.output(top)

    with pytest.raises(RuntimeError, match=r"relu.*output"):
        erase(graph, (bottom, top))
