"""One canonical call for every spelling of a call."""

# ruff: noqa: ARG005  a forward takes self, used or not

from __future__ import annotations

import operator

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import fx, nn
from torch.nn.utils import parametrizations

from fusion_core.matcher import CallGraph
from fusion_core.patterns import Operator

aten = torch.ops.aten


def shown(site):
    """Arguments by name or value, without those that the tracer filled in with defaults."""
    kept = [site.arguments[0]]
    kept += [each for i, each in enumerate(site.arguments[1:], 1) if site.surplus(i)]
    return [getattr(each, "name", each) for each in kept]


SPELLINGS = {
    "module": [lambda self, x: self.conv(x), lambda self, x: self.conv(input=x)],
    "relu": [lambda self, x: F.relu(x), lambda self, x: F.relu(input=x, inplace=False)],
    "torch function": [lambda self, x: torch.relu(x), lambda self, x: torch.relu(input=x)],
    "add": [
        lambda self, x, y: torch.add(x, y),
        lambda self, x, y: torch.add(x, other=y),
        lambda self, x, y: torch.add(input=x, other=y, alpha=1),
    ],
    "method": [lambda self, x, y: x.add(y), lambda self, x, y: x.add(other=y, alpha=1)],
    "in-place method": [
        lambda self, x, y: x.add_(y),
        lambda self, x, y: x.add_(other=y),
        lambda self, x, y: x.add_(y, alpha=1),
    ],
    "native": [
        lambda self, x, y: aten.add.Tensor(x, y),
        lambda self, x, y: aten.add.Tensor(x, y, alpha=1),
    ],
    "flatten": [
        lambda self, x: torch.flatten(x, 1),
        lambda self, x: torch.flatten(x, start_dim=1),
        lambda self, x: torch.flatten(input=x, start_dim=1),
    ],
    "boolean dispatch": [
        lambda self, x: F.max_pool2d(x, 2),
        lambda self, x: F.max_pool2d(x, kernel_size=2),
        lambda self, x: F.max_pool2d(input=x, kernel_size=2, return_indices=False),
    ],
    "defaults in between": [
        lambda self, x: F.avg_pool2d(x, 2, [], 1),
        lambda self, x: F.avg_pool2d(x, kernel_size=2, padding=1),
    ],
    "list argument": [
        lambda self, x, y: torch.cat([x, y], 1),
        lambda self, x, y: torch.cat(tensors=[x, y], dim=1),
    ],
    "weights": [
        lambda self, x, y: F.linear(x, y),
        lambda self, x, y: F.linear(input=x, weight=y, bias=None),
    ],
    "list defaults": [
        lambda self, x, y: F.conv2d(x, y),
        lambda self, x, y: F.conv2d(x, weight=y, bias=None, stride=1, padding=(0, 0)),
    ],
    "reduction": [
        lambda self, x: x.mean([2, 3]),
        lambda self, x: x.mean(dim=[2, 3], keepdim=False),
    ],
}


@pytest.mark.parametrize("forwards", SPELLINGS.values(), ids=SPELLINGS)
def test_keyword_and_positional_spellings_are_one_call(graphs, forwards):
    sites = [graphs.site(each, conv=nn.Conv2d(3, 3, 1)) for each in forwards]
    # The spelling in full may say more, but only what is the default.
    longest = max(len(site.arguments) for site in sites)
    assert len({str([shown(site), site.operators]) for site in sites}) == 1
    assert not any(site.modifiers or site.surplus(longest) for site in sites)


@pytest.mark.parametrize(
    ("forward", "operators"),
    [
        (
            lambda self, x: self.relu(x),
            [Operator("module", nn.ReLU), Operator("operation", "relu")],
        ),
        (lambda self, x: F.relu(x), [Operator("function", F.relu), Operator("operation", "relu")]),
        (lambda self, x: x.relu(), [Operator("method", "relu"), Operator("operation", "relu")]),
        (
            lambda self, x: x + 1,
            [Operator("function", operator.add), Operator("operation", "add")],
        ),
        (lambda self, x: torch.erf(x), [Operator("function", torch.erf)]),
        (lambda self, x: x.shape, [Operator("getattr", "shape")]),
        (
            lambda self, x: aten.relu.default(x),
            [
                Operator("function", aten.relu.default),
                Operator("operation", "relu"),
                Operator("function", aten.relu),
            ],
        ),
    ],
)
def test_a_call_is_its_exact_spelling_first_then_its_operation(graphs, forward, operators):
    assert list(graphs.site(forward, relu=nn.ReLU()).operators) == operators


@pytest.mark.parametrize(
    ("forward", "modifier"),
    [
        (lambda self, x, y: torch.add(x, y, alpha=2), "alpha=2"),
        (lambda self, x, y: x.add(y, alpha=2), "alpha=2"),
        (lambda self, x, y: x.sub_(other=y, alpha=2), "alpha=2"),
        (lambda self, x, y: aten.add.Tensor(x, y, alpha=y), "alpha=y"),
        (lambda self, x, y: torch.mean(x, dtype=torch.float64), "dtype=torch.float64"),
        (lambda self, x, y: x.contiguous(memory_format=torch.channels_last), "memory_format="),
    ],
)
def test_keyword_only_arguments_that_are_no_default_modify_the_call(graphs, forward, modifier):
    ((name, value),) = graphs.site(forward).modifiers.items()
    assert f"{name}={value!r}".startswith(modifier)


@pytest.mark.parametrize(
    ("forward", "count", "surplus"),
    [
        (lambda self, x: torch.flatten(x), 1, None),
        (lambda self, x: torch.flatten(x, 1), 1, "start_dim=1"),
        (lambda self, x: torch.flatten(x, 0, -1), 1, None),
        (lambda self, x: F.relu(x, inplace=True), 1, None),
        (lambda self, x: F.avg_pool2d(x, 2, None, 0), 2, None),
        (lambda self, x: F.avg_pool2d(x, 2, None, 1), 2, "padding=1"),
        (lambda self, x: F.conv2d(x, x, None, (1, 1), 0), 2, None),
        (lambda self, x: F.conv2d(x, x, None, [1, 2]), 2, "stride=[1, 2]"),
        (lambda self, x: F.max_pool2d(x, 2), 2, None),
        (lambda self, x: F.max_pool2d(x, 2, ceil_mode=True), 2, "ceil_mode=True"),
        (lambda self, x: torch.clamp(x, 0, 6), 1, "min=0"),
        (lambda self, x: x.view(2, 3), 1, "2"),
        (lambda self, x: x + x, 1, "b=x"),
    ],
)
def test_an_unnamed_argument_counts_unless_it_is_its_default(graphs, forward, count, surplus):
    assert graphs.site(forward).surplus(count) == surplus


def variadic(x, *others, scale=1, **more): ...


@pytest.mark.parametrize(
    ("target", "args", "kwargs", "arguments", "modifiers"),
    [
        (variadic, (1, 2, 3), {"scale": 1}, (1, 2, 3), {}),
        (variadic, (1,), {"scale": 2, "bias": 3}, (1,), {"scale": 2, "bias": 3}),
        (torch.flatten, (1,), {"no_such": 2}, (1,), {"no_such": 2}),
        (torch.ops.aten.add.Tensor, (1,), {"no_such": 2}, (1,), {"no_such": 2}),
        (dict, (), {"input": 1, "other": 2}, (1,), {"other": 2}),
        (dict, (1,), {"other": 2}, (1,), {"other": 2}),
    ],
)
def test_what_no_signature_names_modifies_the_call(target, args, kwargs, arguments, modifiers):
    node = fx.Graph().call_function(target, args, kwargs)
    site = CallGraph(node.graph, {}).site(node)
    assert (site.arguments, site.modifiers) == (arguments, modifiers)


def test_bound_arguments_have_names_and_defaults(graphs):
    bound = graphs.site(lambda self, x: F.dropout(x, training=False)).bound()
    assert {**bound, "input": str(bound["input"])} == {
        "input": "x",
        "p": 0.5,
        "training": False,
        "inplace": False,
    }


def test_inputs_outputs_and_parameters_are_no_calls(graphs):
    calls = graphs.traced(lambda self, x: x + self.conv.weight, conv=nn.Conv2d(1, 1, 1))
    sites = {node.op: calls.site(node) for node in calls.graph.nodes}
    assert [op for op, site in sites.items() if site is not None] == ["call_function"]


def test_a_parametrized_module_is_of_its_original_type(graphs):
    conv = parametrizations.weight_norm(nn.Conv2d(1, 1, 1))
    call = {"forward": lambda self, x: self.conv(x), "conv": conv}
    assert graphs.site(**call).operators == (Operator("module", nn.Conv2d),)
    assert graphs.obstacle(**call) is None


def test_a_subclass_is_not_its_parent(graphs):
    class Special(nn.Conv2d):
        __module__ = "torch.nn.special"  # so that FX does not look inside

    site = graphs.site(lambda self, x: self.conv(x), conv=Special(1, 1, 1))
    assert site.operators == (Operator("module", Special),)


def hooked(register):
    module = nn.Conv2d(1, 1, 1)
    getattr(module, register)(lambda *_: None)
    return module


def hooked_within():
    module = nn.TransformerEncoderLayer(2, 1)
    module.linear1.register_forward_hook(lambda *_: None)
    return module


def with_own_forward():
    module = nn.Conv2d(1, 1, 1)
    module.forward = torch.relu
    return module


@pytest.mark.parametrize(
    ("module", "obstacle"),
    [
        (hooked("register_forward_hook"), "block has forward hooks"),
        (hooked("register_forward_pre_hook"), "block has forward hooks"),
        (hooked_within(), "block.linear1 has forward hooks"),
        (with_own_forward(), "block has a forward of its own"),
        (nn.TransformerEncoderLayer(2, 1), ""),
        (nn.Conv2d(1, 1, 1), ""),
    ],
)
def test_what_a_replacement_would_not_run_is_an_obstacle(graphs, module, obstacle):
    found = graphs.obstacle(lambda self, x: self.block(x), block=module)
    assert (found or "").startswith(obstacle)
    assert bool(found) == bool(obstacle)


@pytest.mark.parametrize(
    ("module", "obstacle"),
    [
        (nn.Conv2d(1, 1, 1), "called from 2 places"),
        (nn.BatchNorm2d(1), "2 places"),
        (nn.ReLU(), ""),
    ],
)
def test_a_module_with_state_called_from_two_places_is_an_obstacle(graphs, module, obstacle):
    for forward in (lambda self, x: self.a(self.a(x)), lambda self, x: self.b(self.a(x))):
        found = graphs.obstacle(forward, a=module, b=module)
        assert (found or "").endswith(obstacle)
        assert bool(found) == bool(obstacle)
