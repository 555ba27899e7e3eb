from __future__ import annotations

from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import fx, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import fusion_core as core
from fusion_backend_example_npu.chip import ActivationObserver, Pass, WeightObserver, shifted
from fusion_core.nn.reference import ReferenceModule
from fusion_core.qops import dequantize_per_tensor, quantize_per_tensor

BOUNDARY = {quantize_per_tensor, dequantize_per_tensor}


class IntegersOnly(TorchDispatchMode):
    """Refuses every operation that takes or gives a floating tensor, and counts the others."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        tensors = [t for t in tree_leaves((args, kwargs, result)) if isinstance(t, torch.Tensor)]
        assert not any(tensor.is_floating_point() for tensor in tensors), func
        self.count += 1
        return result


class OnChip(fx.Interpreter):
    """Runs what is between quantize and dequantize under a mode."""

    def __init__(self, model, mode):
        super().__init__(model)
        self.mode = mode

    def run_node(self, n):
        if n.op in {"placeholder", "output"} or n.target in BOUNDARY:
            return super().run_node(n)
        with self.mode:
            return super().run_node(n)


def with_biases_in(step, reference):
    """``reference`` with biases in a step that those of all its accumulators divide."""
    for layer in reference.modules():
        if isinstance(layer, ReferenceModule) and layer.bias is not None:
            layer.float_module.bias.data = torch.round(layer.bias.data / step) * step
    return reference


@given(st.integers(-(2**24), 2**24), st.integers(-30, 6))
def test_shifting_is_exact_and_rounds_halves_to_even(value, places):
    wanted = round(value * Fraction(2) ** places)

    assert shifted(torch.tensor([value]), torch.tensor([places])).tolist() == [wanted]


def test_no_float_tensor_comes_into_the_chip(block, images, quantized):
    model, mode = quantized(images, block()), IntegersOnly()
    result = OnChip(model, mode).run(images[0])

    assert torch.equal(result, model(images[0]))
    assert mode.count > 40
    assert not [n for n, each in model.named_buffers() if each.is_floating_point()]
    assert not list(model.parameters())


@pytest.mark.parametrize("activation", [nn.ReLU(), nn.ReLU6(), nn.Hardtanh(-0.3, 0.7), None])
def test_a_layer_gives_the_reference_to_the_bit(images, quantized, activation):
    layers = [nn.Conv2d(3, 6, (3, 5), 2, 1, groups=3), activation or nn.Identity()]
    head = [nn.Flatten(), nn.Linear(6 * 4 * 3, 5)]
    reference = quantized(images, nn.Sequential(*layers, *head), reference=True)
    lowered = core.lower(with_biases_in(2**-9, reference))

    assert sum(isinstance(each, Pass) for each in lowered.modules()) == 2
    for x in images:
        assert torch.equal(lowered(3 * x), reference(3 * x))


@pytest.mark.parametrize(("scale", "step"), [(0.01, 2**-9), (1, 2**-9), (100, 2**-3)])
def test_a_block_gives_the_reference_to_the_bit(block, images, quantized, scale, step):
    model = block()
    model.conv.weight.data *= scale  # the branch in finer or coarser steps than what it is added to
    reference = with_biases_in(step, quantized(images, model, reference=True))
    lowered = core.lower(reference)

    for x in images:
        assert torch.equal(lowered(3 * x), reference(3 * x))


def test_a_layer_without_a_bias_gives_the_reference_to_the_bit(images, quantized):
    model = nn.Sequential(nn.Conv2d(3, 6, 3, padding="same", bias=False), nn.ReLU())
    reference = quantized(images, model, reference=True, bias_correction=False)

    assert torch.equal(core.lower(reference)(images[0]), reference(images[0]))


def test_any_bias_costs_one_step_at_the_most(images, quantized):
    model = nn.Sequential(nn.Conv2d(3, 8, 3))
    reference = quantized(images, model, reference=True)
    lowered = core.lower(reference)
    (step,) = {n.args[1] for n in lowered.graph.nodes if n.target is dequantize_per_tensor}

    for x in images:
        assert (lowered(x) - reference(x)).abs().max() <= step


def test_every_scale_of_a_model_is_a_power_of_two(block, images, quantized):
    reference = quantized(images, block(), reference=True)
    calls = [n for n in reference.graph.nodes if n.target in BOUNDARY]
    weights = [m.weight_scale for m in reference.modules() if isinstance(m, ReferenceModule)]
    scales = torch.cat([torch.tensor([n.args[1] for n in calls]), *weights])

    assert len(weights) == 3
    assert torch.equal(torch.exp2(torch.log2(scales).round()), scales)
    assert {n.args[2] for n in calls} == {0}


@pytest.mark.parametrize("observer", [ActivationObserver, WeightObserver])
def test_a_scale_is_rounded_up_and_less_than_doubled(observer):
    values = torch.randn(6, 50) * torch.logspace(-3, 3, 6).unsqueeze(1)
    (kind,) = observer.__bases__
    mine = observer(dtype=torch.qint8)
    public = kind(dtype=torch.qint8, qscheme=mine.qscheme)
    mine(values), public(values)
    (have, _), (want, _) = mine.calculate_qparams(), public.calculate_qparams()

    assert ((have >= want) & (have < 2 * want)).all()


def test_observers_merge_as_the_public_ones_do():
    one, other, both = (ActivationObserver(dtype=torch.qint8) for _ in range(3))
    low, high = torch.linspace(-1, 0, 100), torch.linspace(0, 30, 100)
    one(low), other(high), both(torch.cat([low, high]))
    one.merge(other)

    assert one.calculate_qparams() == both.calculate_qparams()


def test_scales_that_are_no_powers_of_two_are_refused_with_the_reason(images, quantized):
    plain = core.ObserverSpec(
        core.nn.MinMaxObserver, dtype=torch.qint8, qscheme=torch.per_tensor_symmetric
    )
    mapping = core.QConfigMapping(global_qconfig=core.QConfig(activation=plain, weight=plain))
    model = quantized(images, nn.Sequential(nn.Conv2d(3, 4, 3)), qconfig_mapping=mapping)
    (entry,) = core.report(model).ledger

    assert entry.status is core.Status.REFERENCE
    assert "must be powers of two" in entry.reason


def test_scales_along_the_inputs_of_a_weight_are_refused(images, quantized, npu_qconfig):
    weight = core.ObserverSpec(WeightObserver, dtype=torch.qint8, ch_axis=1)
    qconfig = npu_qconfig.model_copy(update={"weight": weight})
    mapping = core.QConfigMapping(global_qconfig=qconfig)
    model = quantized(images, nn.Sequential(nn.Conv2d(3, 3, 3)), qconfig_mapping=mapping)
    (entry,) = core.report(model).ledger

    assert "shifts output channels" in entry.reason


def test_sums_beyond_the_accumulator_are_refused(images, quantized):
    model = nn.Sequential(nn.Conv2d(3, 4, 1))
    model[0].weight.data.fill_(1e-9)
    model[0].bias.data.fill_(1e6)
    (entry,) = core.report(quantized(images, model)).ledger

    assert "32 bits of the accumulator" in entry.reason
