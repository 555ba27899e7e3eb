"""explain names for every node what stopped each pattern, at which operand, and what would help."""

from __future__ import annotations

import copy
import json
from types import ModuleType

import pytest
import torch
from torch import nn

import fusion_core as core
from fusion_core.errors import TrainingModeError, UnknownNodeError
from fusion_core.patterns import any_order, call, optional, where
from fusion_core.registry import Registry

INT8 = core.DTypeConfig(
    input_dtype=torch.quint8, output_dtype=torch.quint8, weight_dtype=torch.qint8
)
X = torch.randn(1, 3, 8, 8)


def words(text: object) -> str:
    return " ".join(str(text).split())


def identity(_is_qat, *modules):
    return nn.Sequential(*modules)


def fusing(*pattern, **fields):
    return core.BackendPatternConfig(pattern, fuser_method=identity, **fields)


def quantizing(pattern, **fields):
    return core.BackendPatternConfig(pattern, dtype_configs=[INT8], **fields)


CONV = quantizing(
    nn.Conv2d,
    root_module=nn.Conv2d,
    reference_quantized_module=core.nn.reference.Conv2d,
)


@pytest.fixture
def toy():
    """A backend named ``toy`` of some pattern configs."""

    def toy(*configs):
        plugin = ModuleType("toy_plugin")
        plugin.fusion_pattern_configs = core.hookimpl(lambda: list(configs))
        registry = Registry()
        registry.register_backend("toy", plugin)
        return registry.get_backend("toy")

    return toy


def only(explanation):
    (node,) = explanation.nodes
    return node


def refused(node, pattern):
    (found,) = [each for each in node.candidates if each.pattern == pattern]
    assert found.outcome == "refused"
    return found


def test_a_scaled_residual_names_the_argument_and_how_to_call_it(net, toy) -> None:
    model = net(
        lambda self, x: torch.relu(torch.add(x, self.conv(x), alpha=2)),
        conv=nn.Conv2d(3, 3, 3, padding=1),
    )
    backend = toy(CONV, quantizing((core.ops.add, core.ops.relu)), quantizing(core.ops.add))
    node = only(core.explain(model, backend, "relu", example_inputs=X))
    miss = refused(node, "add -> relu")
    assert miss.reason == "add has alpha=2, which no place of the pattern names"
    assert miss.stopped_at == "argument 'alpha' of add"
    assert (miss.depth, miss.operators) == (1, 2)
    assert miss.remedy.startswith("call add without alpha=2")
    assert words("to match: " + miss.remedy) in words(core.explain(model, backend, "relu"))


def test_a_second_reader_is_named(net, toy) -> None:
    def forward(self, x):
        y = self.conv(x)
        return self.relu(y) + y

    model = net(forward, conv=nn.Conv2d(3, 3, 3), relu=nn.ReLU())
    backend = toy(CONV, fusing(nn.Conv2d, nn.ReLU))
    miss = refused(only(core.explain(model, backend, "relu", example_inputs=X)), "Conv2d -> ReLU")
    assert miss.reason == "conv is also used by add"
    assert (miss.depth, miss.operators) == (2, 2)
    assert "compute it a second time for add" in miss.remedy
    conv = only(core.explain(model, backend, "conv", example_inputs=X))
    assert [each.anchor for each in conv.stages[0].stopped] == ["relu"]
    assert conv.is_quantized


def test_a_missing_batch_norm_is_named_with_the_operand_where_it_belongs(net, toy) -> None:
    model = net(lambda self, x: self.relu(self.conv(x)), conv=nn.Conv2d(3, 4, 3), relu=nn.ReLU())
    backend = toy(CONV, fusing(nn.Conv2d, nn.BatchNorm2d, nn.ReLU))
    explanation = core.explain(model, backend, "relu", example_inputs=X)
    miss = refused(only(explanation), "Conv2d -> BatchNorm2d -> ReLU")
    assert miss.reason == "conv (Conv2d) is not BatchNorm2d"
    assert miss.stopped_at == "operand 'input' of relu"
    assert miss.is_other_operator
    assert "have BatchNorm2d in this place" in miss.remedy
    text = words(explanation)
    assert "operand 'input' of relu: conv (Conv2d) is not BatchNorm2d" in text
    assert "(1 of 3 operators in place)" in text
    # The convolution is told that it was in the way, and that the pattern has it elsewhere.
    conv = words(core.explain(model, toy(fusing(nn.Conv2d, nn.BatchNorm2d, nn.ReLU)), "conv"))
    assert "it stands elsewhere in Conv2d -> BatchNorm2d -> ReLU" in conv
    assert "conv is what stopped these, which would end further on" in conv


def is_three_wide(_node, conv):
    return conv.kernel_size == (3, 3)


def test_a_wrong_kernel_size_gives_the_reason_of_the_condition(net, toy) -> None:
    model = net(lambda self, x: self.relu(self.conv(x)), conv=nn.Conv2d(3, 4, 5), relu=nn.ReLU())
    three = where(nn.Conv2d, is_three_wide, reason="the kernel is 3 by 3")
    backend = toy(CONV, fusing(three, nn.ReLU))
    (miss,) = only(core.explain(model, backend, "relu", example_inputs=X)).stages[0].candidates
    assert miss.reason == "conv does not fulfil the condition: the kernel is 3 by 3"
    assert miss.stopped_at == "operand 'input' of relu"
    assert (miss.depth, miss.operators) == (2, 2)
    assert "so that the condition holds" in miss.remedy


def test_a_constraint_by_keyword_names_the_argument_and_its_value(net, toy) -> None:
    model = net(lambda self, x: torch.flatten(self.conv(x), 2), conv=nn.Conv2d(3, 4, 3))
    choice = core.any_of(0, 1)
    backend = toy(CONV, quantizing(call(core.ops.flatten, start_dim=choice)))
    (miss,) = only(core.explain(model, backend, "flatten", example_inputs=X)).candidates
    assert miss.reason == "flatten has start_dim=2; start_dim must be any_of(0, 1)"
    assert miss.stopped_at == "argument 'start_dim' of flatten"
    assert miss.remedy == "call flatten with start_dim=any_of(0, 1)"


def test_a_name_that_the_mapping_leaves_in_float_is_told_the_rule(small) -> None:
    mapping = core.get_backend("fbgemm").qconfig_mapping.set_module_name("head", None)
    explanation = core.explain(small, "fbgemm", qconfig=mapping)
    head = explanation["head"]
    assert not head.is_quantized
    assert head.rule == "module name 'head', which leaves it in float"
    (miss,) = [each for each in head.candidates if each.outcome == "refused"]
    assert "Linear" in miss.pattern
    assert miss.reason == "the qconfig mapping leaves it in float (module name 'head')"
    assert explanation["silu"].rule == "global"
    assert "qconfig mapping: module name 'head'" in words(explanation.expanded())


def test_the_rules_that_the_deciding_one_overrides_are_told_also_once_prepared(small) -> None:
    x = torch.randn(1, 3, 8, 8)
    mapping = core.get_backend("fbgemm").qconfig_mapping.set_object_type(nn.Linear, None)
    mapping.set_module_name("head", mapping.global_qconfig)
    traced = core.trace(small, x, backend="fbgemm")
    prepared = core.prepare(core.fuse(traced, "fbgemm"), "fbgemm", mapping)
    for model in (traced, prepared):
        head = core.explain(model, "fbgemm", qconfig=mapping)["head"]
        assert head.rule == "module name 'head'"
        assert head.overridden == ("operation type torch.nn.modules.linear.Linear", "global")
    text = words(core.explain(traced, "fbgemm", "head", qconfig=mapping))
    assert "over operation type torch.nn.modules.linear.Linear; global" in text


def test_where_one_pattern_takes_two_qconfigs_it_is_told_whose_counts(net, toy) -> None:
    model = net(lambda self, x: self.relu(self.conv(x)), conv=nn.Conv2d(3, 4, 3), relu=nn.ReLU())
    both = quantizing((nn.Conv2d, nn.ReLU))
    mapping = core.QConfigMapping(global_qconfig=core.catalog.static_qconfig())
    mapping.set_object_type(nn.ReLU, core.catalog.static_qconfig(quant_max=127))
    found = core.explain(model, toy(both), qconfig=mapping)
    assert found["conv"].rule == "global"
    assert found["relu"].rule == (
        "operation type torch.nn.modules.activation.ReLU; but conv decides for all that its "
        "pattern takes (global)"
    )


def test_a_preset_and_a_qconfig_of_pytorch_are_explained_like_any(small) -> None:
    stock = pytest.importorskip("torch.ao.quantization.qconfig")
    assert core.explain(small, "qnnpack", "head", qconfig="min_max")["head"].is_quantized
    unsigned = stock.default_quint8_weight_qconfig
    refused = core.explain(small, "fbgemm", "head", qconfig=unsigned)["head"]
    assert "its weight must be torch.qint8, the qconfig gives torch.quint8" in refused.outcome


def test_a_qconfig_that_fits_no_kernel_is_told_what_the_kernel_takes(net, toy) -> None:
    model = net(lambda self, x: self.conv(x), conv=nn.Conv2d(3, 4, 3))
    wanted = core.DTypeConfig(
        input_dtype=torch.qint8, output_dtype=torch.quint8, weight_dtype=torch.qint8
    )
    backend = toy(core.BackendPatternConfig(nn.Conv2d, dtype_configs=[wanted]))
    qconfig = core.catalog.static_qconfig()
    (miss,) = only(core.explain(model, backend, qconfig=qconfig)).candidates
    assert miss.reason == "its input must be torch.qint8, the qconfig gives torch.quint8"


def test_an_operation_that_the_backend_does_not_know_is_told_similar_ones(small) -> None:
    silu = core.explain(small, "fbgemm", "silu")
    assert only(silu).candidates == ()
    assert only(silu).outcome == "stays in float: no pattern of fbgemm matches SiLU here"
    assert "no pattern for quantizing ends in this operator" in words(silu)
    assert "similar names that have one: relu" in words(silu)


def test_a_constraint_and_a_fuser_method_that_skip_are_heard(net, toy) -> None:
    model = net(lambda self, x: self.relu(self.conv(x)), conv=nn.Conv2d(3, 4, 3), relu=nn.ReLU())
    no_time = fusing(nn.Conv2d, nn.ReLU, constraint=lambda _: core.Skip("not today"), priority=1)
    no_will = core.BackendPatternConfig(
        (nn.Conv2d, core.any_of(nn.ReLU, nn.ReLU6)),
        fuser_method=lambda *_: core.Skip("no such kernel"),
    )
    node = only(core.explain(model, toy(no_time, no_will), "relu", example_inputs=X))
    reasons = [(each.priority, each.reason) for each in node.stages[0].candidates]
    assert reasons == [(1, "not today"), (0, "no such kernel")]


def test_what_matches_goes_first_and_what_was_preferred_is_named(net, toy) -> None:
    model = net(lambda self, x: self.relu(self.conv(x)), conv=nn.Conv2d(3, 4, 3), relu=nn.ReLU())
    backend = toy(
        fusing(nn.Conv2d, nn.BatchNorm2d, nn.ReLU),
        fusing(nn.Conv2d, nn.ReLU),
        fusing(nn.Conv2d, nn.ReLU, priority=2),
        fusing(nn.Linear, nn.BatchNorm1d, nn.ReLU),
    )
    stage = only(core.explain(model, backend, "relu", example_inputs=X)).stages[0]
    assert [each.outcome for each in stage.candidates] == [
        *("accepted", "passed over", "refused", "refused")
    ]
    assert [each.priority for each in stage.candidates] == [2, 0, 0, 0]
    assert stage.candidates[1].reason == "Conv2d -> ReLU is preferred"
    assert stage.members == ("conv", "relu")
    assert "toy" in stage.candidates[0].plugin


def test_what_is_not_to_be_observed_is_left_as_it_is(net, toy) -> None:
    model = net(lambda self, x: self.conv(x).sigmoid(), conv=nn.Conv2d(3, 4, 3))
    free = core.ObservationType.INPUT_OUTPUT_NOT_OBSERVED
    backend = toy(CONV, core.BackendPatternConfig(core.ops.sigmoid, observation_type=free))
    node = only(core.explain(model, backend, "sigmoid", example_inputs=X))
    assert not node.is_quantized
    assert node.outcome == ("left as it is: the pattern sigmoid asks for nothing to be quantized")
    assert node.candidates[0].outcome == "accepted"


def test_a_refused_match_says_what_it_kept_others_from(net, toy) -> None:
    model = net(lambda self, x: (self.conv(x) + x).relu(), conv=nn.Conv2d(3, 3, 3, padding=1))
    backend = toy(CONV, quantizing((core.ops.add, core.ops.relu)), quantizing(core.ops.relu))
    mapping = core.QConfigMapping(global_qconfig=core.catalog.static_qconfig())
    mapping.set_object_type("relu", None)
    relu = only(core.explain(model, backend, "relu", example_inputs=X, qconfig=mapping))
    first, second = relu.candidates
    assert (first.pattern, first.outcome) == ("relu", "passed over")
    assert first.reason == "add -> relu is preferred, and was refused then"
    assert (second.pattern, second.outcome) == ("add -> relu", "refused")
    assert "operation type 'relu'" in second.reason
    assert relu.stages[-1].pattern is None


def test_what_another_match_took_says_which(net, toy) -> None:
    model = net(
        lambda self, x: self.relu(self.bn(self.conv(x))),
        conv=nn.Conv2d(3, 4, 3),
        bn=nn.BatchNorm2d(4),
        relu=nn.ReLU(),
    )
    backend = toy(
        fusing(nn.Conv2d, nn.BatchNorm2d), fusing(nn.Conv2d, optional(nn.BatchNorm2d), nn.ReLU)
    )
    stage = only(core.explain(model, backend, "bn", example_inputs=X)).stages[0]
    (candidate,) = stage.candidates
    assert candidate.outcome == "passed over"
    assert candidate.reason == "Conv2d -> BatchNorm2d? -> ReLU, which ends in relu, took bn first"
    assert stage.members == ("conv", "bn", "relu")


def test_the_nearest_miss_goes_first(net, toy) -> None:
    model = net(
        lambda self, x: self.relu(self.bn(self.linear(x))),
        linear=nn.Linear(8, 8),
        bn=nn.BatchNorm2d(3),
        relu=nn.ReLU(),
    )
    backend = toy(
        fusing(nn.Conv1d, nn.BatchNorm1d, nn.ReLU), fusing(nn.Conv2d, nn.BatchNorm2d, nn.ReLU)
    )
    stage = only(core.explain(model, backend, "relu", example_inputs=X)).stages[0]
    assert [each.depth for each in stage.candidates] == [2, 1]
    assert stage.candidates[0].stopped_at == "operand 'input' of bn"


def test_operands_in_another_order_are_named_where_they_stand(net, toy) -> None:
    model = net(
        lambda self, x: torch.add(self.conv(x), self.relu(x)),
        conv=nn.Conv2d(3, 3, 1),
        relu=nn.ReLU(),
    )
    pattern = any_order(core.ops.add, core.ops.relu, core.ops.sigmoid)
    backend = toy(CONV, quantizing(pattern))
    (miss,) = only(core.explain(model, backend, "add", example_inputs=X)).candidates
    # Read the other way round, relu is in place; what is wrong is the call's first operand.
    assert miss.reason == "conv (Conv2d) is not sigmoid"
    assert miss.stopped_at == "operand 'input' of add"
    assert miss.depth == 2


def test_the_model_is_not_changed(small, data) -> None:
    before = copy.deepcopy(small.state_dict())
    kinds = [type(each) for each in small.modules()]
    traced = core.trace(small, data[0], backend="fbgemm")
    nodes = [(node.name, node.args) for node in traced.graph.nodes]
    core.explain(small, "fbgemm", example_inputs=data[0])
    core.explain(traced, "fbgemm")
    assert [type(each) for each in small.modules()] == kinds
    assert all(torch.equal(value, before[name]) for name, value in small.state_dict().items())
    assert [(node.name, node.args) for node in traced.graph.nodes] == nodes


def test_it_agrees_with_what_the_passes_do(small, data) -> None:
    quantized = core.quantize(small, "fbgemm", calibration=data, adaptive_rounding=False)
    explanation = core.explain(small, "fbgemm", example_inputs=data[0])
    int8 = [entry.node for entry in core.report(quantized).ledger if entry.plugin]
    assert [each.node for each in explanation if each.is_quantized] == int8
    assert explanation["drop"].outcome == "removed: dropout does nothing in eval mode"


def test_each_stage_of_a_model_can_be_explained(small, data) -> None:
    traced = core.trace(small, data[0], backend="fbgemm")
    fused = core.fuse(traced, "fbgemm")
    prepared = core.prepare(fused, "fbgemm")
    core.calibrate(prepared, data)
    converted = core.convert(prepared)
    lowered = core.lower(converted)
    stages = {
        model: core.explain(model, "fbgemm")
        for model in (traced, fused, prepared, converted, lowered)
    }
    tried = [[stage.purpose for stage in each["head"].stages] for each in stages.values()]
    assert tried == [["fusing", "quantizing"], ["quantizing"], [], ["lowering"], []]
    assert all(each["head"].is_quantized for each in stages.values())
    assert "no pattern is to be tried at this stage" in str(stages[prepared])
    (taken,) = [each for each in stages[converted]["head"].candidates if each.outcome == "accepted"]
    assert "reference.Linear" in taken.pattern


def test_without_inputs_nothing_is_claimed_that_only_shapes_tell(net, toy) -> None:
    def is_an_image(node_pattern):
        shape = node_pattern.meta["tensor_meta"].shape
        return core.Skip(f"{len(shape)} dimensions") if len(shape) != 4 else None

    def makes_do(node, _module):
        return len(getattr(node.meta.get("tensor_meta"), "shape", ())) == 4

    def forward(self, x):
        return self.relu(self.conv(x)).flatten(1).view(x.size(0), -1)

    model = net(forward, conv=nn.Conv2d(3, 4, 3), relu=nn.ReLU())
    backend = toy(
        quantizing(nn.Conv2d, constraint=is_an_image), quantizing(where(nn.ReLU, makes_do))
    )
    unseen = core.explain(model, backend)
    assert "shapes are not known" in str(unseen)
    told = "it asks for shapes, which only example_inputs would tell"
    assert unseen["conv"].candidates[0].reason == told
    assert told in unseen["relu"].candidates[0].reason
    assert unseen["size"].has_no_use
    assert not unseen["view"].has_no_use
    seen = core.explain(model, backend, example_inputs=X)
    assert seen["conv"].is_quantized
    assert "shapes are not known" not in str(seen)


def test_a_node_is_named_by_node_name_path_enclosing_module_or_itself(small, data) -> None:
    traced = core.trace(small, data[0], backend="fbgemm")
    fused = core.fuse(traced, "fbgemm")
    node = next(each for each in traced.graph.nodes if each.target == "stem.1")
    (call,) = [each for each in fused.graph.nodes if each.target == "stem.0"]
    names = ["stem_0", "stem_1", "stem_2"]
    assert only(core.explain(traced, "fbgemm", "stem_1")).path == "stem.1"
    assert only(core.explain(traced, "fbgemm", "stem.1")).node == "stem_1"
    assert only(core.explain(traced, "fbgemm", node)).node == "stem_1"
    assert [each.node for each in core.explain(traced, "fbgemm", "stem")] == names
    assert [each.node for each in core.explain(fused, "fbgemm", call)] == names


def test_an_unknown_node_is_an_error_with_near_misses(small) -> None:
    with pytest.raises(UnknownNodeError, match=r"Did you mean 'stem\.1'"):
        core.explain(small, "fbgemm", "stem.11")
    with pytest.raises(LookupError, match="neither a node"):
        core.explain(small, "fbgemm")["nothing like it"]


def test_a_model_in_training_mode_is_refused(small) -> None:
    with pytest.raises(TrainingModeError):
        core.explain(copy.deepcopy(small).train(), "fbgemm")


def test_it_is_ready_for_json(small) -> None:
    explanation = core.explain(small, "fbgemm")
    facts = json.loads(json.dumps(explanation.to_dict()))
    assert [each["node"] for each in facts["nodes"]] == [each.node for each in explanation]
    assert facts["backend"] == "fbgemm"
    relu = next(each for each in facts["nodes"] if each["node"] == "stem_2")
    assert relu["stages"][0]["candidates"][0]["outcome"] == "accepted"


def test_the_overview_is_short_and_the_whole_complete(small) -> None:
    explanation = core.explain(small, "fbgemm")
    short, full = explanation.text(120), explanation.expanded().text(120)
    assert all(each.node in short for each in explanation)
    reasons = [each.reason for node in explanation for each in node.candidates]
    assert all(words(reason) in words(full) for reason in reasons)
    assert len(short.splitlines()) < len(full.splitlines()) / 2
    assert max(map(len, full.splitlines())) <= 120


@pytest.mark.slow
def test_every_node_of_a_model_that_nobody_here_wrote_is_explained() -> None:
    models = pytest.importorskip("torchvision.models")
    model = models.resnet18(weights=None).eval()
    for inputs in (None, torch.randn(1, 3, 64, 64)):
        explanation = core.explain(model, "fbgemm", example_inputs=inputs)
        text = str(explanation.expanded())
        assert len(explanation) == 69
        assert all(each.is_quantized for each in explanation)
        assert "nothing was tried" not in text
        assert all(each.stages and each.outcome for each in explanation)
