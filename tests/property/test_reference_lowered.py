"""Random layers and operations of the native backends: kernels give what the reference gives, within one step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  the name everyone knows it by
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import nn

import fusion_core as core
from fusion_core.qops import dequantize_per_tensor

ONE_STEP = 1.001
"""And what float32 loses in saying so."""

KINDS = {
    "fbgemm": {"weight_min": -64, "weight_max": 63},
    "fbgemm short": {"quant_max": 127},
    "fbgemm symmetric": {"weight_min": -64, "weight_max": 63, "symmetric": True},
    "qnnpack": {},
    "qnnpack signed": {"dtype": torch.qint8, "weight_min": -127, "eps": 2.0**-12},
}
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
ACTIVATIONS = (
    nn.Identity(),
    nn.ReLU(),
    nn.ReLU6(),
    nn.Hardtanh(-0.2, 0.3),
    nn.Hardtanh(0.1, 0.2),
    nn.Hardtanh(-0.3, -0.1),
    nn.Hardtanh(-0.5, float("inf")),
)


@dataclass
class Trial:
    """A model and what it is tried on.

    Attributes:
        model: The model.
        shape: Of its input.
        middle: What inputs lie around.
    """

    model: nn.Module
    shape: tuple[int, ...]
    middle: float = 0.3

    def __repr__(self) -> str:
        return f"{self.model} on {self.shape} around {self.middle}"


class Behind(nn.Module):
    """An operation on a value that has the codes of the reference."""

    def __init__(self, name: str, operation: Any, *, slope: float = 0.5) -> None:
        super().__init__()
        self.name, self.operation, self.slope = name, operation, slope

    def forward(self, x):
        return self.operation(F.leaky_relu(x, self.slope))

    def extra_repr(self) -> str:
        return f"{self.name}, slope={self.slope}"


def disturbed(layer, draw):
    """Channels that are zero, large or small, and biases beyond the output's range."""
    with torch.no_grad():
        for row in layer.weight[:3]:
            row.mul_(draw(st.sampled_from([1.0, 0.0, -20.0, 1e-3])))
        if layer.bias is not None:
            layer.bias.mul_(draw(st.sampled_from([1.0, 0.0, -10.0])))
    return layer


@st.composite
def convolutions(draw):
    """Convolutions in any geometry, transposed or not, with an activation behind them."""
    dims, groups = draw(st.integers(1, 3)), draw(st.sampled_from([1, 2, 4, 8]))
    is_transposed = draw(st.booleans()) and groups < 8
    kind = (TRANSPOSED if is_transposed else CONVOLUTIONS)[dims - 1]
    each = lambda low, high: tuple(draw(st.integers(low, high)) for _ in range(dims))  # noqa: E731
    kernel = (
        draw(st.sampled_from([(3,) * dims, (5,) * dims, (1,) * dims])) if dims < 3 else each(1, 3)
    )
    options = {"stride": each(1, 3), "padding": each(0, 2), "dilation": each(1, 2)}
    if not is_transposed and draw(st.integers(0, 3)) == 0:
        options |= {"padding": draw(st.sampled_from(["same", "valid"])), "stride": 1}
    channels = 8, groups * draw(st.integers(1, 2))
    bias = draw(st.booleans())
    try:
        layer = kind(*channels, kernel, groups=groups, bias=bias, **options).eval()
        shape = (draw(st.integers(1, 3)), 8, *each(3, 7))
        is_empty = layer(torch.zeros(shape)).numel() == 0
    except (RuntimeError, ValueError):
        is_empty = True
    assume(not is_empty)
    layer = disturbed(layer, draw)
    activation = nn.Identity() if is_transposed else draw(st.sampled_from(ACTIVATIONS))
    return Trial(nn.Sequential(layer, activation), shape, draw(st.sampled_from([0.3, -3.0, 3.0])))


@st.composite
def linears(draw):
    """Linear layers on inputs of 2 to 4 dimensions, with an activation behind them."""
    inputs, outputs = draw(st.sampled_from([1, 2, 7, 64, 300])), draw(st.integers(1, 9))
    layer = disturbed(nn.Linear(inputs, outputs, bias=draw(st.booleans())), draw)
    leading = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    model = nn.Sequential(layer, draw(st.sampled_from(ACTIVATIONS)))
    return Trial(model, (*leading, inputs), draw(st.sampled_from([0.3, -3.0, 3.0])))


@st.composite
def sums_and_products(draw):
    """Two tensors of different scales, one of them broadcast, or a tensor and a number, perhaps with ReLU."""
    number = draw(st.sampled_from([None, 0.7, -3, 0, 1e-3, 50.0]))
    index = draw(st.sampled_from([..., (slice(None), slice(1)), (..., slice(1)), (0,), (0, 0)]))
    factor = draw(st.sampled_from([0.1, -1.0, 7.0]))
    names = ["+", "*"] if number is None else ["+", "*", "-", "rsub", "/"]
    name = draw(st.sampled_from(names))
    assume(not (name == "/" and number == 0))
    apply = {
        "+": lambda a, b: b + a,
        "*": lambda a, b: b * a,
        "-": lambda a, b: a - b,
        "rsub": lambda a, b: b - a,
        "/": lambda a, b: a / b,
    }[name]
    last = draw(st.sampled_from([torch.clone, F.relu]))

    def operation(x):
        other = F.leaky_relu(x, factor)[index] if number is None else number
        return last(apply(x, other)) if last is F.relu else apply(x, other)

    text = f"{name} {number} {index} {factor} {last.__name__}"
    return Trial(Behind(text, operation), (2, 3, 4, draw(st.integers(1, 5))))


@st.composite
def poolings(draw):
    """Pooling with any window, padding and stride, means over any dimensions, clamping to any bounds."""
    kernel, stride = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    padding, is_ceil = draw(st.integers(0, kernel // 2)), draw(st.booleans())
    counted, sizes = draw(st.booleans()), draw(st.tuples(st.integers(1, 8), st.integers(1, 8)))
    dims = draw(st.lists(st.integers(0, 3), min_size=1, max_size=4, unique=True))
    kept, bounds = draw(st.booleans()), draw(st.tuples(st.floats(-3, 3), st.floats(-3, 3)))
    operations = {
        "max": lambda x: F.max_pool2d(x, kernel, stride, padding, ceil_mode=is_ceil),
        "avg": lambda x: F.avg_pool2d(x, kernel, stride, padding, is_ceil, counted),
        "avg 1d": lambda x: F.avg_pool1d(x.flatten(2), kernel, stride, padding, is_ceil, counted),
        "adaptive": lambda x: F.adaptive_avg_pool2d(x, sizes),
        "mean": lambda x: x.mean(dims, keepdim=kept),
        "clamp": lambda x: x.clamp(*bounds),
        "clamp to one": lambda x: x.clamp(max=bounds[0]),
        "linear": lambda x: F.interpolate(x, sizes, mode="bilinear", align_corners=counted),
        "area": lambda x: F.interpolate(x, sizes, mode="area"),
        "softmax": lambda x: x.softmax(dims[0]),
        "elu": lambda x: F.elu(x, bounds[0]),
    }
    name = draw(st.sampled_from(list(operations)))
    text = f"{name} {kernel} {stride} {padding} {is_ceil} {counted} {sizes} {dims} {kept} {bounds}"
    size = draw(st.tuples(st.integers(4, 7), st.integers(4, 7)))
    slope = draw(st.sampled_from([0.5, -0.5, 0.0]))
    return Trial(Behind(text, operations[name], slope=slope), (2, 3, *size))


def mapping(kind):
    """A qconfig whose range is that of the calibration; what is new may be outside of it."""
    made = core.catalog.static_qconfig(**KINDS[kind])
    spec = core.ObserverSpec(core.nn.MinMaxObserver, dict(made.activation.options))
    whole = core.catalog.static_qconfig(**KINDS[kind], per_channel=False).weight
    qconfig = made.model_copy(update={"activation": spec})
    found = core.catalog.static_qconfig_mapping(qconfig)
    for key in TRANSPOSED:
        found.set_object_type(key, qconfig.model_copy(update={"weight": whole}))
    return found


def tried(x):
    """Inputs like ``x`` in other ranges, layouts and numbers."""
    yield from (x, -x, 4 * x, 1e6 * x, torch.zeros_like(x))
    yield x.transpose(0, -1).contiguous().transpose(0, -1)
    yield x[:1]
    yield torch.cat([x, x])


def check(trial, kind, seed=0):
    """Lower a model and hold it against the reference on every input."""
    generator = torch.Generator().manual_seed(seed)
    data = [torch.randn(trial.shape, generator=generator) + trial.middle for _ in range(2)]
    reference = core.quantize(
        trial.model.eval(),
        kind.partition(" ")[0],
        calibration=data[:1],
        qconfig_mapping=mapping(kind),
        reference=True,
        adaptive_rounding=False,
        bias_correction=False,
        progress=False,
    )
    lowered = core.lower(reference)
    for line in core.report(lowered).ledger:
        is_kernel = line.status in {core.Status.INT8, core.Status.REMOVED}
        assert is_kernel or line.reason, f"{line.operation} is {line.status} and nothing says why"
    node = reference.graph.output_node().args[0]
    for x in tried(data[1]):
        with torch.no_grad():
            one, other = reference(x), lowered(x)
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        difference = float((one - other).abs().max())
        is_quantized = node.target is dequantize_per_tensor
        spread = float(one.max() - one.min()) / 255 + 1e-5 * float(one.abs().max())
        assert difference <= ONE_STEP * (node.args[1] if is_quantized else spread)


kinds = st.sampled_from(list(KINDS))
trials = st.one_of(convolutions(), convolutions(), linears(), sums_and_products(), poolings())


@settings(max_examples=30, deadline=None, derandomize=True, database=None)
@given(trial=trials, kind=kinds)
def test_a_kernel_gives_the_reference_within_one_step(trial, kind):
    check(trial, kind)
