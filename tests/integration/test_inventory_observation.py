"""Where observers stand, and what they leave alone; beside each rule, the upstream test that it restates."""

from __future__ import annotations

import copy
import io

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  the name everyone knows it by
from torch import nn

import fusion_core as core

ONE_STEP = 1.001


class Net(nn.Module):
    """Two layers, and a forward given as a function of the net and the input."""

    def __init__(self, function, **layers) -> None:
        super().__init__()
        self.one, self.other = nn.Conv2d(3, 3, 1), nn.Conv2d(3, 3, 1)
        for name, layer in layers.items():
            setattr(self, name, layer)
        self.function = function

    def forward(self, x):
        return self.function(self, x)


def data(*shape, count=3):
    return [torch.randn(*(shape or (2, 3, 6, 6))) for _ in range(count)]


MOVES = {
    "test_masked_fill_nontensor_args_not_observed": lambda y, n: y.masked_fill(y > 9, 0.1 * n),
    "test_permute_nontensor_args_not_observed": lambda y, n: y.permute(0, 1, n + 1, n),
    "test_repeat_nontensor_args_not_observed": lambda y, n: y.repeat(n, 1, 1, n - 1),
    "test_reshape_nontensor_args_not_observed": lambda y, n: y.reshape(n, -1),
    "test_size_nontensor_args_not_observed": lambda y, n: y.view(y.size(n - 2), -1),
    "test_transpose_nontensor_args_not_observed": lambda y, n: y.transpose(n, n + 1),
    "test_torch_transpose_nontensor_args_not_observed": lambda y, n: torch.transpose(y, n - 1, n),
    "test_unsqueeze_nontensor_args_not_observed": lambda y, n: y.unsqueeze(n),
    "test_unsqueeze__nontensor_args_not_observed": lambda y, n: y.unsqueeze_(n),
    "test_torch_unsqueeze_nontensor_args_not_observed": torch.unsqueeze,
    "test_view_nontensor_args_not_observed": lambda y, n: y.contiguous().view(-1, n),
}


@pytest.mark.parametrize("name", MOVES)
def test_numbers_that_are_computed_from_sizes_are_not_observed(stages, name):
    function = MOVES[name]
    found = stages(Net(lambda m, x: function(m.one(x), x.size(0))), data())
    observed = [node for node in found.prepared.graph.nodes if node.name.startswith("observer")]

    assert observed
    assert all("tensor_meta" in node.args[0].meta for node in observed)
    assert found.kept() > 25


class Arguments(nn.Module):
    """A convolution, and a number out of a container that is given beside the image."""

    def __init__(self, pick) -> None:
        super().__init__()
        self.conv, self.pick = nn.Conv2d(3, 3, 1), pick

    def forward(self, x, given):
        return torch.transpose(self.conv(x), *self.pick(given)).flatten(1)


# test_propagate_dtypes_for_known_nodes_{list,split_list,tuple,split_tuple,dict,dict_tuple,...}_args
@pytest.mark.parametrize(
    ("given", "pick"),
    [
        ([1, 2], lambda given: [given[0], given[1]]),
        ((1, 2), lambda given: (given[0], given[1])),
        ({"a": 1, "b": 2}, lambda given: (given["a"], given["b"])),
        ({"dims": (1, 2)}, lambda given: (given["dims"][0], given["dims"][1])),
    ],
    ids=["list", "tuple", "dict", "dict of tuple"],
)
def test_numbers_out_of_containers_are_not_observed(stages, given, pick):
    found = stages(Arguments(pick), [(each, given) for each in data()])

    assert found.observed.startswith(". Conv2d .") or found.observed.startswith("getitem")
    assert found.left_in_float() == [] or all("getitem" in each for each in found.left_in_float())
    assert found.kept() > 25


PLACES = {
    # test_no_obs_between_unmatched_node_and_copy_node
    "float in front of a pool": (
        lambda m, x: F.max_pool2d(F.gelu(m.one(x)), 2),
        ". Conv2d . gelu max_pool2d",
    ),
    # test_dequantize, test_sequential
    "float behind a layer": (
        lambda m, x: m.other(F.gelu(m.one(x))),
        ". Conv2d . gelu . Conv2d .",
    ),
    # test_copy_node_has_shared_actpp_instance
    "a pool called twice": (
        lambda m, x: m.pool(m.pool(m.one(x))),
        ". Conv2d . MaxPool2d . MaxPool2d .",
    ),
    # test_fold_quant_dequant, test_dynamic_linear_input_multiple_use
    "two readers": (
        lambda m, x: m.one(x) + m.other(x),
        ". Conv2d . Conv2d . add .",
    ),
    # test_int8_input_no_unnecessary_fq
    "a sum of the input and itself": (lambda _m, x: x + x, ". add ."),
    # test_not_used
    "a layer that is not called": (lambda m, x: m.one(x), ". Conv2d ."),
    # of the tests return_none and fp32_sum
    "a result that nobody reads": (lambda m, x: (m.one(x), m.other(x).sum())[0], ". Conv2d ."),
}


@pytest.mark.parametrize("name", PLACES)
def test_observers_stand_where_codes_begin_and_end(stages, name):
    function, observed = PLACES[name]
    found = stages(Net(function, pool=nn.MaxPool2d(2)), data())
    kept = [each for each in found.observed.split() if each != "sum"]

    assert " ".join(kept).startswith(observed)
    assert found.kept() > 25


# test_copy_node_has_shared_actpp_instance
def test_what_a_pool_gives_has_the_observer_of_what_it_reads(stages):
    found = stages(Net(lambda m, x: m.pool(m.pool(m.one(x))), pool=nn.MaxPool2d(2, 1)), data())
    observers = found.observers()

    assert len({id(each) for each in observers}) == 2
    assert observers[1] is observers[2] is observers[3]
    assert found.packed.count("MaxPool2d") == 2


# test_fp32_input_fp32_output, test_fp32_input_quantized_output, test_quantized_input_fp32_output,
# test_quantized_input_quantized_output, test_quant_output_always_observed
@pytest.mark.parametrize("into", [False, True], ids=["float in", "codes in"])
@pytest.mark.parametrize("out", [False, True], ids=["float out", "codes out"])
def test_codes_may_come_in_and_go_out(into, out):
    model, inputs = Net(lambda m, x: m.other(m.one(x))).eval(), data()
    custom = core.CustomConfig(
        quantized_inputs=("x",) if into else (), quantized_outputs=("",) if out else ()
    )
    plain = core.quantize(model, "fbgemm", calibration=inputs)
    quantized = core.quantize(model, "fbgemm", calibration=inputs, custom=custom)
    ports = core.interface(quantized)
    x, wanted = inputs[0], plain(inputs[0])
    if into:
        port = ports.inputs["x"]
        x = (x / port.scale).round().add(port.zero_point).clamp(port.quant_min, port.quant_max)
        x = x.to(port.dtype)
    given = quantized(x)
    if out:
        port = ports.outputs[""]
        assert given.dtype is port.dtype is torch.uint8
        given = (given.float() - port.zero_point) * port.scale

    step = core.interface(plain).outputs[""].scale or float(wanted.abs().max() / 100)
    assert (given - wanted).abs().max() <= ONE_STEP * step


# test_save_observer_state_dict, test_prepared_model_deepcopy, test_state_dict
def test_what_observers_have_seen_goes_with_a_state_dict(stages):
    model, inputs = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4)), data(4, 8)
    seen = stages(model, inputs)
    fused = core.fuse(core.trace(model, inputs[0], backend="fbgemm"), "fbgemm")
    fresh, file = core.prepare(fused), io.BytesIO()
    torch.save(seen.prepared.state_dict(), file)
    file.seek(0)
    fresh.load_state_dict(torch.load(file, weights_only=True))

    assert [each.calculate_qparams() for each in _observers(fresh)] == [
        each.calculate_qparams() for each in _observers(seen.prepared)
    ]
    copied = copy.deepcopy(fresh)
    assert torch.equal(copied(inputs[0]), seen.prepared(inputs[0]))


def _observers(model):
    return [each for each in model.modules() if hasattr(each, "label")]


# test_qparams_buffers, test_quantized_model_type
@pytest.mark.parametrize("mode", ["static", "dynamic"])
def test_a_lowered_model_is_a_graph_module_that_a_copy_of_computes_the_same(stages, mode):
    found = stages(nn.Sequential(nn.Linear(8, 4), nn.ReLU()), data(4, 8), mode)
    copied, x = copy.deepcopy(found.lowered), torch.randn(4, 8)

    assert isinstance(found.lowered, torch.fx.GraphModule)
    assert list(copied.state_dict()) == list(found.lowered.state_dict())
    assert torch.equal(copied(x), found.lowered(x))


# test_qat_embedding_linear, test_qat_embeddingbag_linear
@pytest.mark.parametrize("kind", [nn.Embedding, nn.EmbeddingBag])
def test_words_and_a_layer_can_be_trained(stages, kind):
    model = nn.Sequential(kind(10, 6), nn.Linear(6, 4))
    found = stages(model, [torch.randint(10, (5, 3)) for _ in range(3)], "qat")
    found.prepared.train()(torch.randint(10, (5, 3))).square().sum().backward()

    assert any(
        each.grad is not None for name, each in found.prepared.named_parameters() if "0" in name
    )
    assert found.steps_apart() <= ONE_STEP
    assert found.kept() > 10


# test_dynamic_with_fusion_multiple_uses, test_dynamic_linear_input_multiple_use
def test_a_dynamic_layer_and_its_relu_at_two_places_round_their_input_once_each(stages):
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc, self.other, self.relu = nn.Linear(6, 6), nn.Linear(6, 6), nn.ReLU()

        def forward(self, x):
            return self.relu(self.fc(self.relu(self.fc(x)))) + self.other(x)

    found = stages(Twice(), data(4, 6), "dynamic")

    assert found.converted.split().count("qd") == 2
    assert found.converted.split().count("LinearReLU") == 2
    assert found.kept() > 25
