from __future__ import annotations

import pytest
import torch
from torch import nn

import fusion_core as core
from fusion_core.errors import ModelStateError, TraceError

X = torch.randn(2, 4)


class Branching(nn.Module):
    def forward(self, x):
        if x.sum() > 0:
            return x
        return -x


class Broken(nn.Module):
    def forward(self, x):
        for row in x:
            x = x + row
        return x


class Block(nn.Module):
    def __init__(self, inner) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x) * 2


@pytest.mark.parametrize("kind", [Branching, Broken])
def test_a_forward_that_cannot_be_traced_has_a_place(kind):
    with pytest.raises(TraceError, match=rf"\({kind.__name__}\) at .*test_trace\.py:\d+") as caught:
        core.trace(kind().eval(), X)

    line = int(caught.value.location.rpartition(":")[2])
    start = kind.forward.__code__.co_firstlineno
    assert line == start + 1


@pytest.mark.parametrize("kind", [Branching, Broken])
def test_a_submodule_that_cannot_be_traced_is_called_whole(ops, ledger, kind):
    model = Block(Block(kind())).eval()
    traced = core.trace(model, X)

    assert ops(traced) == [kind.__name__, "mul", "mul"]
    assert ledger(traced)["inner_inner"].path == "inner.inner"
    assert ledger(traced)["inner_inner"].reason.startswith("kept whole: cannot be traced at ")
    assert torch.equal(traced(X), model(X))
    assert torch.equal(traced(-X), model(-X))


def test_types_that_a_pattern_names_are_called_and_others_inlined(backend, ops):
    model = Block(Block(nn.Tanh())).eval()
    toy = backend(core.BackendPatternConfig(Block))

    assert ops(core.trace(model, X)) == ["Tanh", "mul", "mul"]
    assert ops(core.trace(model.inner, X, backend=toy)) == ["Tanh", "mul"]
    assert ops(core.trace(nn.Sequential(model).eval(), X, backend=toy)) == ["Block"]


@pytest.mark.parametrize(
    "inputs",
    [(X, X), [X, X], {"x": X, "y": X}, {"y": X, "x": X}],
    ids=["tuple", "list", "", "dict"],
)
def test_example_inputs_come_in_any_of_these_forms(net, inputs):
    model = net(lambda _self, x, y: x - y)

    assert torch.equal(core.trace(model, inputs)(X, 3 * X), X - 3 * X)


@pytest.mark.parametrize("inputs", [(), (X, X), {"z": X}], ids=["none", "two", "a wrong name"])
def test_example_inputs_that_do_not_fit_are_refused_with_the_signature(inputs):
    with pytest.raises(ModelStateError, match=r"do not fit Block\.forward\(x\)"):
        core.trace(Block(nn.Tanh()).eval(), inputs)


def test_every_operation_has_an_entry_with_its_place_and_size(ledger):
    model = nn.Sequential(nn.Linear(4, 3), Block(nn.Linear(3, 2))).eval()
    entries = {entry.path: entry for entry in ledger(core.trace(model, X))}

    assert {path: entry.macs for path, entry in entries.items()} == {
        "0": 24,
        "1.inner": 12,
        "1": 0,
    }
