"""A range that is fixed is kept where nothing leaves it, and read as it is where a kernel takes it."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

import fusion_core as core
from fusion_core.passes.fixed_range import keeps_range, taken_as_given

CODES = core.DTypeConfig(input_dtype=torch.quint8, output_dtype=torch.quint8)
FIXED = core.ObserverSpec(
    core.nn.FixedQParamsObserver, scale=1 / 256, zero_point=0, dtype=torch.quint8
)
QCONFIG = core.catalog.static_qconfig()


def limited(**limits):
    return core.DTypeConfig(input_dtype=core.DTypeWithConstraints(dtype=torch.quint8, **limits))


@pytest.mark.parametrize(
    ("configs", "qconfig", "taken"),
    [
        ([CODES], QCONFIG, True),
        ([], QCONFIG, False),
        ([limited(quant_max_upper_bound=127)], QCONFIG, False),
        ([limited(quant_max_upper_bound=127), CODES], QCONFIG, True),
        ([limited(scale_min_lower_bound=1 / 128)], QCONFIG, False),
        ([CODES], core.catalog.static_qconfig(quant_max=127), False),
        ([core.DTypeConfig()], core.catalog.static_qconfig(dtype=torch.qint8), False),
        ([core.DTypeConfig()], QCONFIG.model_copy(update={"input": FIXED}), False),
    ],
    ids=[
        *("fits", "no dtypes", "shorter kernel", "second kernel", "coarser kernel"),
        *("other range", "other dtype", "a range of its own"),
    ],
)
def test_a_reader_takes_a_fixed_range_if_its_kernel_and_its_qconfig_do(configs, qconfig, taken):
    assert taken_as_given(FIXED, configs, qconfig, weighted=False) is taken


def test_a_measured_range_is_nothing_to_be_taken():
    assert not taken_as_given(QCONFIG.activation, [CODES], QCONFIG, weighted=False)


@pytest.mark.parametrize(
    ("operation", "keeps"),
    [
        (lambda x: x.flatten(1), True),
        (lambda x: torch.cat([x, x]), True),
        (nn.MaxPool2d(2), True),
        (lambda x: x.mean((2, 3)), True),
        (F.relu, True),
        (lambda x: F.pad(x, (1, 1), value=2.0), False),
        (nn.AvgPool2d(2, divisor_override=1), False),
        (lambda x: x.clamp(2, 3), False),
        (lambda x: x.cumsum(1), False),
    ],
    ids=["flatten", "cat", "max pool", "mean", "relu", "pad", "avg pool", "clamp", "unknown"],
)
def test_only_what_cannot_leave_a_range_keeps_it(net, operation, keeps):
    made = net(lambda self, x: self.operation(x), operation=operation)
    graph = core.trace(made, torch.randn(2, 3, 4, 4), backend="fbgemm")
    calls = [node for node in graph.graph.nodes if node.op.startswith("call_")]

    assert keeps_range(calls) is keeps
