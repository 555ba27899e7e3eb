"""Batch norms that are synchronized between processes: kept in training, and plain in a quantized model."""

from __future__ import annotations

import torch
from torch import nn

import fusion_core as core
from fusion_core import catalog
from fusion_core.passes import norms

INT8 = core.DTypeConfig(
    input_dtype=torch.quint8, output_dtype=torch.quint8, weight_dtype=torch.qint8
)
X = torch.randn(4, 3, 6, 6)


def synchronized(*layers):
    return nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(*layers))


def prepared(model, backend, *, qat=False):
    """A model that has seen data."""
    traced = core.trace(model.train(qat), X, backend=backend, qat=qat, inplace=qat)
    made = core.prepare(core.fuse(traced, backend, qat=qat), backend, qat=qat)
    core.calibrate(made.eval(), [X])
    return made


def of_type(model, *kinds):
    return [each for each in model.modules() if isinstance(each, kinds)]


def test_a_synchronized_norm_stays_in_training_and_is_folded_afterwards(backend):
    toy = backend(*catalog.conv([INT8], dims=[2]))
    model = synchronized(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
    made = prepared(model, toy, qat=True)

    (sync,) = of_type(made, nn.SyncBatchNorm)
    assert sync.weight is model[1].weight
    assert sync.running_mean is model[1].running_mean
    assert not of_type(core.convert(made), nn.SyncBatchNorm, nn.BatchNorm2d)


def test_it_keeps_its_group_of_processes():
    group = object()  # only handed on: a process group cannot be made without processes
    sync = nn.SyncBatchNorm(3, process_group=group)
    back = norms.restored_norm(norms.plain_norm(sync, nn.BatchNorm2d, trained=True))

    assert back.process_group is group


def test_outside_of_training_it_is_quantized_like_any_other(backend):
    toy = backend(*catalog.batch_norm([INT8], dims=[2]))
    converted = core.convert(prepared(synchronized(nn.BatchNorm2d(3)), toy))

    assert len(of_type(converted, nn.BatchNorm2d)) == 1
    assert not of_type(converted, nn.SyncBatchNorm)
