"""A pattern config says the same in keywords and setters, and refuses what cannot work at once."""

# ruff: noqa: ARG005  the signatures are what is tested

from __future__ import annotations

import json
import operator
import pickle
import re

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from pydantic import TypeAdapter, ValidationError
from torch import nn

from fusion_core.configs import (
    BackendInfo,
    BackendPatternConfig,
    DTypeConfig,
    LoweringRule,
    ObservationType,
    Replacement,
)
from fusion_core.errors import FuserMethodError, PatternError
from fusion_core.patterns import (
    MatchAllNode,
    any_of,
    any_order,
    call,
    capture,
    chain,
    normalize_nested,
    normalize_sequential,
    ops,
    optional,
    parse,
    where,
)

INT8 = DTypeConfig(input_dtype=torch.quint8, output_dtype=torch.quint8)
FLOAT = DTypeConfig()
SHARED = ObservationType.OUTPUT_SHARE_OBSERVER_WITH_INPUT
PAIR = (nn.Conv2d, nn.ReLU)
BLOCK = (nn.ReLU, (operator.add, MatchAllNode, nn.Conv2d))


def fuse_pair(is_qat, first, second): ...


def fuse_any(is_qat, *modules): ...


def first_node(node_pattern): ...


def copied(value):
    return pickle.loads(pickle.dumps(value))  # noqa: S301  our own bytes


def full(**changes):
    fields = {
        "observation_type": SHARED,
        "dtype_configs": (INT8, FLOAT),
        "root_module": nn.Conv2d,
        "qat_module": nn.Conv1d,
        "reference_quantized_module": nn.Conv3d,
        "fused_module": nn.Sequential,
        "fuser_method": fuse_pair,
        "root_node_getter": first_node,
        "extra_inputs_getter": fuse_any,
        "num_tensor_args_to_observation_type": {1: SHARED},
        "input_type_to_index": {"weight": 1},
    }
    return BackendPatternConfig(PAIR, **{**fields, **changes})


def test_chained_setters_say_the_same_as_keywords():
    chained = (
        BackendPatternConfig(PAIR)
        .set_observation_type(SHARED)
        .set_dtype_configs([INT8])
        .add_dtype_config(FLOAT)
        .set_root_module(nn.Conv2d)
        .set_qat_module(nn.Conv1d)
        .set_reference_quantized_module(nn.Conv3d)
        .set_fused_module(nn.Sequential)
        .set_fuser_method(fuse_pair)
        ._set_root_node_getter(first_node)
        ._set_extra_inputs_getter(fuse_any)
        ._set_num_tensor_args_to_observation_type({1: SHARED})
        ._set_input_type_to_index({"weight": 1})
    )
    assert chained == full()


def test_a_nested_pattern_may_be_set_or_given():
    chained = BackendPatternConfig()._set_pattern_complex_format(BLOCK)
    assert chained == BackendPatternConfig(complex_pattern=BLOCK)
    assert chained.normal_pattern == normalize_nested(BLOCK)


@pytest.mark.parametrize(
    "changes", [{"priority": 1}, {"dtype_configs": (INT8,)}, {"fuser_method": fuse_any}]
)
def test_configs_that_differ_in_a_field_differ(changes):
    assert full(**changes) != full()


@pytest.mark.parametrize(
    "config",
    [
        full(),
        BackendPatternConfig(complex_pattern=BLOCK, fused_module=nn.Identity),
        BackendPatternConfig((torch.ops.aten.relu.default, F.max_pool2d)),
        BackendPatternConfig(any_of(F.relu, torch.ops.aten.relu)),
        BackendPatternConfig(),
    ],
)
def test_configs_pickle(config):
    assert copied(config) == config


def test_repr_shows_the_pattern_or_its_absence():
    assert repr(BackendPatternConfig(PAIR)) == "BackendPatternConfig(Conv2d -> ReLU)"
    assert str(BackendPatternConfig()) == "BackendPatternConfig(no pattern yet)"


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"pattern": "no name"}, "'no name' is not a method name"),
        ({"pattern": (nn.ReLU, (nn.BatchNorm2d, nn.Conv2d))}, "give a nested one as complex_p"),
        ({"complex_pattern": (MatchAllNode, nn.Conv2d)}, "* cannot have inputs"),
        ({"pattern": PAIR, "complex_pattern": BLOCK}, "give pattern or complex_pattern, not both"),
    ],
)
def test_a_bad_pattern_is_refused_at_construction(fields, problem):
    with pytest.raises(PatternError, match=re.escape(problem)):
        BackendPatternConfig(**fields)


def test_a_second_pattern_cannot_be_set():
    config = BackendPatternConfig(PAIR)
    with pytest.raises(PatternError, match="already has the sequential pattern"):
        config._set_pattern_complex_format(BLOCK)


def test_a_config_without_pattern_says_so_when_it_is_needed():
    with pytest.raises(PatternError, match="has no pattern yet; give one, or call"):
        _ = BackendPatternConfig().normal_pattern


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("root_module", nn.ReLU()),
        ("root_module", int),
        ("fuser_method", 3),
        ("fuser_method", "no.such.function"),
        ("dtype_configs", "int8"),
        ("observation_type", "sometimes"),
        ("priority", "high"),
        ("no_such_field", 1),
    ],
)
def test_a_wrong_value_is_refused_with_its_field(field, value):
    with pytest.raises(ValidationError, match=field):
        BackendPatternConfig(PAIR, **{field: value})


@pytest.mark.parametrize(("setter", "value"), [("set_root_module", 3), ("set_fused_module", int)])
def test_a_setter_checks_like_the_keyword(setter, value):
    with pytest.raises(ValidationError, match=setter.removeprefix("set_")):
        getattr(BackendPatternConfig(PAIR), setter)(value)


@pytest.mark.parametrize(
    ("pattern", "fuser"),
    [
        ({"pattern": PAIR}, fuse_pair),
        ({"pattern": PAIR}, fuse_any),
        ({"pattern": PAIR}, nn.Sequential),
        ({"pattern": PAIR}, lambda is_qat, conv, relu, bias=None: ...),
        ({"complex_pattern": BLOCK}, fuse_pair),
        ({"complex_pattern": (nn.ReLU, nn.Conv2d, ...)}, fuse_pair),
        ({}, fuse_pair),
    ],
)
def test_a_fuser_takes_is_qat_and_one_argument_for_each_element(pattern, fuser):
    assert BackendPatternConfig(**pattern, fuser_method=fuser).fuser_method is fuser


@pytest.mark.parametrize(
    ("pattern", "fuser", "problem"),
    [
        ({"pattern": (*PAIR, nn.ReLU)}, fuse_pair, r"Conv2d -> ReLU -> ReLU: fuse_pair\(.* 4 arg"),
        ({"pattern": PAIR}, lambda: ..., r"of Conv2d -> ReLU: <lambda>\(\) .* 3 arguments"),
        ({"complex_pattern": (nn.ReLU, nn.Conv2d, nn.Conv2d)}, fuse_pair, "its 3 elements"),
        ({"pattern": nn.ReLU}, fuse_any, "cannot fuse ReLU: a single operator"),
        ({"pattern": (nn.ReLU,)}, fuse_any, "cannot fuse ReLU: a single operator"),
    ],
)
def test_a_fuser_of_another_arity_is_refused_with_both_names(pattern, fuser, problem):
    with pytest.raises(FuserMethodError, match=problem):
        BackendPatternConfig(**pattern, fuser_method=fuser)


@pytest.mark.parametrize("field", ["root_node_getter", "extra_inputs_getter", "constraint"])
def test_what_is_called_with_the_node_pattern_takes_one_argument(field):
    with pytest.raises(ValidationError, match=f"(?s){field}.*is called with the node pattern: too"):
        BackendPatternConfig(PAIR, **{field: lambda: ...})
    with pytest.raises(ValidationError, match="missing a required argument: 'other'"):
        BackendPatternConfig(PAIR, **{field: lambda node_pattern, other: ...})


def test_a_lowering_rule_is_called_with_nodes_and_modules():
    with pytest.raises(ValidationError, match="called with the node pattern and the modules by"):
        LoweringRule(pattern=nn.ReLU, lower=lambda node_pattern: ...)


def test_the_question_to_the_machine_takes_no_argument():
    with pytest.raises(ValidationError, match="is called with no arguments: missing a required"):
        BackendInfo(unavailable=lambda machine: ...)


def test_a_module_type_is_called_with_the_modules_alone():
    with pytest.raises(FuserMethodError, match="called with the modules of its 2 elements"):
        BackendPatternConfig(PAIR, fuser_method=nn.ReLU)


def takes(count):
    """A fuser of exactly so many elements."""
    parameters = ", ".join(f"part_{index}" for index in range(count))
    return eval(f"lambda is_qat, {parameters}: None")  # noqa: S307  our own text


def elements(**pattern):
    """How many elements a fuser is given, by asking."""
    found = []
    for count in range(1, 6):
        try:
            BackendPatternConfig(**pattern, fuser_method=takes(count))
        except FuserMethodError:
            continue
        found.append(count)
    return found


@pytest.mark.parametrize(
    ("pattern", "count"),
    [
        (parse("Conv2d -> BatchNorm2d -> relu"), 3),
        (parse("Conv2d -> BatchNorm2d? -> any_of(ReLU, ReLU6)"), 3),
        (parse("$c:Conv2d -> where(relu, torch.is_tensor, 'ok')"), 2),
        (parse("where(Conv2d -> BatchNorm2d?, torch.is_tensor, 'ok') -> relu"), 3),
        (parse("add(*, Conv2d) -> relu"), 2),
        (parse("any_of(Conv2d -> BatchNorm2d, Conv2d) -> relu"), 2),
        (parse("any_of(add, mul)(*, Conv2d) -> relu"), 2),
        (parse("* -> relu"), 2),
        (chain(nn.Conv2d, nn.BatchNorm2d), 2),
        (where(chain(nn.Conv2d, nn.BatchNorm2d), torch.is_tensor), 2),
        ((any_of((nn.Conv2d, nn.BatchNorm2d), nn.Conv2d), nn.ReLU), 2),
        ((chain(nn.Conv2d, nn.BatchNorm2d), nn.ReLU), 2),
    ],
)
def test_a_sequential_pattern_has_as_many_elements_as_its_chain_has_steps(pattern, count):
    assert elements(pattern=pattern) == [count]


@pytest.mark.parametrize(
    ("pattern", "count"),
    [
        (parse("add(*, Conv2d)"), 3),
        (parse("Conv2d -> BatchNorm2d -> relu"), 2),
        (parse("$y:any_order(add, *, Conv2d)"), 3),
        (parse("any_of(add, mul)(*, Conv2d, ...)"), 3),
        (parse("Conv2d -> BatchNorm2d?"), 2),
        (call(torch.add, MatchAllNode, nn.Conv2d, alpha=1), 3),
        (where(any_order(torch.add, MatchAllNode, nn.Conv2d), torch.is_tensor), 3),
        ((torch.add, MatchAllNode, nn.Conv2d, ...), 3),
    ],
)
def test_a_nested_pattern_has_its_operator_and_the_operators_inputs(pattern, count):
    assert elements(complex_pattern=pattern) == [count]


@pytest.mark.parametrize("pattern", [any_order(torch.add, MatchAllNode, nn.Conv2d), ops.relu])
def test_a_single_operator_cannot_be_fused(pattern):
    with pytest.raises(FuserMethodError, match="a single operator has nothing to be fused with"):
        BackendPatternConfig(pattern, fuser_method=fuse_any)


def test_alternatives_of_whole_patterns_cannot_be_fused():
    with pytest.raises(FuserMethodError, match="alternatives differ in their elements"):
        BackendPatternConfig(any_of(PAIR, nn.Conv2d), fuser_method=fuse_any)


@pytest.mark.parametrize(
    ("field", "value", "error"),
    [
        ("pattern", (nn.ReLU, (nn.BatchNorm2d, nn.Conv2d)), PatternError),
        ("pattern", nn.ReLU, FuserMethodError),
        ("complex_pattern", BLOCK, PatternError),
        ("fuser_method", takes(3), FuserMethodError),
        ("fuser_method", "no.such.function", ValidationError),
    ],
)
def test_an_assignment_is_checked_and_changes_nothing_if_refused(field, value, error):
    config = BackendPatternConfig(PAIR, fuser_method=fuse_pair)
    with pytest.raises(error):
        setattr(config, field, value)
    assert config == BackendPatternConfig(PAIR, fuser_method=fuse_pair)


def test_an_assignment_that_fits_is_made():
    config = BackendPatternConfig(PAIR, fuser_method=fuse_any)
    config.pattern = (*PAIR, nn.ReLU)
    config.fuser_method = takes(3)
    assert config.normal_pattern == parse("Conv2d -> ReLU -> ReLU")


def test_a_refused_setter_changes_nothing():
    config = BackendPatternConfig(PAIR)
    with pytest.raises(FuserMethodError, match="3 arguments"):
        config.set_fuser_method(lambda is_qat: ...)
    assert config == BackendPatternConfig(PAIR)
    config = BackendPatternConfig(fuser_method=fuse_pair)
    with pytest.raises(FuserMethodError, match="single operator"):
        config._set_pattern_complex_format(nn.ReLU)
    assert config == BackendPatternConfig(fuser_method=fuse_pair)


def test_types_and_functions_may_be_given_by_name():
    config = BackendPatternConfig(
        PAIR, root_module="torch.nn.Conv2d", fuser_method="torch.nn.Sequential"
    )
    assert (config.root_module, config.fuser_method) == (nn.Conv2d, nn.Sequential)


def test_json_carries_names():
    dumped = json.loads(full(fuser_method=nn.Sequential).model_dump_json())
    assert dumped["pattern"] == "Conv2d -> ReLU"
    assert dumped["complex_pattern"] is None
    assert dumped["observation_type"] == "shared"
    assert dumped["root_module"] == "torch.nn.modules.conv.Conv2d"
    assert dumped["fuser_method"] == "torch.nn.modules.container.Sequential"
    assert dumped["dtype_configs"][0]["input_dtype"] == "torch.quint8"
    nested = json.loads(BackendPatternConfig(complex_pattern=BLOCK).model_dump_json())
    assert nested["complex_pattern"] == "operator.add(*, Conv2d) -> ReLU"
    assert nested["pattern"] is None


@pytest.mark.parametrize(
    "config",
    [
        full(),
        BackendPatternConfig(complex_pattern=BLOCK, fuser_method=fuse_pair, priority=2),
        BackendPatternConfig(complex_pattern=(nn.ReLU, nn.Conv2d), fuser_method=fuse_pair),
        BackendPatternConfig((nn.Conv2d, optional(nn.BatchNorm2d), any_of(ops.relu, "relu_"))),
        BackendPatternConfig(
            complex_pattern=where((torch.mul, capture("x"), 2), first_node, "two")
        ),
        BackendPatternConfig("relu"),
        BackendPatternConfig(),
    ],
)
def test_a_config_survives_json(config):
    again = BackendPatternConfig.model_validate_json(config.model_dump_json())
    assert again.model_dump(exclude={"pattern", "complex_pattern"}) == config.model_dump(
        exclude={"pattern", "complex_pattern"}
    )
    for field in ("pattern", "complex_pattern"):
        assert (getattr(again, field) is None) == (getattr(config, field) is None)
    assert str(again) == str(config)
    assert again.model_dump_json() == config.model_dump_json()
    assert BackendPatternConfig.model_validate_json(again.model_dump_json()) == again


def test_a_string_is_text_of_a_pattern_in_json_and_a_method_name_in_python():
    config = BackendPatternConfig.model_validate_json('{"pattern": "relu"}')
    assert config.normal_pattern == normalize_sequential(ops.relu)
    assert BackendPatternConfig("relu").normal_pattern == parse(".relu")
    assert BackendPatternConfig.model_validate({"pattern": "relu"}) == BackendPatternConfig("relu")
    within = TypeAdapter(list[BackendPatternConfig]).validate_json(
        '[{"pattern": "Conv2d -> relu"}]'
    )
    assert within[0].normal_pattern == normalize_sequential((nn.Conv2d, ops.relu))


@pytest.mark.parametrize("model", [BackendPatternConfig, LoweringRule])
@pytest.mark.parametrize("field", ["pattern", "complex_pattern"])
def test_bad_text_is_refused_with_its_column(model, field):
    text = json.dumps({field: "Conv2d -> relo"})
    with pytest.raises(ValidationError, match=r"column 11: .*near names are relu"):
        model.model_validate_json(text)


def test_json_is_checked_like_keywords():
    with pytest.raises(ValidationError, match="give pattern or complex_pattern, not both"):
        BackendPatternConfig.model_validate_json('{"pattern": "relu", "complex_pattern": "relu"}')
    with pytest.raises(FuserMethodError, match="a single operator has nothing to be fused with"):
        BackendPatternConfig.model_validate_json(
            '{"pattern": "relu", "fuser_method": "torch.nn.Sequential"}'
        )


def test_the_json_schema_describes_every_field():
    schema = BackendPatternConfig.model_json_schema()
    assert set(schema["properties"]) == set(BackendPatternConfig.model_fields)
    assert schema["properties"]["priority"]["type"] == "integer"
    json.dumps(schema)


def lower_relu(node_pattern, _modules):
    return Replacement(torch.relu, (node_pattern,), {})


def test_a_lowering_rule_is_named_by_its_pattern_unless_it_has_a_name():
    assert LoweringRule(pattern=PAIR, lower=lower_relu).label == "Conv2d -> ReLU"
    assert LoweringRule(complex_pattern=BLOCK, lower=lower_relu, name="block").label == "block"
    rule = LoweringRule(pattern=(F.max_pool2d, nn.ReLU), lower=lower_relu)
    assert rule.normal_pattern == normalize_sequential((F.max_pool2d, nn.ReLU))
    assert copied(rule) == rule


def test_a_lowering_rule_survives_json():
    for rule in (
        LoweringRule(pattern=PAIR, lower=lower_relu, priority=1),
        LoweringRule(complex_pattern=(nn.ReLU, nn.Conv2d, ...), lower=lower_relu, name="pair"),
    ):
        again = LoweringRule.model_validate_json(rule.model_dump_json())
        assert again.normal_pattern == rule.normal_pattern
        assert again.model_dump_json() == rule.model_dump_json()
        assert (again.pattern is None) == (rule.pattern is None)


@pytest.mark.parametrize("patterns", [{}, {"pattern": PAIR, "complex_pattern": BLOCK}])
def test_a_lowering_rule_has_exactly_one_pattern(patterns):
    with pytest.raises((PatternError, ValidationError), match="either pattern or complex_pattern"):
        LoweringRule(lower=lower_relu, **patterns)
