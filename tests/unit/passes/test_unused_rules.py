"""A rule that speaks of nothing is a slip or a preset's; one is an error, the other a note."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

import fusion_core as core
from fusion_core.errors import UnknownCallError, UnknownModuleNameError
from fusion_core.ledger import Ledger
from fusion_core.passes.unused_rules import unused_rules

X = torch.randn(2, 6)


@pytest.fixture
def notes(backend, linear, prepared, ledger):
    """What is noted about a mapping on a linear layer, dropout and another linear layer."""

    def notes(mapping):
        model = nn.Sequential(nn.Linear(6, 6), nn.Dropout(), nn.Linear(6, 2))
        return ledger(prepared(model, backend(linear), X, mapping)).notes

    return notes


def mapping():
    return core.QConfigMapping(global_qconfig=core.catalog.static_qconfig())


@pytest.mark.parametrize(
    "kind", [nn.Linear, nn.Dropout, nn.Sequential], ids=["called", "removed", "enclosing"]
)
def test_a_type_that_occurs_is_not_noted(notes, kind):
    assert notes(mapping().set_object_type(kind, None)) == []


def test_types_that_do_not_occur_are_noted_together(notes):
    given = mapping().set_object_type(nn.GELU, None).set_object_type("view", None)
    given.set_object_type(core.ops.relu, None)
    (note,) = notes(given)
    assert note.endswith("types that do not occur in the model: GELU, .view, relu")


def test_a_regex_that_matches_no_module_is_noted(notes):
    given = mapping().set_module_name_regex("head", None).set_module_name_regex("[02]", None)
    assert notes(given) == ["the qconfig mapping has regexes that match no module: 'head'"]


def test_what_the_backends_own_mapping_says_is_not_noted():
    own = mapping().set_object_type(nn.GELU, None).set_module_name_regex("head", None)
    given = own.model_copy(deep=True).set_object_type(nn.SELU, None)
    given.set_module_name_regex("tail", None)
    found = unused_rules(given, (), (), ledger=Ledger(), own=own)
    assert [note.rpartition(": ")[2] for note in found] == ["SELU", "'tail'"]
    assert unused_rules(own, (), (), ledger=Ledger(), own=own) == ()


def test_a_module_name_of_an_order_rule_must_exist(notes):
    given = mapping().set_module_name_object_type_order("hed", nn.Linear, 0, None)
    with pytest.raises(UnknownModuleNameError, match="'hed'"):
        notes(given)


@pytest.mark.parametrize(
    ("kind", "index", "words"),
    [
        (nn.Linear, 2, "names call 2 of Linear in the model itself, which has the indices 0, 1"),
        (nn.GELU, 0, "names call 0 of GELU in the model itself, which has none"),
    ],
)
def test_a_call_that_is_not_there_is_refused_with_those_there_are(notes, kind, index, words):
    with pytest.raises(UnknownCallError, match=words) as caught:
        notes(mapping().set_module_name_object_type_order("", kind, index, None))
    assert caught.value.index == index


def test_a_call_that_is_there_or_was_removed_is_accepted(notes):
    given = mapping().set_module_name_object_type_order("", nn.Linear, 1, None)
    assert notes(given.set_module_name_object_type_order("", nn.Dropout, 0, None)) == []


class Block(nn.Module):
    """Spells relu in two ways, and has a linear layer."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 6)

    def forward(self, x):
        return F.relu(torch.relu(self.fc(x)))


def resolved(given, model):
    traced = core.trace(model.eval(), X)
    found = {}
    for node in traced.graph.nodes:
        for member in node.meta.get("fusion_members", ()):
            found[member.name] = given.resolve(
                member.path, member.object_types, scope=member.scope, order=member.order
            )[0]
    return found


def test_an_operation_names_all_its_spellings_and_a_function_only_itself():
    model, qconfig = nn.Sequential(Block(), nn.ReLU()), core.catalog.static_qconfig()
    by_operation = resolved(core.QConfigMapping().set_object_type(core.ops.relu, qconfig), model)
    by_function = resolved(core.QConfigMapping().set_object_type(torch.relu, qconfig), model)
    assert {name for name, each in by_operation.items() if each} == {"relu", "relu_1", "_1"}
    assert {name for name, each in by_function.items() if each} == {"relu"}


def test_a_type_holds_for_all_that_is_within_it_and_the_nearest_counts():
    inner, outer = core.catalog.static_qconfig(), core.catalog.static_qconfig(quant_max=127)
    given = core.QConfigMapping().set_object_type(Block, inner)
    given.set_object_type(nn.Sequential, outer).set_object_type(F.relu, None)
    found = resolved(given, nn.Sequential(Block(), nn.Linear(6, 2)))
    assert found == {"_0_fc": inner, "relu": inner, "relu_1": None, "_1": outer}


def test_calls_are_counted_by_spelling_and_by_operation():
    qconfig = core.catalog.static_qconfig()
    given = core.QConfigMapping().set_module_name_object_type_order("0", core.ops.relu, 1, qconfig)
    given.set_module_name_object_type_order("0", F.relu, 0, qconfig)
    found = resolved(given, nn.Sequential(Block()))
    assert {name for name, each in found.items() if each} == {"relu_1"}
