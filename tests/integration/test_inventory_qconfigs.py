"""Which qconfig counts where, and what its setters say; beside each rule, the upstream test that it restates."""

from __future__ import annotations

import operator

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  the name everyone knows it by
from torch import nn

import fusion_core as core

A, B, C = (core.catalog.static_qconfig(quant_max=each) for each in (101, 102, 103))
"""Qconfigs that are told apart by their highest code."""


class Block(nn.Module):
    """Two layers, an operator, a function and a method."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        x = self.one(x)
        x = torch.sigmoid(self.other(x) * x)
        return (x + x).reshape(-1, 4)


class Net(nn.Module):
    """Two blocks and a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right, self.head = Block(), Block(), nn.Linear(4, 4)

    def forward(self, x):
        return self.head(self.right(self.left(x)))


PATTERNS = [
    *core.catalog.linear([core.DTypeConfig(input_dtype=torch.quint8, output_dtype=torch.quint8)]),
    *core.catalog.binary([core.DTypeConfig(input_dtype=torch.quint8, output_dtype=torch.quint8)]),
    *core.catalog.shape([core.DTypeConfig(input_dtype=torch.quint8, output_dtype=torch.quint8)]),
    core.BackendPatternConfig(
        core.ops.sigmoid,
        dtype_configs=[core.DTypeConfig(input_dtype=torch.quint8, output_dtype=torch.quint8)],
    ),
]


@pytest.fixture
def toy():
    class Toy:
        @core.hookimpl
        def fusion_pattern_configs(self):
            return PATTERNS

    undo = core.register_backend("toy", Toy())
    yield "toy"
    undo()


@pytest.fixture
def highest(toy):
    """For each operation that gives codes, by its name in the graph, the highest of them."""

    def highest(mapping):
        model = Net().eval()
        traced = core.trace(model, torch.randn(3, 4), backend=toy)
        made = core.prepare(core.fuse(traced, toy), toy, mapping)
        found = {}
        for node in made.graph.nodes:
            called = made.get_submodule(node.target) if node.op == "call_module" else None
            if getattr(called, "label", "").startswith("the output of"):
                found.setdefault(node.args[0].name, called.quant_max)
        return found

    return highest


def everywhere(qconfig=A):
    return core.QConfigMapping(global_qconfig=qconfig)


# test_qconfig_none
def test_none_everywhere_is_float(highest):
    assert highest(everywhere(None)) == {}


# test_qconfig_module_type, test_qconfig_qat_module_type, test_qconfig_fused_module
def test_a_module_type_holds_for_its_layers_fused_or_not(highest):
    found = highest(everywhere().set_object_type(nn.Linear, B))

    assert found["left_one"] == found["left_other"] == found["head"] == 102
    assert found["mul"] == found["sigmoid"] == 101


# test_qconfig_fused_module, test_qconfig_dict_with_fused_modules
def test_a_fused_layer_has_the_qconfig_of_its_layer(stages):
    mapping = everywhere(None).set_object_type(
        nn.Linear, core.catalog.static_qconfig(weight_max=63, weight_min=-64)
    )
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.Sigmoid())
    found = stages(model, [torch.randn(3, 4) for _ in range(3)], None, mapping)

    assert found.observed == ". LinearReLU . Linear Sigmoid"


# test_qconfig_function, test_qconfig_for_call_func
@pytest.mark.parametrize("kind", [operator.mul, torch.sigmoid, operator.add])
def test_a_function_holds_for_its_calls(highest, kind):
    found = highest(everywhere().set_object_type(kind, B))
    name = kind.__name__

    assert found[name] == found[f"{name}_1"] == 102
    assert set(found.values()) == {101, 102}


# test_qconfig_for_call_method
def test_a_method_goes_by_its_name(highest):
    found = highest(everywhere().set_object_type("reshape", None))

    assert "reshape" not in found
    assert found["add"] == 101


# test_qconfig_module_name_regex
def test_a_regex_holds_for_the_paths_it_begins(highest):
    found = highest(everywhere().set_module_name_regex("left.*", B))

    assert found["left_one"] == found["left_other"] == found["mul"] == 102
    assert found["right_one"] == found["mul_1"] == found["head"] == 101


# test_qconfig_module_name_regex: the first that matches counts
def test_of_two_regexes_the_first_counts(highest):
    mapping = everywhere().set_module_name_regex("left.one", B).set_module_name_regex("left", C)
    found = highest(mapping)

    assert (found["left_one"], found["left_other"]) == (102, 103)


ORDER = ("left", operator.mul, 0)


# test_qconfig_precedence, test_qconfig_module_name_object_type_order
def test_a_rule_gives_way_to_every_narrower_one(highest):
    mapping = everywhere(None)
    steps = [
        (lambda: mapping.set_global(A), 101),
        (lambda: mapping.set_object_type(operator.mul, B), 102),
        (lambda: mapping.set_module_name_regex("left", C), 103),
        (lambda: mapping.set_module_name("left", A), 101),
        (lambda: mapping.set_module_name_object_type_order(*ORDER, B), 102),
    ]
    for step, wanted in steps:
        assert step() is mapping
        assert highest(mapping)["mul"] == wanted


# test_qconfig_precedence: None at a narrower rule wins over a qconfig at a wider one
@pytest.mark.parametrize(
    "narrower",
    [
        lambda mapping: mapping.set_object_type(operator.mul, None),
        lambda mapping: mapping.set_module_name_regex("left", None),
        lambda mapping: mapping.set_module_name("left", None),
        lambda mapping: mapping.set_module_name_object_type_order(*ORDER, None),
    ],
    ids=["type", "regex", "name", "order"],
)
def test_none_wins_like_any_other_qconfig(highest, narrower):
    assert "mul" not in highest(narrower(everywhere()))


# test_qconfig_module_name_object_type_order
def test_calls_are_counted_within_the_module_they_stand_in(highest):
    mapping = everywhere()
    mapping.set_module_name_object_type_order("left", nn.Linear, 1, B)
    mapping.set_module_name_object_type_order("right", operator.add, 0, C)
    found = highest(mapping)

    assert (found["left_one"], found["left_other"]) == (101, 102)
    assert (found["add"], found["add_1"]) == (101, 103)
    assert found["right_other"] == 101


# test_qconfig_none, test_qconfig_function: between two layers that are quantized
@pytest.mark.parametrize(
    ("kind", "function"), [(torch.sigmoid, torch.sigmoid), (operator.mul, lambda y: y * y)]
)
def test_what_a_rule_leaves_in_float_is_taken_by_no_kernel(stages, kind, function):
    class Between(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.other = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x):
            return self.other(function(self.one(x)))

    mapping = core.get_backend("fbgemm").qconfig_mapping.set_object_type(kind, None)
    found = stages(Between(), [torch.randn(3, 4) for _ in range(3)], None, mapping)

    assert f" {kind.__name__} q " in found.packed
    (line,) = found.left_in_float()
    assert "the qconfig mapping leaves it in float" in line
    assert f".{kind.__name__})" in line


# test_default_quant_after_none_qconfig
def test_what_follows_a_layer_in_float_is_quantized_from_its_input(highest):
    found = highest(everywhere().set_module_name("left", None))

    assert {name for name in found if name.startswith("left")} == set()
    assert found["right_one"] == found["reshape_1"] == 101


# test_qconfig_fused_module: structurally equal qconfigs built twice are one
def test_equal_qconfigs_built_twice_share_their_observers(highest):
    def twice():
        return core.catalog.static_qconfig(quant_max=101)

    mapping = core.QConfigMapping(global_qconfig=None)
    mapping.set_object_type(nn.Linear, twice()).set_object_type(operator.mul, twice())
    found = highest(mapping)

    assert twice() == twice()
    assert twice() is not twice()
    assert list(found.values()).count(101) == len(found)
    assert "left_one" in found


# test_qconfig_mapping_set_*: a setter changes its table and no other
@pytest.mark.parametrize(
    ("setter", "arguments", "field", "key"),
    [
        ("set_global", (), "global_qconfig", None),
        ("set_object_type", (F.relu,), "object_type_qconfigs", F.relu),
        ("set_module_name_regex", ("a.*",), "module_name_regex_qconfigs", "a.*"),
        ("set_module_name", ("a",), "module_name_qconfigs", "a"),
        (
            "set_module_name_object_type_order",
            ("a", F.relu, 0),
            "module_name_object_type_order_qconfigs",
            ("a", F.relu, 0),
        ),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_a_setter_replaces_what_it_names_and_nothing_else(setter, arguments, field, key):
    mapping = core.QConfigMapping()
    untouched = {name: value for name, value in core.QConfigMapping() if name != field}
    for qconfig in (A, B, None):
        assert getattr(mapping, setter)(*arguments, qconfig) is mapping
        table = getattr(mapping, field)
        assert (table if key is None else table[key]) == qconfig

    assert {name: value for name, value in mapping if name != field} == untouched
    assert key is None or len(getattr(mapping, field)) == 1


# test_qconfig_mapping_from_dict
def test_the_dictionary_of_older_releases_is_a_mapping():
    stock = pytest.importorskip("torch.ao.quantization.qconfig")
    given = {
        "": stock.default_qconfig,
        "object_type": [(nn.Linear, None), ("reshape", stock.default_qconfig)],
        "module_name_regex": [("foo.*", stock.default_qconfig)],
        "module_name": [("bar", None)],
        "module_name_object_type_order": [("bar", F.linear, 0, None)],
    }
    mapping = core.QConfigMapping.model_validate(given)

    assert mapping.global_qconfig == mapping.object_type_qconfigs["reshape"]
    assert mapping.object_type_qconfigs[nn.Linear] is None
    assert list(mapping.module_name_regex_qconfigs) == ["foo.*"]
    assert mapping.module_name_qconfigs == {"bar": None}
    assert mapping.module_name_object_type_order_qconfigs == {("bar", F.linear, 0): None}


# test_qconfig_dict_setup
@pytest.mark.parametrize(("name", "highest_code"), [("fbgemm", 127), ("qnnpack", 255)])
def test_the_stock_mappings_keep_their_ranges(name, highest_code):
    mappings = pytest.importorskip("torch.ao.quantization.qconfig_mapping")
    mapping = core.QConfigMapping.model_validate(mappings.get_default_qconfig_mapping(name))
    observer = mapping.global_qconfig.activation()

    assert (observer.quant_min, observer.quant_max) == (0, highest_code)


# test_convtranspose_per_channel_fails_early
def test_a_transposed_convolution_with_a_scale_for_each_channel_is_not_guessed_at(stages):
    mapping = core.QConfigMapping(
        global_qconfig=core.catalog.static_qconfig(weight_min=-64, weight_max=63)
    )
    model = nn.Sequential(nn.ConvTranspose2d(4, 6, 3))
    found = stages(model, [torch.randn(2, 4, 5, 5) for _ in range(3)], None, mapping)

    assert all(not line.endswith(": None") for line in found.left_in_float())
    assert found.kept() > 20


# test_change_backend_config_for_fixed_qparam_ops, and upstream's empty list of dtypes
def test_a_pattern_without_dtypes_is_never_quantized():
    class Empty:
        @core.hookimpl
        def fusion_pattern_configs(self):
            return [core.BackendPatternConfig(nn.Linear), core.BackendPatternConfig(nn.Sigmoid)]

    undo = core.register_backend("empty", Empty())
    model = nn.Sequential(nn.Linear(4, 4), nn.Sigmoid()).eval()
    x = torch.randn(3, 4)
    try:
        quantized = core.quantize(model, "empty", calibration=[x])
    finally:
        undo()

    reasons = [line.reason for line in core.report(quantized).ledger]
    assert all(reason.startswith("no pattern of empty matches") for reason in reasons)
    assert torch.equal(quantized(x), model(x))
