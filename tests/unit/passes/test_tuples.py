"""Items of a chunk, split or unbind have the parameters of what was taken apart."""

from __future__ import annotations

import operator

import pytest
import torch
from torch import nn

import fusion_core as core
from fusion_core.patterns import any_arguments, capture
from fusion_core.qops import quantize_per_tensor

WAYS = {
    "chunk": lambda x: x.chunk(2, dim=1),
    "torch.chunk by name": lambda x: torch.chunk(input=x, chunks=2, dim=1),
    "split by size": lambda x: torch.split(x, 4, dim=1),
    "split by name": lambda x: x.split(split_size=4, dim=1),
    "split by list": lambda x: x.split([2, 6], 1),
    "split_with_sizes": lambda x: torch.split_with_sizes(x, [2, 6], dim=1),
    "split_with_sizes by name": lambda x: x.split_with_sizes(split_sizes=[2, 6], dim=1),
    "first dimension": lambda x: x.split(1),
    "unbind": lambda x: x.unbind(1),
}


class TakenApart(nn.Module):
    """Items of a convolution's result, from the front and from the back."""

    def __init__(self, way) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 1)
        self.way = way

    def forward(self, x):
        parts = self.way(self.conv(x))
        return parts[0], parts[-1]


def quantized(model, x, **options):
    torch.manual_seed(0)
    return core.quantize(
        model.eval(), "fbgemm", calibration=[x], adaptive_rounding=False, **options
    )


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_items_run_on_codes_and_are_those_of_the_reference(way):
    model, x = TakenApart(way), torch.randn(2, 3, 4, 4)

    lowered, reference = quantized(model, x), quantized(model, x, reference=True)

    assert {entry.status for entry in core.report(lowered).ledger} <= {
        core.Status.INT8,
        core.Status.NO_TENSOR,
    }
    for have, want in zip(lowered(x), reference(x), strict=True):
        assert torch.equal(have, want)


def test_an_item_is_not_rounded_again():
    model, x = TakenApart(WAYS["chunk"]), torch.randn(2, 3, 4, 4)
    model.conv.weight.data[4:] *= 0.01  # so that the last item alone would have another scale

    graph = quantized(model, x, reference=True).graph
    rounded = [node.args[1:3] for node in graph.nodes if node.target is quantize_per_tensor]

    assert len(set(rounded[-2:])) == 1


def test_items_that_are_read_as_a_tuple_stay_one_call():
    class Turned(nn.Module):
        def forward(self, x):
            parts = x.chunk(2, dim=1)
            return torch.cat(parts[::-1], dim=1), parts[0]

    x = torch.randn(2, 4)
    traced = core.trace(Turned().eval(), x)

    calls = [node for node in traced.graph.nodes if node.target == "chunk"]
    assert len(calls) == 1
    assert torch.equal(traced(x)[0], torch.cat([x[:, 2:], x[:, :2]], dim=1))


def test_each_item_has_a_call_of_its_own_and_one_line_tells_of_them():
    x = torch.randn(2, 3, 4, 4)
    fused = core.fuse(core.trace(TakenApart(WAYS["chunk"]).eval(), x), "fbgemm")
    prepared = core.prepare(fused, "fbgemm")

    calls = [node for node in prepared.graph.nodes if node.target == "chunk"]
    assert [[user.target for user in node.users] for node in calls] == [[operator.getitem]] * 2
    assert [line.operation for line in core.report(prepared).ledger].count(".chunk") == 1


class Gate(nn.Module):
    """Half of its input lets the other half through."""

    def forward(self, x):
        value, gate = x.chunk(2, dim=1)
        return value * torch.sigmoid(gate)


def test_a_call_that_a_pattern_takes_with_all_its_items_stays_one(backend, linear):
    halves = capture("halves", any_arguments(core.Operation("chunk")))
    gated = (
        operator.mul,
        (operator.getitem, halves, 0),
        (torch.sigmoid, (operator.getitem, halves, 1)),
    )
    toy = backend(
        core.BackendPatternConfig(complex_pattern=gated, dtype_configs=linear.dtype_configs)
    )
    traced = core.trace(Gate().eval(), torch.randn(2, 4), backend=toy)
    prepared = core.prepare(core.fuse(traced, toy), toy)

    assert [node.target for node in prepared.graph.nodes].count("chunk") == 1
