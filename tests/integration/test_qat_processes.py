"""Training in several processes: what they learn is one model, also with norms that are synchronized."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import fusion_core as core

PROCESSES = 2


def trainable(model):
    """``model``, ready to be trained for fbgemm."""
    traced = core.trace(model.train(), torch.ones(2, 3, 6, 6), backend="fbgemm", qat=True)
    return core.prepare(core.fuse(traced, "fbgemm", qat=True), "fbgemm", qat=True)


def layers(norm):
    """A small model with ``norm`` behind its convolution."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), norm, nn.ReLU(), nn.Flatten(), nn.Linear(64, 2))


def trained(seed):
    """A model after some steps on random data."""
    made = trainable(layers(nn.BatchNorm2d(4)))
    parallel = DistributedDataParallel(made)
    optimizer = torch.optim.SGD(parallel.parameters(), 0.05, momentum=0.9)
    torch.manual_seed(seed)
    for step in range(4):
        if step == 3:
            core.freeze_observers(core.freeze_batch_norm(parallel))
        optimizer.zero_grad()
        parallel(torch.randn(2, 3, 6, 6)).square().mean().backward()
        optimizer.step()
    return made


def norms_of(model):
    return [each for each in model.modules() if "Norm" in type(each).__name__]


def work(rank, folder):
    """What one process does: train, convert, and write down what it has."""
    torch.set_num_threads(1)
    store = dist.FileStore(f"{folder}/store", PROCESSES)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=PROCESSES)
    try:
        made = trained(seed=rank + 1)
        converted = core.convert(made)
        group = dist.new_group(range(PROCESSES))
        # Training it takes a GPU.
        synchronized = trainable(layers(nn.SyncBatchNorm(4, process_group=group)))
        torch.manual_seed(7)
        found = {
            "state": made.state_dict(),
            "converted": converted.state_dict(),
            "gives": core.lower(converted)(torch.randn(2, 3, 6, 6)),
            "groups": [each.process_group is group for each in norms_of(synchronized)],
            "norms left": len(norms_of(core.convert(calibrated(synchronized)))),
        }
        torch.save(found, f"{folder}/{rank}")
        dist.barrier()
    finally:
        dist.destroy_process_group()


def calibrated(model):
    core.calibrate(model.eval(), [torch.randn(2, 3, 6, 6)])
    return model


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What each process has in the end."""
    folder = tmp_path_factory.mktemp("processes")
    mp.spawn(work, (str(folder),), nprocs=PROCESSES)
    return [torch.load(folder / str(rank)) for rank in range(PROCESSES)]


def assert_equal(one, other):
    assert one.keys() == other.keys()
    differing = [name for name, value in one.items() if not torch.equal(value, other[name])]
    assert not differing


pytestmark = pytest.mark.slow


def test_parameters_ranges_and_statistics_are_equal_in_all_processes(found):
    first, second = (each["state"] for each in found)
    assert any(name.endswith("observer.max_val") for name in first)
    assert any(name.endswith("running_var") for name in first)
    assert_equal(first, second)


def test_all_processes_convert_to_the_same_model(found):
    first, second = found
    assert_equal(first["converted"], second["converted"])
    assert torch.equal(first["gives"], second["gives"])


def test_a_synchronized_norm_keeps_its_group_and_is_folded_afterwards(found):
    for each in found:
        assert each["groups"] == [True]
        assert each["norms left"] == 0
