from __future__ import annotations

import pytest
import torch
from torch import nn

import fusion_core as core
from fusion_core.errors import FuseError, ModelStateError
from fusion_core.nn.fused import LinearReLU

PAIR = (nn.Linear, nn.ReLU)
X = torch.randn(2, 4)


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 3), nn.ReLU()).eval()


def pattern(fuser, **options):
    return core.BackendPatternConfig(PAIR, fuser_method=fuser, **options)


def keep(_is_qat, linear, relu):
    return LinearReLU(linear, relu)


def too_warm(_is_qat, _linear, _relu):
    return core.Skip("it is too warm")


def fails(_is_qat, _linear, _relu):
    raise ZeroDivisionError("no luck")


def test_the_fused_module_stands_at_the_root_and_the_result_is_the_same(backend, ops):
    toy = backend(pattern(keep))
    traced = core.trace(model(), X, backend=toy)
    fused = core.fuse(traced, toy)

    assert ops(fused) == ["LinearReLU"]
    assert ops(traced) == ["Linear", "ReLU"]
    assert torch.equal(fused(X), traced(X))


def test_a_module_type_fuses_without_being_told_of_training(backend, ops):
    toy = backend(pattern(nn.Sequential))

    assert ops(core.fuse(core.trace(model(), X, backend=toy), toy)) == ["Sequential"]


def test_members_come_in_the_order_of_the_pattern(backend):
    seen = []

    def note(is_qat, *modules):
        seen.append((is_qat, [type(each) for each in modules]))
        return nn.Sequential(*modules)

    toy = backend(pattern(note))
    core.fuse(core.trace(model(), X, backend=toy), toy)

    assert seen == [(False, [nn.Linear, nn.ReLU])]


def test_a_skip_leaves_the_match_to_the_next_pattern_and_its_reason_in_the_ledger(
    backend, ops, ledger
):
    toy = backend(pattern(too_warm, priority=1))
    fused = core.fuse(core.trace(model(), X, backend=toy), toy)

    assert ops(fused) == ["Linear", "ReLU"]
    assert "it is too warm" in ledger(fused)["_1"].near_miss


@pytest.mark.parametrize(
    ("fuser", "message"),
    [
        (
            fails,
            r"'?toy.*Linear.*ReLU at node _1: its fuser method raised ZeroDivisionError: no luck",
        ),
        (lambda _qat, _linear, _relu: 7, "its fuser method returned int, not Module"),
        (lambda _qat, _linear, _relu: None, "its fuser method returned NoneType, not Module"),
    ],
    ids=["raises", "a number", "None"],
)
def test_a_fuser_that_fails_is_named(backend, fuser, message):
    toy = backend(pattern(fuser))

    with pytest.raises(FuseError, match=message):
        core.fuse(core.trace(model(), X, backend=toy), toy)


def test_a_fuser_must_return_the_promised_type(backend):
    toy = backend(pattern(lambda _qat, linear, _relu: linear, fused_module=LinearReLU))

    with pytest.raises(FuseError, match="returned Linear, not LinearReLU"):
        core.fuse(core.trace(model(), X, backend=toy), toy)


@pytest.mark.parametrize("answer", [None, "linear", 3])
def test_a_root_node_getter_must_pick_a_node_of_the_match(backend, answer):
    toy = backend(pattern(keep, root_node_getter=lambda _pattern: answer))

    with pytest.raises(FuseError, match=r"root-node getter returned .*no node of the match"):
        core.fuse(core.trace(model(), X, backend=toy), toy)


def test_a_root_node_getter_that_raises_is_named(backend):
    toy = backend(pattern(keep, root_node_getter=lambda _pattern: {}["x"]))

    with pytest.raises(FuseError, match="root-node getter raised KeyError: 'x'"):
        core.fuse(core.trace(model(), X, backend=toy), toy)


@pytest.mark.parametrize("answer", [None, 5, ["x"]])
def test_an_extra_inputs_getter_must_give_nodes(backend, answer):
    toy = backend(pattern(keep, extra_inputs_getter=lambda _pattern: answer))

    with pytest.raises(
        FuseError, match=r"extra-inputs getter returned .*not a list of input nodes"
    ):
        core.fuse(core.trace(model(), X, backend=toy), toy)


class LinearAdd(nn.Module):
    def __init__(self, linear) -> None:
        super().__init__()
        self.linear = linear

    def forward(self, x, other):
        return self.linear(x) + other


def test_a_residual_reaches_the_fused_module_as_an_extra_input(backend, net, ops):
    toy = backend(
        core.BackendPatternConfig(
            complex_pattern=(torch.add, core.MatchAllNode, nn.Linear),
            fuser_method=lambda _qat, _add, _other, linear: LinearAdd(linear),
            root_node_getter=lambda pattern: pattern[2],
            extra_inputs_getter=lambda pattern: [pattern[1]],
        )
    )
    model = net(lambda self, x: torch.add(x * 2, self.fc(x)), fc=nn.Linear(4, 4))
    fused = core.fuse(core.trace(model, X, backend=toy), toy)

    assert ops(fused) == ["mul", "LinearAdd"]
    assert torch.equal(fused(X), model(X))


def test_a_constraint_refuses_before_the_fuser_is_asked(backend, ops, ledger):
    toy = backend(pattern(fails, constraint=lambda _pattern: core.Skip("only on Sundays")))
    fused = core.fuse(core.trace(model(), X, backend=toy), toy)

    assert ops(fused) == ["Linear", "ReLU"]
    assert "only on Sundays" in ledger(fused)["_1"].near_miss


@pytest.mark.parametrize("order", [1, -1], ids=["", "reversed"])
def test_the_longest_pattern_wins_in_any_order_of_declaration(backend, ops, order):
    """Case M7."""
    short = core.BackendPatternConfig((nn.BatchNorm1d, nn.ReLU), fuser_method=nn.Sequential)
    long = core.BackendPatternConfig(
        (nn.Linear, nn.BatchNorm1d, nn.ReLU), fuser_method=core.catalog.fuse_batch_norm_activation
    )
    toy = backend(*[short, long][::order])
    net = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.ReLU()).eval()

    assert ops(core.fuse(core.trace(net, X, backend=toy), toy)) == ["LinearReLU"]


def test_a_pattern_of_four_is_fused(backend, ops):
    """Case G1."""
    long = core.BackendPatternConfig(
        (nn.Linear, nn.BatchNorm1d, nn.ReLU, nn.Softmax), fuser_method=nn.Sequential
    )
    toy = backend(long)
    net = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.ReLU(), nn.Softmax(1)).eval()
    fused = core.fuse(core.trace(net, X, backend=toy), toy)

    assert ops(fused) == ["Sequential"]
    assert (fused(X) - net(X)).abs().max() <= 1e-6


def test_a_model_that_was_not_traced_is_refused(backend):
    with pytest.raises(ModelStateError, match="fuse needs a traced model and was given Sequential"):
        core.fuse(model(), backend(pattern(keep)))
