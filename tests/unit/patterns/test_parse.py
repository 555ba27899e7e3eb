"""A pattern is text as well: what is written is read back, and what cannot be read says where and why."""

from __future__ import annotations

import operator
import re

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from fusion_core.errors import PatternError
from fusion_core.nn import reference
from fusion_core.patterns import (
    AnyOf,
    Capture,
    ListOf,
    LiteralValue,
    MatchAllNode,
    Op,
    Operation,
    Operator,
    Step,
    any_arguments,
    any_of,
    any_order,
    call,
    capture,
    chain,
    list_of,
    literal,
    normalize_nested,
    normalize_sequential,
    ops,
    optional,
    parse,
    render,
    where,
)
from fusion_core.patterns.naming import WORDS
from fusion_core.patterns.soundness import DEEPEST

BLOCK = (nn.ReLU, (ops.add, MatchAllNode, (nn.BatchNorm2d, nn.Conv2d)))


def is_small(node, module): ...


IS_SMALL = f"{__name__}.is_small"


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (nn.Conv2d, "Conv2d"),
        (reference.Conv2d, "fusion_core.nn.reference.Conv2d"),
        (F.relu, "functional.relu"),
        (torch.relu, "torch.relu"),
        (operator.add, "operator.add"),
        (torch.ops.aten.add.Tensor, "aten.add.Tensor"),
        (torch.ops.aten.add, "aten.add"),
        (torch.Tensor.relu, "torch._C.TensorBase.relu"),
        (abs, "builtins.abs"),
        (is_small, IS_SMALL),
        ("relu", ".relu"),
        ("__add__", ".__add__"),
        (ops.relu, "relu"),
        ((getattr, "shape"), "getattr(shape)"),
        ((getattr, "a), relu"), "getattr('a), relu')"),
        (call((getattr, "shape"), ...), "getattr(shape)(...)"),
        ((nn.Conv2d, optional(nn.BatchNorm2d), ops.relu), "Conv2d -> BatchNorm2d? -> relu"),
        ((nn.Conv2d, any_of(nn.ReLU, nn.ReLU6)), "Conv2d -> any_of(ReLU, ReLU6)"),
        ((nn.Conv2d, optional(any_of(nn.ReLU, "relu"))), "Conv2d -> any_of(ReLU, .relu)?"),
        (any_of((nn.Conv2d, nn.ReLU), nn.Conv2d), "any_of(Conv2d -> ReLU, Conv2d)"),
        ((nn.Conv2d, any_arguments(ops.clamp)), "Conv2d -> clamp(...)"),
        ((nn.Conv2d, call(ops.clamp, min=0, max=None)), "Conv2d -> clamp(max=None, min=0)"),
        (call(nn.Conv2d, groups=any_of(1, 2.0)), "Conv2d(groups=any_of(1, 2.0))"),
        (call(ops.relu, **{"a b": "it's"}), """relu('a b'="it's")"""),
        (chain(MatchAllNode, ops.relu), "* -> relu"),
        ((MatchAllNode(literals=True), ops.relu), "*literal -> relu"),
        ((literal((1, (2,), "x")), ops.relu), "(1, (2,), 'x') -> relu"),
        ((literal(()), ops.relu), "() -> relu"),
        ((list_of(MatchAllNode, nn.Conv2d, ...), ops.cat), "[*, Conv2d, ...] -> cat"),
        ((list_of(), ops.cat), "[] -> cat"),
        (where(nn.Conv2d, is_small), f"where(Conv2d, {IS_SMALL}, '{IS_SMALL}')"),
        (
            (nn.Conv2d, where(nn.ReLU, is_small, 'so "small"\n')),
            f"Conv2d -> where(ReLU, {IS_SMALL}, 'so \"small\"\\n')",
        ),
        (
            (nn.Conv2d, optional(where(nn.ReLU, is_small, "small"))),
            f"Conv2d -> where(ReLU, {IS_SMALL}, 'small')?",
        ),
        (
            where(chain(nn.Conv2d, optional(nn.ReLU)), is_small, "small"),
            f"where(Conv2d -> ReLU?, {IS_SMALL}, 'small')",
        ),
        (
            (capture("x", chain(nn.Conv2d, optional(nn.ReLU))), nn.ReLU),
            "$x:(Conv2d -> ReLU?) -> ReLU",
        ),
        ((nn.Conv2d, capture("x", nn.ReLU)), "Conv2d -> $x:ReLU"),
        ((capture("x"), ops.relu), "$x -> relu"),
        ((nn.Conv2d, optional(capture("x", nn.ReLU)), nn.ReLU), "Conv2d -> $x:ReLU? -> ReLU"),
    ],
)
def test_a_sequential_pattern_has_this_text_and_is_read_from_it(pattern, text):
    canonical = normalize_sequential(pattern)
    assert render(canonical) == text
    assert parse(text) == canonical


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (BLOCK, "add(*, Conv2d -> BatchNorm2d) -> ReLU"),
        ((ops.relu, nn.Conv2d, ...), "Conv2d -> relu(...)"),
        ((ops.add, nn.Conv2d, 1, ...), "add(Conv2d, 1, ...)"),
        (("view", MatchAllNode, -1), ".view(*, -1)"),
        (call(torch.add, MatchAllNode, 1, alpha=2), "torch.add(*, 1, alpha=2)"),
        (any_order(ops.add, MatchAllNode, nn.Conv2d), "any_order(add, *, Conv2d)"),
        (
            any_order(any_arguments(ops.add), MatchAllNode, nn.Conv2d),
            "any_order(add, *, Conv2d, ...)",
        ),
        ((any_of(ops.add, ops.mul), nn.Conv2d, 1), "any_of(add, mul)(Conv2d, 1)"),
        ((any_of(ops.add, ops.mul), nn.Conv2d, 1, ...), "any_of(add(...), mul(...))(Conv2d, 1)"),
        (
            capture("x", (any_of(ops.add, ops.mul), nn.Conv2d, 1)),
            "$x:any_of(add, mul)(Conv2d, 1)",
        ),
        ((ops.mul, capture("x"), (torch.sigmoid, capture("x"))), "mul($x, $x -> torch.sigmoid)"),
        (
            (ops.mul, capture("x", capture("y")), capture("y")),
            "mul($x:$y, $y)",
        ),
    ],
)
def test_a_nested_pattern_has_this_text_and_is_read_from_it(pattern, text):
    canonical = normalize_nested(pattern)
    assert render(canonical) == text
    assert parse(text) == canonical


@pytest.mark.parametrize(
    "value",
    [
        *(None, True, False, 0, -1, 10**30, 0.5, -2.5e-30, float("inf"), -float("inf"), 1e300),
        *(2j, -1.5j, 1 + 2j, complex(-0.0, -2e-30), complex("inf-infj"), "", "a'b\"c\\\n", "é\x00"),
        *(torch.float32, torch.quint8, torch.channels_last, torch.per_tensor_affine, torch.strided),
        *(..., (), (1,), (True, None, "x", torch.float32, (2j, -1.0)), ("a, b)", ("->",))),
    ],
)
def test_a_constant_is_read_as_the_value_it_shows(value):
    pattern = normalize_nested((ops.add, MatchAllNode, literal(value)))
    read = parse(render(pattern))
    assert read == pattern
    assert repr(read) == repr(pattern)


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("ReLU(add(*, BatchNorm2d(Conv2d)))", normalize_nested(BLOCK)),
        ("add(*,Conv2d->BatchNorm2d)->ReLU", normalize_nested(BLOCK)),
        ("  add(\n\t*,\n\tConv2d -> BatchNorm2d,\n) -> ReLU\n", normalize_nested(BLOCK)),
        ("(((Conv2d)) -> (ReLU))", normalize_sequential((nn.Conv2d, nn.ReLU))),
        ("torch.nn.Conv2d -> torch.nn.ReLU", normalize_sequential((nn.Conv2d, nn.ReLU))),
        ("any_of(relu, relu)", normalize_sequential(ops.relu)),
        ("any_of(add, mul)(Conv2d)", normalize_nested((any_of(ops.add, ops.mul), nn.Conv2d))),
        (
            f"where(add, {IS_SMALL})(Conv2d, 1)",
            normalize_nested((where(ops.add, is_small), nn.Conv2d, 1)),
        ),
        ("$x:Conv2d -> ReLU -> $y:relu", parse("Conv2d -> ReLU -> relu")),
        ("mul($x:Conv2d, $x)", normalize_nested((ops.mul, *[capture("x", nn.Conv2d)] * 2))),
        ("Conv2d(stride=[1, 1])", normalize_sequential(call(nn.Conv2d, stride=(1, 1)))),
        ("fusion_core.patterns.MatchAllNode -> relu", parse("* -> relu")),
        ('relu(x="a")', parse("relu(x='a')")),
    ],
)
def test_other_spellings_are_read_too(text, pattern):
    def bare(each):
        return bare_op(each) if isinstance(each, Op) else bare(each.pattern)

    def bare_op(each):
        return Op(each.operator, each.inputs and tuple(map(bare, each.inputs)))

    read = parse(text)
    assert read == pattern or bare(read) == bare(pattern)


@pytest.mark.parametrize(
    ("text", "problem", "column"),
    [
        ("", "an operator is missing here", 1),
        ("Conv2d -> ", "an operator is missing here", 10),
        ("-> relu", "an operator is missing here", 1),
        ("Conv2d -> -> relu", "an operator is missing here", 11),
        ("add(, *)", "an operator is missing here", 5),
        ("Conv2d relu", "'->' or a comma is missing before 'relu'", 8),
        ("Conv2d -> relu??", "'->' or a comma is missing before '?'", 15),
        ("?", "an operator is missing before '?'", 1),
        ("add(... -> relu)", "an operator is missing before '...'", 5),
        ("$x: -> relu", "an operator is missing here", 5),
        ("relu(", "'(' is never closed", 5),
        ("add([*)", "')' closes nothing", 7),
        ("relu)", "')' closes nothing", 5),
        ("relu, add", "',' stands in brackets only", 5),
        ("relu @ add", "'@' means nothing here", 6),
        ("relu(x='abc)", '"\'" means nothing here', 8),
        ("Conv2d -> relo", "torch.nn has no 'relo'; near names are relu, relu6, prelu", 11),
        ("Conv2d -> Relu", "near names are relu, ReLU", 11),
        ("conv_transpose3d", "near names are torch.conv_transpose3d, functional.conv_transp", 1),
        ("functional.relo", "there is no 'functional.relo'; near names are functional.relu", 1),
        ("fusion_core.nn.reference.Conv4d", "near names are fusion_core.nn.reference.Conv", 1),
        ("no_such_package.relu", "there is no module 'no_such_package'", 1),
        ("aten.no_such_op", "there is no module 'aten'", 1),
        ("aten.relu.no_such_overload", "there is no 'aten.relu.no_such_overload'", 1),
        ("nn.functional -> relu", "there is no module 'nn'", 1),
        ("operator.__doc__", "is a str and not an operator", 1),
        ("functional", "is a module and not an operator", 1),
        ("Parameter", "class Parameter is not a torch.nn.Module", 1),
        ("Conv2d -> optional(relu)", "optional: write a question mark behind the step", 11),
        ("Conv2d -> any_of", "any_of is written with its arguments in parentheses", 11),
        ("relu()", "there is nothing in the parentheses; leave them out", 5),
        ("relu(x=1, *)", "'...' and keywords come last, in this order", 11),
        ("relu(x=1, ...)", "'...' and keywords come last, in this order", 11),
        ("relu(x=1, x=2)", "x is given twice", 11),
        ("relu(a.b=2)", "'a.b' is not a keyword", 6),
        ("relu(3=2)", "'3' is not a keyword", 6),
        ("relu(x=Conv2d)", "an argument by name is constrained to a constant", 5),
        ("*(x=1)", "need an operator before the parentheses", 2),
        ("(x=1)", "need an operator before the parentheses", 1),
        ("[*, x=1] -> cat", "need an operator before the parentheses", 1),
        ("(1, relu) -> relu", "a tuple holds constants", 1),
        ("Conv2d -> add(*, relu)", "an operator already has inputs", 11),
        ("Conv2d -> *", "* cannot have inputs", 11),
        ("Conv2d -> any_of(*, relu)", "* cannot have inputs", 11),
        ("any_of()", "any_of needs at least one alternative", 1),
        ("any_of(relu?, add)", "write optional(any_of(...))", 1),
        ("any_of(relu, x=1)", "any_of takes no keywords", 1),
        ("Conv2d -> add(*, relu)?", "optional takes an operator", 11),
        ("any_order(sub, *, Conv2d)", "the order of the operands of sub matters", 1),
        ("any_order(add, *)", "any_order takes two to four operands", 1),
        ("any_order()", "any_order takes an operator and its operands", 1),
        ("where(relu)", "where takes a pattern, the name with dots of a predicate", 1),
        ("where(relu, relu, 'small')", "where takes a pattern, the name with dots", 1),
        ("where(relu, torch.relu, 3)", "the reason in quotes", 1),
        ("where(relu, torch.relu, 'small', 3)", "the reason in quotes", 1),
        ("getattr -> relu", "getattr is written with its arguments in parentheses", 1),
        ("$x:Conv2d -> add(*, 1)", "an operator already has inputs", 14),
    ],
)
def test_what_cannot_be_read_is_refused_with_problem_and_column(text, problem, column):
    with pytest.raises(PatternError, match=re.escape(problem)) as caught:
        parse(text)
    message = str(caught.value)
    assert repr(text) in message
    assert f"column {column}: " in message
    *_, shown, caret = message.splitlines()
    assert (shown.strip(), caret.index("^") - 4) == (text.strip(), column - 1)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("relu?", "an optional step has nothing before it"),
        ("add(*, relu?)", "an optional step has nothing before it"),
        ("*", "nothing anchors it"),
        ("[Conv2d]", "nothing anchors it"),
        ("add($x:Conv2d, $x:Linear)", "capture 'x' stands for two different patterns"),
        ("$x -> $x:relu", "capture 'x' stands for a part of itself"),
        (None, "the text of a pattern is a string"),
        (nn.ReLU, "the text of a pattern is a string"),
    ],
)
def test_what_is_no_pattern_as_a_tuple_is_none_as_text(text, problem):
    with pytest.raises(PatternError, match=re.escape(problem)) as caught:
        parse(text)
    assert caught.value.pattern is text


def test_an_error_in_text_of_several_lines_names_the_line():
    with pytest.raises(PatternError, match=r"line 2, column 4: torch\.nn has no 'relo'") as caught:
        parse("Conv2d\n-> relo")
    assert str(caught.value).endswith("\n    -> relo\n       ^")


NESTINGS = [
    lambda depth: "relu" + " -> relu" * depth,
    lambda depth: "add(*, " * depth + "relu" + ")" * depth,
    lambda depth: "[" * depth + "]" * depth + " -> cat",
    lambda depth: f"where({'where(' * depth}relu{f', {IS_SMALL})' * depth}, {IS_SMALL})",
    lambda depth: "".join(f"$x{number}:" for number in range(depth)) + "relu",
]


@pytest.mark.parametrize("nesting", NESTINGS)
def test_a_text_may_be_as_deep_as_a_pattern(nesting):
    pattern = parse(nesting(DEEPEST - 2))
    again = parse(render(pattern))
    # Compared as text, because == on values so deep is beyond Python's stack.
    assert render(again) == render(pattern)


@pytest.mark.parametrize("depth", [DEEPEST + 1, 1_000])
@pytest.mark.parametrize("nesting", NESTINGS)
def test_a_text_that_is_too_deep_is_refused(nesting, depth):
    with pytest.raises(PatternError, match=r"more than 200 operators|nested too deeply"):
        parse(nesting(depth))


def test_brackets_around_a_pattern_cost_nothing():
    assert parse("(" * 20_000 + "relu" + ")" * 20_000) == parse("relu")


@pytest.mark.parametrize("name", dir(ops))
def test_every_operation_goes_by_its_name(name):
    operation = normalize_nested((Operation(name), MatchAllNode, 1, 2))
    assert parse(render(operation)) == operation
    assert render(operation) == f"{'fusion_core.ops.' * (name in WORDS)}{name}(*, 1, 2)"


def test_no_class_of_torch_nn_has_the_name_of_an_operation():
    assert not set(dir(ops)) & set(vars(nn))


def test_every_module_of_torch_nn_goes_by_its_own_name():
    kinds = [
        kind for kind in vars(nn).values() if isinstance(kind, type) and issubclass(kind, nn.Module)
    ]
    assert len(kinds) > 100
    assert all(parse(render(normalize_sequential(kind))).operator.target is kind for kind in kinds)


def test_patterns_that_differ_in_one_thing_differ_in_text():
    relu, add = Op(Operator("operation", "relu")), Op(Operator("operation", "add"))
    conv = normalize_sequential(nn.Conv2d)
    patterns = [
        relu,
        Op(relu.operator, open=True),
        Op(relu.operator, ()),
        Op(relu.operator, (conv,)),
        Op(relu.operator, (conv,), open=True),
        Op(relu.operator, keywords=(("x", LiteralValue(1)),)),
        Op(relu.operator, keywords=(("x", LiteralValue(True)),)),  # noqa: FBT003
        Op(relu.operator, keywords=(("x", LiteralValue("1")),)),
        Op(relu.operator, keywords=(("x", LiteralValue((1,))),)),
        Op(relu.operator, (ListOf((conv,)),)),
        Op(relu.operator, (ListOf((conv,), open=True),)),
        Op(Operator("method", "relu")),
        Op(Operator("getattr", "relu")),
        Op(Operator("function", torch.relu)),
        Op(Operator("function", torch.Tensor.relu)),
        Step((relu,), (conv,), optional=True),
        Step((relu, add), (conv,)),
        Step((relu, add), (conv,), optional=True),
        Step((relu, add), (conv, conv)),
        AnyOf((relu, add)),
        Op(add.operator, (conv, conv)),
        Op(add.operator, (conv, conv), any_order=True),
        Capture("x", relu),
        Capture("x", Step((relu,), (conv,), optional=True)),
        Step((Capture("x", relu),), (conv,), optional=True),
    ]
    assert len(set(map(render, patterns))) == len(patterns)
