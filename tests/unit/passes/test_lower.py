from __future__ import annotations

import pytest
import torch
from torch import nn

import fusion_core as core
from fusion_core.errors import LoweringError, ModelStateError
from fusion_core.nn import reference

X = torch.randn(4, 6)


@pytest.fixture
def converted(backend, linear, prepared):
    def converted(lower, pattern=reference.Linear):
        rule = core.LoweringRule(pattern=pattern, lower=lower, name="the rule")
        toy = backend(linear, rules=[rule])
        model = nn.Sequential(nn.Linear(6, 4), nn.Tanh())
        return core.convert(core.calibrate(prepared(model, toy, X), [X])), toy

    return converted


def double(x):
    return 2 * x


def test_a_replacement_takes_the_place_of_its_match(converted, ops, ledger):
    model, toy = converted(lambda node, _modules: core.Replacement(double, node.args))
    lowered = core.lower(model, toy)

    assert "double" in ops(lowered)
    assert "Linear" not in ops(lowered)
    assert "Linear" in ops(model)
    assert ledger(lowered)["_0"].status is core.Status.INT8
    assert ledger(lowered)["_0"].kernel == "the rule"


@pytest.mark.parametrize("target", [nn.Tanh(), torch.tanh, "tanh"])
def test_a_replacement_may_be_a_module_a_function_or_a_method(converted, target):
    model, toy = converted(lambda node, _modules: core.Replacement(target, node.args))

    assert core.lower(model, toy)(X).shape == (4, 6)


def test_a_skip_keeps_the_reference_and_says_why(converted, ledger):
    model, toy = converted(lambda _node, _modules: core.Skip("it is raining"))
    lowered = core.lower(model, toy)

    assert torch.equal(lowered(X), model(X))
    assert ledger(lowered)["_0"].status is core.Status.REFERENCE
    assert "the rule does not fit, it is raining" in ledger(lowered)["_0"].reason


def test_without_rules_the_ledger_says_that_there_is_no_kernel(converted, ledger):
    model, toy = converted(lambda _node, _modules: None, pattern=reference.Conv2d)
    lowered = core.lower(model, toy)

    assert ledger(lowered)["_0"].reason == "the backend has no kernel for it"
    assert ledger(lowered)["_1"].status is core.Status.FLOAT


def raises(_node, _modules):
    raise KeyError("gone")


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (raises, r"toy.*lowering rule 'the rule' at node _0: the rule raised KeyError: 'gone'"),
        (lambda _node, _modules: None, "the rule returned NoneType, not a Replacement or a Skip"),
        (lambda node, _modules: node, "the rule returned Node, not a Replacement or a Skip"),
    ],
    ids=["raises", "None", "a node"],
)
def test_a_rule_that_fails_is_named(converted, rule, message):
    model, toy = converted(rule)

    with pytest.raises(LoweringError, match=message):
        core.lower(model, toy)


def test_passes_in_the_wrong_order_are_refused(backend, linear):
    toy = backend(linear)
    traced = core.trace(nn.Sequential(nn.Linear(6, 4)).eval(), X, backend=toy)

    with pytest.raises(ModelStateError, match=r"prepare needs a fused model.*given a traced model"):
        core.prepare(traced, toy)
    with pytest.raises(ModelStateError, match=r"calibrate needs a prepared model.*a traced model"):
        core.calibrate(traced, [X])
    with pytest.raises(ModelStateError, match=r"convert needs a prepared model.*a fused model"):
        core.convert(core.fuse(traced, toy))
    with pytest.raises(ModelStateError, match=r"lower needs a converted model.*a prepared model"):
        core.lower(core.prepare(core.fuse(traced, toy), toy), toy)
