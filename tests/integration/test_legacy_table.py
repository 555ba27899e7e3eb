"""The table of PyTorch's own FX mode, 194 patterns, in a quarter of the entries: the same nodes, but for these."""

from __future__ import annotations

import operator
from collections import Counter, defaultdict

import pytest
import torch
from torch import fx, nn
from torch.overrides import TorchFunctionMode

import fusion_core as core
from fusion_core.matcher import CallGraph, PatternIndex, scan
from fusion_core.nn import fused
from fusion_core.patterns import as_operator, operation_of

pytest.importorskip("torch.ao.quantization.quantize_fx")
from torch.ao.nn import intrinsic, qat
from torch.ao.nn.intrinsic import qat as intrinsic_qat
from torch.ao.quantization.backend_config import get_native_backend_config
from torch.ao.quantization.fx.match_utils import _find_matches
from torch.ao.quantization.fx.pattern_utils import _sorted_patterns_dict
from torch.ao.quantization.fx.quantize_handler import (
    _get_pattern_to_quantize_handlers,
)

INT8 = core.DTypeConfig(input_dtype=torch.quint8, output_dtype=torch.quint8)
OURS = core.catalog.native([INT8], [INT8], embedding=[INT8], recurrent=[INT8])
THEIRS = get_native_backend_config()

# Upstream's fused modules and what fusion_core makes in their place.
COUNTERPARTS = {
    intrinsic.ConvReLU1d: fused.ConvReLU1d,
    intrinsic.ConvReLU2d: fused.ConvReLU2d,
    intrinsic.ConvReLU3d: fused.ConvReLU3d,
    intrinsic.LinearReLU: fused.LinearReLU,
    intrinsic.BNReLU2d: fused.BatchNormReLU2d,
    intrinsic.BNReLU3d: fused.BatchNormReLU3d,
}

# Upstream's patterns that mean nothing here, by the reason.
WITHOUT_MEANING = {
    "fusion_core has no modules for training yet": {
        *(qat.Conv1d, qat.Conv2d, qat.Conv3d, qat.Linear, qat.Embedding, qat.EmbeddingBag),
        *(intrinsic_qat.ConvReLU1d, intrinsic_qat.ConvReLU2d, intrinsic_qat.ConvReLU3d),
        *(intrinsic_qat.ConvBn1d, intrinsic_qat.ConvBn2d, intrinsic_qat.ConvBn3d),
        *(intrinsic_qat.ConvBnReLU1d, intrinsic_qat.ConvBnReLU2d, intrinsic_qat.ConvBnReLU3d),
        *(intrinsic_qat.LinearReLU, intrinsic_qat.LinearBn1d),
    },
    "made by fusing for training only; in eval mode the batch norm is folded away": {
        *(intrinsic.ConvBn1d, intrinsic.ConvBn2d, intrinsic.ConvBn3d, intrinsic.LinearBn1d),
        *(intrinsic.ConvBnReLU1d, intrinsic.ConvBnReLU2d, intrinsic.ConvBnReLU3d),
    },
    "no tensor has a method of that name": {"hardsigmoid", "hardsigmoid_", "shape"},
}

# Where a pattern is observed otherwise than upstream, and why.
OBSERVED_OTHERWISE = {
    operator.floordiv: "it changes values, so their parameters cannot be shared; models divide sizes",
}


def matches(graph, modules, index):
    """The nodes that each of our matches claims, by its anchor."""
    found = scan(CallGraph(graph, modules), index).matches
    return {match.anchor: frozenset(match.nodes) for match in found}


def upstream_matches(graph, modules, patterns):
    """The same from upstream's matcher, which reports the last node of each match by node."""
    found = defaultdict(set)
    by_name = {node.name: node for node in graph.nodes}
    for name, (last, *_) in _find_matches(graph, modules, patterns, {}).items():
        found[last].add(by_name[name])
    return {last: frozenset(nodes) for last, nodes in found.items()}


def indexed(configs):
    return PatternIndex((config.normal_pattern, config) for config in configs)


def upstream_patterns(*, fusing=None):
    """Upstream's patterns in the order in which it tries them: all, or only those that fuse, or do not."""
    handlers = _sorted_patterns_dict(_get_pattern_to_quantize_handlers(THEIRS))
    table = THEIRS._pattern_complex_format_to_config
    return {
        pattern: handler
        for pattern, handler in handlers.items()
        if fusing in {None, table[pattern].fuser_method is not None}
    }


def test_a_quarter_of_the_entries_is_enough():
    assert len(THEIRS.configs) >= 194
    assert len(OURS) <= len(THEIRS.configs) // 4


def test_the_names_of_the_table_are_families_of_the_catalog():
    assert {each.pattern for each in core.catalog.conv([INT8])} <= {each.pattern for each in OURS}


def elements_of(config):
    pattern = config.pattern if config._pattern_complex_format is None else None
    assert pattern is not None, "the native table has no nested patterns"
    return pattern if isinstance(pattern, tuple) else (pattern,)


def spelled_out(elements):
    """A graph that does what ``elements`` say, one after the other, and its modules."""
    graph, modules = fx.Graph(), {}
    x = value = graph.placeholder("x")
    for place, element in enumerate(elements):
        if isinstance(element, type):
            # The constructors want arguments, the matchers do not.
            modules[f"m{place}"] = element.__new__(element)
            nn.Module.__init__(modules[f"m{place}"])
            value = graph.call_module(f"m{place}", (value,))
        elif isinstance(element, str):
            value = graph.call_method(element, (value,))
        else:
            operands = (value,) if place else (x, x)
            value = graph.call_function(element, operands)
    graph.output(value)
    return graph, modules


def shown(config):
    return " -> ".join(getattr(each, "__name__", each) for each in elements_of(config))


@pytest.mark.parametrize("config", THEIRS.configs, ids=shown)
def test_each_pattern_claims_the_same_nodes_or_is_named_with_its_reason(config):
    elements = elements_of(config)
    theirs = upstream_matches(*spelled_out(elements), upstream_patterns())
    graph, modules = spelled_out([COUNTERPARTS.get(each, each) for each in elements])
    ours = matches(graph, modules, indexed(OURS))

    def named(found):
        return {last.name: {node.name for node in nodes} for last, nodes in found.items()}

    expressed = named(ours) == named(theirs)
    reasons = [why for why, which in WITHOUT_MEANING.items() if config.pattern in which]
    assert expressed is not bool(reasons)


@pytest.mark.parametrize("config", THEIRS.configs, ids=shown)
def test_each_pattern_is_observed_and_weighted_as_upstream_but_for_those_named(config):
    if any(config.pattern in which for which in WITHOUT_MEANING.values()):
        return
    elements = [COUNTERPARTS.get(each, each) for each in elements_of(config)]
    graph, modules = spelled_out(elements)
    (match,) = scan(CallGraph(graph, modules), indexed(OURS)).matches
    ours = match.entry

    same = ours.observation_type.name == config.observation_type.name
    assert same is not (config.pattern in OBSERVED_OTHERWISE)
    assert (ours.fuser_method is None) == (config.fuser_method is None)
    if config._input_type_to_index:
        assert ours.input_type_to_index == config._input_type_to_index


BOUNDED = "convolution and batch norm are fused with a bounded activation too"
SPELLING = "an operation means every spelling of it, of which upstream has some"
SHAPE = "x.shape is an attribute read; upstream names a method, which there is not"


def kind_of(node, theirs, ours, all_ours, modules):
    """Which of the intended differences this is: what upstream and we claim with ``node`` as the last."""

    def is_bounded(claimed):
        ends = {type(modules.get(each.target)) for each in claimed} & {nn.ReLU6, nn.Hardtanh}
        return len(claimed) == 3 and bool(ends)

    if theirs is None and ours == {node}:
        if node.target is getattr:
            return SHAPE if node.args[1] == "shape" else None
        operation = operation_of(operator_at(node, modules))
        known = {operation_of(as_operator(each)) for each in upstream_patterns(fusing=False)}
        return SPELLING if operation in known - {None} else None
    if theirs is None and is_bounded(ours):
        return BOUNDED
    taken = [each for each in all_ours.values() if theirs is not None and theirs < each]
    return BOUNDED if ours is None and any(map(is_bounded, taken)) else None


def operator_at(node, modules):
    return as_operator(type(modules[node.target]) if node.op == "call_module" else node.target)


class NumbersOnCpu(TorchFunctionMode):
    """RegNet reads the widths of its blocks out of tensors, which a meta tensor cannot give."""

    def __torch_function__(self, func, _types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if func in {torch.arange, torch.tensor}:
            kwargs.setdefault("device", "cpu")
        return func(*args, **kwargs)


def traced(name):
    """The unfused graph of a classification model of torchvision, whose weights have no memory."""
    torchvision = pytest.importorskip("torchvision")
    with torch.device("meta"), NumbersOnCpu():
        model = torchvision.models.get_model(name, weights=None).eval()
    return fx.Tracer().trace(model), dict(model.named_modules(remove_duplicate=False))


def first_and_last_of_each_family(models):
    """Names of classification models; those between repeat the same blocks."""
    families = defaultdict(list)
    for name in models.list_models(module=models):
        families[models.get_model_builder(name).__module__].append(name)
    return [name for each in families.values() for name in dict.fromkeys((each[0], each[-1]))]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*default weight initialization:FutureWarning")
def test_the_classification_models_of_torchvision_are_matched_alike_but_for_these():
    """Patterns with a fuser and those without, each as a set of its own, on the graphs as they are traced."""
    models = pytest.importorskip("torchvision.models")
    names = first_and_last_of_each_family(models)
    tables = {
        fusing: (
            indexed(each for each in OURS if (each.fuser_method is not None) is fusing),
            upstream_patterns(fusing=fusing),
        )
        for fusing in (True, False)
    }
    seen = {True: Counter(), False: Counter()}
    alike = Counter()
    for name in names:
        graph, modules = traced(name)
        for fusing, (index, patterns) in tables.items():
            ours, theirs = (
                matches(graph, modules, index),
                upstream_matches(graph, modules, patterns),
            )
            for node in ours.keys() | theirs.keys():
                pair = theirs.get(node), ours.get(node)
                kind = "alike" if pair[0] == pair[1] else kind_of(node, *pair, ours, modules)
                assert kind is not None, (name, node.format_node(), *pair)
                seen[fusing][kind] += 1
            alike[fusing] += 1
    assert len(names) >= 25
    assert alike == {True: len(names), False: len(names)}  # FX can trace them all
    assert set(seen[True]) == {"alike", BOUNDED}
    assert set(seen[False]) == {"alike", SPELLING, SHAPE}
    assert seen[True]["alike"] > 1000
    assert seen[False]["alike"] > 5000
