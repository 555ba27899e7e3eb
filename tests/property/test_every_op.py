"""Every operation that a native backend claims: its kernel gives what the reference gives, within one step."""

from __future__ import annotations

import pytest
import torch
from torch.fx import symbolic_trace

import fusion_core as core
from fusion_core.examples.readings import operators_of, readings_of
from fusion_core.matcher import CallGraph, PatternIndex, scan
from fusion_core.passes import fuse, trace
from fusion_core.patterns import operation_of, render
from fusion_core.qops import dequantize_per_tensor

from .op_samples import (
    IMAGES,
    PLAIN,
    Heads,
    indexing_heads,
    plain_layers,
    recurrent_heads,
    weighted_heads,
)

ONE_STEP = 1.001
"""And what float32 loses in saying so."""

RUN = {core.Status.INT8, core.Status.FLOAT16, core.Status.REMOVED, core.Status.NO_TENSOR}
SELECTED = "PyTorch has no kernel for it while the engine qnnpack is selected"
TRANSPOSED = "no pattern of qnnpack matches ConvTranspose3d here"
IDLE = "a layer before it gives float, and nothing behind it reads codes"
UNLOWERED = {
    "fbgemm": {IDLE},
    "fbgemm, short activations": {IDLE, "it could give codes outside of 0 to 127"},
    "qnnpack": {SELECTED, TRANSPOSED},
    "qnnpack, signed": {SELECTED, TRANSPOSED},
}
"""What reasons in the ledger end with, of the only operations that may stay."""

QCONFIGS = {
    "fbgemm": {"weight_min": -64, "weight_max": 63},
    "fbgemm, short activations": {"quant_max": 127},
    "qnnpack": {},
    "qnnpack, signed": {"dtype": torch.qint8, "weight_min": -127, "eps": 2.0**-12},
}


def static_model():
    heads, layers = weighted_heads()
    return Heads({**heads, **PLAIN}, {**layers, **plain_layers()}).eval()


def recurrent_model():
    return Heads(*recurrent_heads(), is_float=True).eval()


def indexing_model():
    return Heads(*indexing_heads(), is_float=True).eval()


def images():
    return torch.randn(IMAGES) + 0.3


def rows():
    return torch.randn(5, 3, 8)


def ids():
    return torch.randint(10, (4, 3))


def mapping(kind):
    """Observers of the smallest and largest value, so that what is new may be outside of the range."""
    made = core.catalog.static_qconfig(**QCONFIGS[kind])
    options = dict(made.activation.options)
    spec = core.ObserverSpec(core.nn.MinMaxObserver, options)
    qconfig = made.model_copy(update={"activation": spec})
    found = core.catalog.static_qconfig_mapping(qconfig)
    if kind.startswith("fbgemm"):  # its transposed convolutions take one scale for the whole weight
        whole = core.catalog.static_qconfig(**QCONFIGS[kind], per_channel=False).weight
        for key in [each for each in found.object_type_qconfigs if "ranspose" in str(each)]:
            found.set_object_type(key, qconfig.model_copy(update={"weight": whole}))
    return found


def both(model, backend, qconfig_mapping, calibration):
    """The reference model and the lowered one."""
    reference = core.quantize(
        model,
        backend,
        calibration=calibration,
        qconfig_mapping=qconfig_mapping,
        reference=True,
        adaptive_rounding=False,
        bias_correction=False,
        progress=False,
    )
    return reference, core.lower(reference)


def apart(reference, lowered, x):
    """By head how many steps of its output the two differ, where that is more than one."""
    nodes = reference.graph.output_node().args[0]
    with torch.no_grad():
        one, other = reference(x), lowered(x)
    found = {}
    for name, node in nodes.items():
        assert one[name].shape == other[name].shape, name
        assert one[name].dtype == other[name].dtype, name
        if one[name].numel():
            difference = float((one[name] - other[name]).abs().max())
            found[name] = difference / step(node, one[name]) if difference else 0.0
    return {name: steps for name, steps in found.items() if steps > ONE_STEP}


def step(node, value):
    """The scale of a quantized output; of one in float, a 255th of its range."""
    is_quantized = node.target is dequantize_per_tensor
    return node.args[1] if is_quantized else float(value.max() - value.min()) / 255


def left_over(lowered):
    """Why operations do not run in a kernel."""
    return {
        line.reason.rpartition("does not fit, ")[2]
        for line in core.report(lowered).ledger
        if line.status not in RUN
    }


def read_as(operators):
    """What a pattern or a match stands for, whatever the spelling."""
    return tuple(sorted(str(operation_of(each) or each) for each in operators))


def graphs_of(model, x, backend):
    """What is written, and what is left of it after tracing and after fusing."""
    traced = trace(model, (x,), backend=backend)
    return [CallGraph.of(each) for each in (symbolic_trace(model), traced, fuse(traced, backend))]


@pytest.mark.parametrize("backend", ["fbgemm", pytest.param("qnnpack", marks=pytest.mark.slow)])
def test_every_alternative_of_every_pattern_has_a_sample(backend):
    given = core.get_backend(backend)
    samples = [(static_model(), images()), (recurrent_model(), rows()), (indexing_model(), ids())]
    graphs = [graph for model, x in samples for graph in graphs_of(model, x, given)]
    missing = []
    for entry in given.entries:
        index = PatternIndex([(entry.pattern, entry)])
        found = {
            read_as(graph.site(node).operators[0] for node in match.nodes)
            for graph in graphs
            for match in scan(graph, index).matches
        }
        wanted = {read_as(operators_of(each)): each for each in readings_of(entry.pattern)}
        missing += [render(each) for names, each in wanted.items() if names not in found]

    # Tracing makes it out of place, and no pattern is about that; it stays float.
    assert missing == [".resize_"]


@pytest.mark.parametrize(
    "kind",
    [
        "fbgemm",
        pytest.param("qnnpack, signed", marks=pytest.mark.slow),
        pytest.param("fbgemm, short activations", marks=pytest.mark.slow),
        pytest.param("qnnpack", marks=pytest.mark.slow),
    ],
)
def test_every_operation_gives_the_reference_within_one_step(kind):
    torch.manual_seed(0)
    backend = kind.partition(",")[0]
    reference, lowered = both(static_model(), backend, mapping(kind), [images()])
    x = images()
    tried = {
        "new": x,
        "outside of the range": 3 * x,
        "far outside": 1e6 * x,
        "channels last": x.contiguous(memory_format=torch.channels_last),
        "strided": x.repeat_interleave(2, dim=3)[..., ::2],
        "another batch": torch.cat([x, 0 * x[:1]]),
    }

    different = {name: apart(reference, lowered, each) for name, each in tried.items()}
    assert {name: found for name, found in different.items() if found} == {}
    assert left_over(lowered) <= UNLOWERED[kind]
