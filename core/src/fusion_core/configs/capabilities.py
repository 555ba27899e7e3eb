"""The vocabulary in which a backend says what it does and does not support."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from types import MappingProxyType

CAPABILITIES: Mapping[str, str] = MappingProxyType(
    {
        "conv1d": "convolution in one dimension",
        "conv2d": "convolution in two dimensions",
        "conv3d": "convolution in three dimensions",
        "conv2d.depthwise": "one filter for each channel",
        "conv2d.grouped": "channels in groups",
        "conv2d.strided": "stride of 2",
        "conv2d.dilated": "dilation of 2",
        "conv2d.pointwise": "kernel of 1x1",
        "conv2d.large": "kernel of 7x7",
        "conv2d.same": "padding 'same' with an even kernel, which is not symmetric",
        "conv2d.no_bias": "without a bias",
        "conv2d.relu": "ReLU behind it, in every spelling, taken up",
        "conv2d.relu6": "ReLU6 behind it taken up",
        "conv2d.batch_norm": "batch norm behind it folded",
        "conv2d.batch_norm_relu": "batch norm and ReLU behind it taken up",
        "conv2d.function": "F.conv2d on parameters of the model",
        "conv_transpose1d": "transposed convolution in one dimension",
        "conv_transpose2d": "transposed convolution in two dimensions",
        "conv_transpose3d": "transposed convolution in three dimensions",
        "linear": "linear layer on rows",
        "linear.batched": "linear layer on inputs of three dimensions",
        "linear.no_bias": "without a bias",
        "linear.relu": "ReLU behind it taken up",
        "linear.batch_norm": "batch norm behind it folded",
        "linear.function": "F.linear on parameters of the model",
        "add": "sum of two tensors",
        "add.relu": "ReLU behind a sum taken up",
        "add.same": "sum of a tensor with itself",
        "add.scalar": "sum with a number",
        "mul": "product of two tensors",
        "mul.relu": "ReLU behind a product taken up",
        "mul.scalar": "product with a number",
        "matmul": "product of two computed matrices",
        "cat": "concatenation",
        "max_pool2d": "largest value of a window",
        "avg_pool2d": "mean of a window",
        "adaptive_avg_pool2d": "mean over areas of equal share",
        "mean": "mean over dimensions",
        "relu": "ReLU that stands alone",
        "relu6": "ReLU6 that stands alone",
        "hardtanh": "clamping to bounds, as a module",
        "clamp": "clamping to bounds, as a function",
        "elu": "ELU",
        "leaky_relu": "leaky ReLU",
        "hardswish": "hard swish",
        "prelu": "ReLU with a learnt slope",
        "sigmoid": "sigmoid",
        "tanh": "hyperbolic tangent",
        "hardsigmoid": "hard sigmoid",
        "softmax": "softmax",
        "batch_norm2d": "batch norm that nothing takes up",
        "layer_norm": "layer norm",
        "group_norm": "group norm",
        "instance_norm": "instance norm",
        "embedding": "look-up of rows",
        "embedding_bag": "sums of looked-up rows",
        "lstm": "LSTM layer",
        "gru": "GRU layer",
        "flatten": "flattening dimensions",
        "reshape": "another shape of the same values",
        "permute": "another order of dimensions",
        "transpose": "two dimensions exchanged",
        "squeeze": "dimensions of size 1 taken away or added",
        "pad": "padding with zeros",
        "interpolate": "nearest-neighbour resizing",
        "pixel_shuffle": "channels spread into space",
        "weights.per_channel": "a scale for each output channel of a weight",
        "weights.per_tensor": "one scale for a whole weight",
        "activations.unsigned": "activations in unsigned 8-bit codes",
        "activations.signed": "activations in signed 8-bit codes",
        "activations.affine": "activations with a zero point that is not fixed",
        "kernels": "own kernels: what is quantized does not stay in its reference form",
    }
)
"""What a backend may support, by name; a dot separates an operation from a case of it."""


def covered(glob: str) -> tuple[str, ...]:
    """The capabilities that ``glob`` names: ``"conv2d"`` itself, ``"conv2d.*"``, ``"*norm*"``."""
    return tuple(name for name in CAPABILITIES if fnmatchcase(name, glob))
