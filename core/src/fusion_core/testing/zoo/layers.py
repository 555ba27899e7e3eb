"""Capabilities with a weight: convolutions, linear layers, embeddings, recurrent layers and norms."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  the name everyone knows it by
from torch import Tensor, nn

from fusion_core.testing.modes import Way
from fusion_core.testing.zoo.case import IMAGES, ROWS, SIGNALS, VOLUMES, Calls, Case


def _layer(build: Callable[[], nn.Module], *shape: int) -> tuple[Case, ...]:
    """One layer and nothing else."""
    case = Case(
        text="module",
        forward=lambda model, x: model.layer(x),
        layers=lambda: {"layer": build()},
        shapes=(shape or IMAGES,),
    )
    return (case,)


def _behind(
    build: Callable[[], nn.Module],
    spellings: Mapping[str, Calls],
    norm: Callable[[], nn.Module] = nn.Identity,
    shape: tuple[int, ...] = IMAGES,
) -> tuple[Case, ...]:
    """A layer, perhaps a batch norm, and an activation in each of its spellings, taken up as one."""

    def case(text: str, activation: Calls) -> Case:
        return Case(
            text=text,
            forward=lambda model, x: activation(model, model.norm(model.layer(x))),
            layers=lambda: {"layer": build(), "norm": norm(), "relu": nn.ReLU(), **_BOUNDED()},
            shapes=(shape,),
            is_one=True,
        )

    return tuple(case(text, activation) for text, activation in spellings.items())


def _BOUNDED() -> dict[str, nn.Module]:  # noqa: N802  stands for a constant, but modules are made anew
    return {"relu6": nn.ReLU6(), "relu_in_place": nn.ReLU(inplace=True)}


_RELUS: dict[str, Calls] = {
    "nn.ReLU": lambda model, x: model.relu(x),
    "nn.ReLU(inplace=True)": lambda model, x: model.relu_in_place(x),
    "F.relu": lambda _, x: F.relu(x),
    "F.relu(inplace=True)": lambda _, x: F.relu(x, inplace=True),
    "torch.relu": lambda _, x: torch.relu(x),
    "x.relu()": lambda _, x: x.relu(),
}
_ONE_RELU: dict[str, Calls] = {"nn.ReLU": _RELUS["nn.ReLU"], "F.relu": _RELUS["F.relu"]}
_RELU6: dict[str, Calls] = {
    "nn.ReLU6": lambda model, x: model.relu6(x),
    "F.relu6": lambda _, x: F.relu6(x),
    "F.hardtanh": lambda _, x: F.hardtanh(x, 0.0, 6.0),
}
_NOTHING: dict[str, Calls] = {"modules": lambda _, x: x}


def _parameters(*shape: int) -> Callable[[], dict[str, Any]]:
    def build() -> dict[str, Any]:
        weight, bias = torch.randn(shape) / 4, torch.randn(shape[0]) / 4
        return {"weight": nn.Parameter(weight), "bias": nn.Parameter(bias)}

    return build


def _conv_function(model: Any, x: Tensor) -> Tensor:
    return F.conv2d(x, model.weight, model.bias, padding=1)


def _linear_function(model: Any, x: Tensor) -> Tensor:
    return F.linear(x, model.weight, model.bias)


def _recurrent(
    builds: Mapping[str, Callable[[], nn.Module]], *shape: int, gives: Calls
) -> tuple[Case, ...]:
    def case(text: str, build: Callable[[], nn.Module]) -> Case:
        return Case(
            text=text,
            forward=lambda model, x: gives(model.layer(x)),
            layers=lambda: {"layer": build()},
            shapes=(shape,),
            way="dynamic",
        )

    return tuple(case(text, build) for text, build in builds.items())


def _of_a_layer(kind: Callable[..., nn.Module]) -> tuple[Case, ...]:
    builds = {
        "module": lambda: kind(8, 6),
        "two levels, both ways": lambda: kind(8, 6, 2, bidirectional=True, batch_first=True),
    }
    return _recurrent(builds, 5, 2, 8, gives=lambda given: given[0])


def _of_a_cell(kind: Callable[..., nn.Module], gives: Calls) -> tuple[Case, ...]:
    return _recurrent({"module": lambda: kind(8, 6)}, 4, 8, gives=gives)


def _indexing(build: Callable[[], nn.Module], way: Way = "weight_only") -> tuple[Case, ...]:
    case = Case(
        text="module",
        forward=lambda model, x: model.layer(x),
        layers=lambda: {"layer": build()},
        shapes=((4, 3),),
        way=way,
        highest=10,
    )
    return (case,)


def _conv() -> nn.Module:
    return nn.Conv2d(4, 6, 3, padding=1)


def _linear() -> nn.Module:
    return nn.Linear(16, 8)


def _in_a_way(way: Way) -> tuple[Case, ...]:
    """Linear layers quantized in a way, alone and with ReLU behind."""

    def rectified(model: Any, x: Tensor) -> Tensor:
        return F.relu(model.layer(x))

    plain = Case("module", lambda model, x: model.layer(x), _a_linear, (ROWS,), way=way)
    return plain, Case("F.relu", rectified, _a_linear, ((2, *ROWS),), is_one=True, way=way)


def _a_linear() -> dict[str, nn.Module | nn.Parameter]:
    return {"layer": _linear()}


LAYERS: dict[str, tuple[Case, ...]] = {
    "conv1d": _layer(lambda: nn.Conv1d(4, 6, 3), *SIGNALS),
    "conv2d": _layer(_conv),
    "conv3d": _layer(lambda: nn.Conv3d(3, 4, 3), *VOLUMES),
    "conv2d.depthwise": _layer(lambda: nn.Conv2d(8, 8, 3, padding=1, groups=8), 2, 8, 8, 8),
    "conv2d.grouped": _layer(lambda: nn.Conv2d(8, 8, 3, groups=2), 2, 8, 8, 8),
    "conv2d.strided": _layer(lambda: nn.Conv2d(4, 6, 3, stride=2, padding=1)),
    "conv2d.dilated": _layer(lambda: nn.Conv2d(4, 6, 3, dilation=2)),
    "conv2d.pointwise": _layer(lambda: nn.Conv2d(4, 6, 1)),
    "conv2d.large": _layer(lambda: nn.Conv2d(4, 6, 7, padding=3)),
    "conv2d.same": _layer(lambda: nn.Conv2d(4, 6, 4, padding="same")),
    "conv2d.no_bias": _layer(lambda: nn.Conv2d(4, 6, 3, bias=False)),
    "conv2d.relu": _behind(_conv, _RELUS),
    "conv2d.relu6": _behind(_conv, _RELU6),
    "conv2d.batch_norm": _behind(_conv, _NOTHING, lambda: nn.BatchNorm2d(6)),
    "conv2d.batch_norm_relu": _behind(_conv, _ONE_RELU, lambda: nn.BatchNorm2d(6)),
    "conv2d.function": (Case("F.conv2d", _conv_function, _parameters(6, 4, 3, 3)),),
    "conv_transpose1d": _layer(lambda: nn.ConvTranspose1d(4, 6, 3), *SIGNALS),
    "conv_transpose2d": _layer(lambda: nn.ConvTranspose2d(4, 6, 3, stride=2)),
    "conv_transpose3d": _layer(lambda: nn.ConvTranspose3d(3, 4, 3), *VOLUMES),
    "linear": _layer(_linear, *ROWS),
    "linear.batched": _layer(_linear, 2, *ROWS),
    "linear.no_bias": _layer(lambda: nn.Linear(16, 8, bias=False), *ROWS),
    "linear.relu": _behind(_linear, _ONE_RELU, shape=ROWS),
    "linear.batch_norm": _behind(_linear, _NOTHING, lambda: nn.BatchNorm1d(8), ROWS),
    "linear.function": (Case("F.linear", _linear_function, _parameters(8, 16), (ROWS,)),),
    "linear.dynamic": _in_a_way("dynamic"),
    "weights.float16": _in_a_way("float16"),
    "prelu": _layer(nn.PReLU),
    "batch_norm2d": _layer(lambda: nn.BatchNorm2d(4)),
    "layer_norm": _layer(lambda: nn.LayerNorm(8)),
    "group_norm": _layer(lambda: nn.GroupNorm(2, 4)),
    "instance_norm": _layer(lambda: nn.InstanceNorm2d(4)),
    "embedding": _indexing(lambda: nn.Embedding(10, 8)),
    "embedding.4bit": _indexing(lambda: nn.Embedding(10, 8), "4bit"),
    "embedding_bag": _indexing(lambda: nn.EmbeddingBag(10, 8, mode="sum")),
    "lstm": _of_a_layer(nn.LSTM),
    "lstm_cell": _of_a_cell(nn.LSTMCell, lambda state: state[0]),
    "gru": _of_a_layer(nn.GRU),
    "gru_cell": _of_a_cell(nn.GRUCell, lambda state: state),
    "rnn_cell": _of_a_cell(nn.RNNCell, lambda state: state),
}
"""Models by capability."""
