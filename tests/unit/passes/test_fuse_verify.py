from __future__ import annotations

import copy
import gc
import pickle
import weakref

import pytest
import torch
from torch import nn

import fusion_core as core
from fusion_core.errors import ModelStateError
from fusion_core.nn.fused import LinearReLU

PAIR = (nn.Linear, nn.ReLU)


@pytest.fixture
def x():
    return torch.randn(2, 4)


@pytest.fixture
def model():
    return nn.Sequential(nn.Linear(4, 3), nn.ReLU()).eval()


def pattern(fuser, **options):
    return core.BackendPatternConfig(PAIR, fuser_method=fuser, **options)


def right(_is_qat, linear, relu):
    return LinearReLU(linear, relu)


class Wrong(nn.Module):
    """Gives what ``make`` makes of the right result."""

    def __init__(self, linear, make) -> None:
        super().__init__()
        self.linear = linear
        self.make = make

    def forward(self, x):
        return self.make(torch.relu(self.linear(x)))


def wrong(make):
    return pattern(lambda _qat, linear, _relu: Wrong(linear, make))


def too_large(result):
    return result + 3.5


def fails(_result):
    raise ZeroDivisionError("no luck")


def near_miss(model):
    lines = core.report(model).ledger
    return {line.node: line.near_miss for line in lines if line.near_miss is not None}


def test_a_right_fuser_passes_and_the_ledger_says_so(backend, ops, ledger, model, x):
    toy = backend(pattern(right))
    fused = core.fuse(core.trace(model, x, backend=toy), toy, verify=True)

    assert ops(fused) == ["LinearReLU"]
    assert ledger(fused).notes == ["fused modules verified on the example inputs: 1 right"]


def test_a_wrong_fuser_is_refused_with_the_node_and_by_how_much(backend, ops, ledger, model, x):
    toy = backend(wrong(too_large))
    fused = core.fuse(core.trace(model, x, backend=toy), toy, verify=True)

    assert ops(fused) == ["Linear", "ReLU"]
    assert torch.equal(fused(x), model(x))
    assert list(near_miss(fused)) == ["_1"]
    assert "its fused module gives results that differ by 3.5 (at most" in near_miss(fused)["_1"]
    assert ledger(fused).notes == [
        "fused modules verified on the example inputs: 0 right, refused at _1"
    ]


def test_unless_asked_nothing_is_verified(backend, ops, model, x):
    toy = backend(wrong(too_large))

    assert ops(core.fuse(core.trace(model, x, backend=toy), toy)) == ["Wrong"]


def test_a_backend_registered_by_name_is_verified_in_one_call(model, x, linear):
    class plugin:  # noqa: N801  stands for a module
        @staticmethod
        @core.hookimpl
        def fusion_pattern_configs():
            return [wrong(too_large), linear]

    undo = core.register_backend("verified_toy", plugin)
    try:
        quantized = core.quantize(model, "verified_toy", calibration=[x], verify=True)
    finally:
        undo()

    assert "differ by 3.5" in near_miss(quantized)["_1"]
    assert (quantized(x) - model(x)).abs().max() < 0.1


def test_the_next_pattern_has_its_turn_after_a_wrong_one(backend, ops, model, x):
    first = pattern(lambda _qat, linear, _relu: Wrong(linear, too_large), priority=1)
    toy = backend(first, core.BackendPatternConfig(PAIR, fuser_method=nn.Sequential))
    fused = core.fuse(core.trace(model, x, backend=toy), toy, verify=True)

    assert ops(fused) == ["Sequential"]
    assert torch.equal(fused(x), model(x))
    assert "differ by 3.5" in near_miss(fused)["_1"]


def test_wrong_numbers_outweigh_a_pattern_that_nearly_fitted(backend, net, x):
    """The long pattern fails at its fourth operation, the short one had but two."""
    long = core.BackendPatternConfig(
        (nn.Linear, nn.BatchNorm1d, nn.Tanh, nn.ReLU), fuser_method=nn.Sequential
    )
    short = core.BackendPatternConfig(
        (nn.Tanh, nn.ReLU), fuser_method=lambda _qat, tanh, _relu: Wrong(tanh, too_large)
    )

    def forward(self, x):
        y = self.fc(x)
        return self.rest(y) + y

    rest = nn.Sequential(nn.BatchNorm1d(4), nn.Tanh(), nn.ReLU())
    model = net(forward, fc=nn.Linear(4, 4), rest=rest)
    traced = core.trace(model, x)
    without = core.fuse(traced, backend(long), verify=True)
    fused = core.fuse(traced, backend(long, short), verify=True)

    assert "fc is also used by" in near_miss(without)["rest_2"]
    assert "differ by 3.5" in near_miss(fused)["rest_2"]


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (fails, "its fused module raises ZeroDivisionError: no luck on its inputs"),
        (lambda y: y.double(), "a tensor of dtype torch.float64 and not torch.float32"),
        (lambda y: y[:1], r"a tensor of shape (1, 3) and not (2, 3)"),
        (lambda y: (y, y), "a tuple and not a Tensor"),
        (lambda y: y / 0 * 0, "NaN where its operations give numbers"),
        (lambda y: y + torch.inf, "results that differ by inf"),
        (lambda y: y * 1.001, "results that differ by "),
    ],
    ids=["raises", "dtype", "shape", "tuple", "NaN", "infinity", "a thousandth"],
)
def test_what_differs_is_named(backend, ops, model, x, make, reason):
    toy = backend(wrong(make))
    fused = core.fuse(core.trace(model, x + 1, backend=toy), toy, verify=True)

    assert ops(fused) == ["Linear", "ReLU"]
    assert reason in near_miss(fused)["_1"]


@pytest.mark.parametrize("make", [lambda y: y + 1e-7, lambda y: y * (1 + 1e-6), torch.clone])
def test_rounding_passes(backend, ops, model, x, make):
    toy = backend(wrong(make))

    assert ops(core.fuse(core.trace(model, x, backend=toy), toy, verify=True)) == ["Wrong"]


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_what_is_not_finite_equals_its_like(backend, ops, model, x, value):
    toy = backend(pattern(right))
    x[0, 0] = value

    assert ops(core.fuse(core.trace(model, x, backend=toy), toy, verify=True)) == ["LinearReLU"]


def test_a_module_that_changes_its_input_in_place_is_refused(backend, ops, net, x):
    class InPlace(nn.Module):
        def forward(self, y):
            return y.tanh_().relu()

    toy = backend(
        core.BackendPatternConfig(
            (nn.Tanh, nn.ReLU), fuser_method=lambda _qat, _tanh, _relu: InPlace()
        )
    )
    model = net(lambda self, x: self.relu(self.tanh(x)) + x, tanh=nn.Tanh(), relu=nn.ReLU())
    before = x.clone()
    fused = core.fuse(core.trace(model, x, backend=toy), toy, verify=True)

    assert ops(fused) == ["Tanh", "ReLU", "add"]
    assert "changes its inputs in place" in near_miss(fused)["relu"]
    assert torch.equal(x, before)


def test_regions_that_feed_each_other_are_judged_each_for_itself(backend, ops, x):
    """One wrong module does not make those behind it look wrong."""
    calls = []

    def second_is_wrong(_qat, linear, relu):
        calls.append(linear)
        return Wrong(linear, too_large) if len(calls) == 2 else LinearReLU(linear, relu)

    toy = backend(pattern(second_is_wrong))
    model = nn.Sequential(*(each for _ in range(3) for each in (nn.Linear(4, 4), nn.ReLU()))).eval()
    fused = core.fuse(core.trace(model, x, backend=toy), toy, verify=True)

    assert ops(fused) == ["LinearReLU", "Linear", "ReLU", "LinearReLU"]
    assert torch.equal(fused(x), model(x))


class LinearAdd(nn.Module):
    def __init__(self, linear) -> None:
        super().__init__()
        self.linear = linear

    def forward(self, x, other):
        return self.linear(x) + other


@pytest.mark.parametrize("pick", ["right", "wrong"])
def test_extra_inputs_get_their_values(backend, net, ops, x, pick):
    """Also one that the operations themselves do not read."""

    def extra(node_pattern):
        other = node_pattern[1]
        return [other if pick == "right" else other.args[0]]

    toy = backend(
        core.BackendPatternConfig(
            complex_pattern=(torch.add, core.MatchAllNode, nn.Linear),
            fuser_method=lambda _qat, _add, _other, linear: LinearAdd(linear),
            root_node_getter=lambda node_pattern: node_pattern[2],
            extra_inputs_getter=extra,
        )
    )
    model = net(lambda self, x: torch.add(x * 2, self.fc(x.tanh())), fc=nn.Linear(4, 4))
    fused = core.fuse(core.trace(model, x, backend=toy), toy, verify=True)

    assert ("LinearAdd" in ops(fused)) is (pick == "right")
    assert torch.equal(fused(x), model(x))


class Statistics(nn.Module):
    def forward(self, x):
        return x.mean(), (x.std(), {"shape": x.shape[0]}), [x.argmax(), None]


class Shifted(Statistics):
    def __init__(self, by, count) -> None:
        super().__init__()
        self.by, self.count = by, count

    def forward(self, x):
        mean, (std, sizes), rest = super().forward(x.tanh())
        return mean, (std + self.by, {"shape": sizes["shape"] + self.count}), rest


@pytest.mark.parametrize(
    ("shift", "reason"),
    [((0, 0), None), ((2, 0), "results that differ by 2 "), ((0, 1), "gives 3 and not 2")],
    ids=["right", "a tensor", "a number"],
)
def test_results_of_several_parts_are_compared_part_by_part(backend, ops, x, shift, reason):
    toy = backend(
        core.BackendPatternConfig(
            (nn.Tanh, Statistics), fuser_method=lambda _qat, _tanh, _rest: Shifted(*shift)
        )
    )
    model = nn.Sequential(nn.Tanh(), Statistics()).eval()
    fused = core.fuse(core.trace(model, x, backend=toy), toy, verify=True)

    assert ops(fused) == (["Tanh", "Statistics"] if reason else ["Shifted"])
    assert reason is None or reason in near_miss(fused)["_1"]


@pytest.mark.parametrize("form", [lambda x: x, lambda x: [x], lambda x: (x,), lambda x: {"x": x}])
def test_other_inputs_can_be_given_in_all_forms(backend, ops, net, x, form):
    """The fault shows for large inputs only."""
    toy = backend(wrong(lambda y: y.clamp(max=100)))
    model = net(lambda self, x: self.relu(self.fc(x)), fc=nn.Linear(4, 3), relu=nn.ReLU())
    nn.init.ones_(model.fc.weight)
    traced = core.trace(model, x, backend=toy)

    assert ops(core.fuse(traced, toy, verify=True)) == ["Wrong"]
    assert ops(core.fuse(traced, toy, verify=form(x.abs() * 1000))) == ["Linear", "ReLU"]


def test_a_pickled_model_has_lost_its_inputs_and_takes_new_ones(backend, ops, model, x):
    toy = backend(wrong(too_large))
    traced = pickle.loads(pickle.dumps(core.trace(model, x, backend=toy)))  # noqa: S301  ours

    with pytest.raises(ModelStateError, match=r"trace the model again, or pass inputs: verify="):
        core.fuse(traced, toy, verify=True)
    assert ops(core.fuse(traced, toy, verify=x)) == ["Linear", "ReLU"]


def test_inputs_are_neither_pickled_nor_copied_nor_kept_by_the_fused_model(backend, model):
    toy = backend(pattern(right))
    x = torch.full((2, 4), 123.5)
    traced = core.trace(model, x, backend=toy)
    assert x.numpy().tobytes() not in pickle.dumps(traced)

    copied, fused = copy.deepcopy(traced), core.fuse(traced, toy, verify=True)
    core.fuse(copied, toy, verify=True)
    alive = weakref.ref(x)
    del traced, copied, x
    gc.collect()
    assert alive() is None
    assert fused(torch.ones(2, 4)).shape == (2, 3)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (torch.ones(2, 5), "does not run on the inputs .* to be verified on: .*shapes"),
        ((torch.ones(2, 4), torch.ones(1)), "example_inputs do not fit"),
        ((), "example_inputs do not fit"),
    ],
    ids=["shape", "too many", "none"],
)
def test_inputs_that_do_not_fit_are_an_error(backend, model, x, inputs, message):
    toy = backend(pattern(right))

    with pytest.raises(ModelStateError, match=message):
        core.fuse(core.trace(model, x, backend=toy), toy, verify=inputs)


def test_an_input_that_was_traced_with_a_value_must_be_given_one(backend, net, x):
    toy = backend(pattern(right))
    model = net(
        lambda self, x, y=None: self.relu(self.fc(x)) + y, fc=nn.Linear(4, 4), relu=nn.ReLU()
    )
    traced = core.trace(model, (x, x), backend=toy)

    with pytest.raises(ModelStateError, match="has none for y"):
        core.fuse(traced, toy, verify=x)


def test_random_state_and_inputs_are_as_before(backend, net, ops, x):
    toy = backend(wrong(lambda y: y + 0 * torch.rand(())))
    model = net(
        lambda self, x: self.relu(self.fc(torch.rand_like(x))), fc=nn.Linear(4, 3), relu=nn.ReLU()
    )
    traced = core.trace(model, x, backend=toy)
    state, before = torch.get_rng_state(), x.clone()
    fused = core.fuse(traced, toy, verify=True)

    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(x, before)
    assert ops(fused) == ["rand_like", "Wrong"]
    assert x.grad_fn is None


def test_a_module_for_training_is_judged_in_eval_mode_and_then_left_in_training_mode(
    backend, model, x
):
    class Trained(LinearReLU):
        def forward(self, y):
            return super().forward(y) + self.training

    toy = backend(pattern(lambda _qat, linear, relu: Trained(linear, relu)))
    fused = core.fuse(core.trace(model, x, backend=toy), toy, qat=True, verify=True)

    assert fused.get_submodule("0").training


@pytest.mark.parametrize("verify", [True, torch.randn(1, 3, 16, 16)], ids=["True", "inputs"])
def test_the_fusers_of_a_real_backend_are_right(verify, ops):
    layers = (nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU6(), nn.Conv2d(4, 2, 1), nn.ReLU())
    model = nn.Sequential(*layers).eval()
    for _ in range(3):
        model.train()(torch.randn(4, 3, 16, 16))
    traced = core.trace(model.eval(), torch.randn(4, 3, 16, 16), backend="fbgemm")

    assert ops(core.fuse(traced, "fbgemm", verify=verify)) == ops(core.fuse(traced, "fbgemm"))
