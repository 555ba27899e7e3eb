"""A head for every operation of the native backends: what a model may write, by name."""

from __future__ import annotations

import itertools
from functools import partial

import torch
import torch.nn.functional as F  # noqa: N812  the name everyone knows it by
from torch import nn

CHANNELS, SIZE = 4, 6
IMAGES = (2, CHANNELS, SIZE, SIZE)


class Heads(nn.Module):
    """Gives ``{name: head(self, value)}``; the value is quantized, and has the codes of the reference."""

    def __init__(self, heads, layers, *, is_float=False) -> None:
        super().__init__()
        self.heads, self.is_float = heads, is_float
        for name, layer in layers.items():
            setattr(self, name, layer)

    def forward(self, x):
        # Of a table of codes reference and kernel give the very same.
        value = x if self.is_float else F.leaky_relu(x, 0.5)
        return {name: head(self, value) for name, head in self.heads.items()}


def trained(norm):
    """A batch norm with statistics and factors, of which some are negative."""
    with torch.no_grad():
        for tensor in (norm.weight, norm.bias, norm.running_mean):
            tensor.uniform_(-1, 1)
        norm.running_var.uniform_(0.5, 2)
    return norm


_VIEWS = {
    "1d": lambda x: x.flatten(2),
    "2d": lambda x: x,
    "3d": lambda x: x.unsqueeze(2),
    "linear": lambda x: x.flatten(1),
}
_FLAT = CHANNELS * SIZE * SIZE
_LAYERS = {
    "1d": (partial(nn.Conv1d, CHANNELS, 5, 3, padding=1), nn.BatchNorm1d),
    "2d": (partial(nn.Conv2d, CHANNELS, 5, 3, padding=1), nn.BatchNorm2d),
    "3d": (partial(nn.Conv3d, CHANNELS, 5, (1, 3, 2), padding=(0, 1, 0)), nn.BatchNorm3d),
    "linear": (partial(nn.Linear, _FLAT, 5), nn.BatchNorm1d),
}
_TRANSPOSED = {
    "1d": (nn.ConvTranspose1d, nn.BatchNorm1d),
    "2d": (nn.ConvTranspose2d, nn.BatchNorm2d),
    "3d": (nn.ConvTranspose3d, nn.BatchNorm3d),
}
_ACTIVATIONS = {
    "nothing": lambda x: x,
    "relu": F.relu,
    "relu6": F.relu6,
    "hardtanh": lambda x: F.hardtanh(x, -0.3, 0.4),
    "clamp": lambda x: torch.clamp(x, max=0.5),
    "clamp_min": lambda x: torch.clamp_min(x, 0.1),
    "clamp_max": lambda x: x.clamp_max(float("inf")),
}


def weighted_heads():
    """Convolutions and linear layers with what may stand behind them, and transposed convolutions."""
    heads, layers = {}, {}
    for kind, act, normed in itertools.product(_LAYERS, _ACTIVATIONS, (False, True)):
        name = f"{kind}_{'norm_' if normed else ''}{act}"
        build, norm = _LAYERS[kind]
        layers[name] = build()
        layers[f"{name}_behind"] = trained(norm(5)) if normed else nn.Identity()
        heads[name] = partial(_weighted, name, _VIEWS[kind], _ACTIVATIONS[act])
    for kind, normed in itertools.product(_TRANSPOSED, (False, True)):
        name = f"transposed_{kind}{'_norm' if normed else ''}"
        build, norm = _TRANSPOSED[kind]
        layers[name] = build(CHANNELS, 5, 2, stride=2)
        layers[f"{name}_behind"] = trained(norm(5)) if normed else nn.Identity()
        heads[name] = partial(_weighted, name, _VIEWS[kind], _ACTIVATIONS["nothing"])
    return heads, layers


def _weighted(name, view, activation, model, x):
    return activation(getattr(model, f"{name}_behind")(getattr(model, name)(view(x))))


def _slopes():
    slopes = nn.PReLU(CHANNELS)
    slopes.weight.data = torch.tensor([-0.5, 0.2, 1.5, 0.0])
    return slopes


def plain_layers():
    """The layers that :data:`PLAIN` calls."""
    return {
        "batch_norm2d": trained(nn.BatchNorm2d(CHANNELS)),
        "batch_norm3d": trained(nn.BatchNorm3d(CHANNELS)),
        "batch_norm2d_relu": trained(nn.BatchNorm2d(CHANNELS)),
        "batch_norm3d_relu": trained(nn.BatchNorm3d(CHANNELS)),
        "layer_norm": nn.LayerNorm(SIZE),
        "group_norm": nn.GroupNorm(2, CHANNELS),
        "slopes": _slopes(),
        "pool_of_lists": nn.MaxPool2d([3], [2]),
        "one": nn.Identity(),
        "dropout": nn.Dropout(),
    }


PLAIN = {
    "add": lambda _, x: x + x.narrow(3, 0, 1),
    "add number": lambda _, x: 1.5 + x,
    "add relu": lambda _, x: F.relu(x + x),
    "mul": lambda _, x: x * x.narrow(3, 0, 1),
    "mul number": lambda _, x: x * -0.7,
    "mul relu": lambda _, x: F.relu(x * x),
    "sub": lambda _, x: x - 1,
    "sub relu": lambda _, x: F.relu(torch.sub(input=x, other=0.1)),
    "rsub": lambda _, x: torch.rsub(x, 1.0),
    "rsub relu": lambda _, x: F.relu(torch.rsub(x, 0.2)),
    "div": lambda _, x: torch.div(input=x, other=-3),
    "div relu": lambda _, x: torch.relu(x / 3),
    "matmul": lambda _, x: torch.matmul(x, x.transpose(-1, -2)),
    "bmm": lambda _, x: torch.bmm(x.flatten(2), x.flatten(2).transpose(1, 2)),
    "mm": lambda _, x: torch.mm(x.flatten(1), x.flatten(1).transpose(0, 1)),
    "batch_norm2d": lambda model, x: model.batch_norm2d(x),
    "batch_norm3d": lambda model, x: model.batch_norm3d(x.unsqueeze(2)),
    "batch_norm2d relu": lambda model, x: F.relu(model.batch_norm2d_relu(x)),
    "batch_norm3d relu": lambda model, x: F.relu(model.batch_norm3d_relu(x.unsqueeze(2))),
    "layer_norm": lambda model, x: model.layer_norm(x),
    "group_norm": lambda model, x: model.group_norm(x),
    "instance_norm": lambda _, x: F.instance_norm(x),
    "sigmoid": lambda _, x: x.sigmoid(),
    "tanh": lambda _, x: torch.tanh(x),
    "hardsigmoid": lambda _, x: F.hardsigmoid(x),
    "softmax": lambda _, x: F.softmax(x, dim=1),
    "elu": lambda _, x: F.elu(x, alpha=0.7),
    "leaky_relu": lambda _, x: F.leaky_relu(x, negative_slope=-0.3),
    "hardswish": lambda _, x: F.hardswish(x),
    "prelu": lambda model, x: model.slopes(x),
    "cat": lambda _, x: torch.cat(tensors=(x, x), dim=-1),
    "max_pool1d": lambda _, x: F.max_pool1d(x.flatten(2), 3, 2, padding=1, ceil_mode=True),
    "max_pool2d": lambda model, x: model.pool_of_lists(x),
    "max_pool3d": lambda _, x: F.max_pool3d(x.unsqueeze(2), (1, 2, 2), stride=(1, 2, 1)),
    "avg_pool1d": lambda _, x: F.avg_pool1d(x.flatten(2), 3, 2, 1, count_include_pad=False),
    "avg_pool2d": lambda _, x: F.avg_pool2d(x, [3], [2], padding=1, ceil_mode=True),
    "avg_pool3d": lambda _, x: F.avg_pool3d(x.unsqueeze(2), (1, 2, 2)),
    "adaptive_avg_pool1d": lambda _, x: F.adaptive_avg_pool1d(x.flatten(2), 5),
    "adaptive_avg_pool2d": lambda _, x: F.adaptive_avg_pool2d(x, (4, None)),
    "adaptive_avg_pool3d": lambda _, x: F.adaptive_avg_pool3d(x.unsqueeze(2), (1, 3, 2)),
    "mean": lambda _, x: torch.mean(x, dim=[-1, 1]),
    "flatten": lambda _, x: torch.flatten(x, start_dim=1, end_dim=2),
    "reshape": lambda _, x: torch.reshape(x, (x.size(0), -1)),
    "permute": lambda _, x: x.permute(0, 2, 3, 1),
    "transpose": lambda _, x: x.transpose(1, -1),
    "squeeze": lambda _, x: x.mean(-1, keepdim=True).squeeze(-1),
    "unsqueeze": lambda _, x: x.unsqueeze(dim=-1),
    "contiguous": lambda _, x: x.contiguous(),
    "pad": lambda _, x: F.pad(x, (1, 2, 0, 1), value=0.3),
    "identity": lambda model, x: model.one(x),
    "detach": lambda _, x: x.detach(),
    "narrow": lambda _, x: torch.narrow(x, dim=-1, start=1, length=3),
    "repeat": lambda _, x: x.repeat(1, 2, 1, 1),
    "repeat_interleave": lambda _, x: x.repeat_interleave(2, dim=1),
    "stack": lambda _, x: torch.stack([x, x], dim=-1),
    "channel_shuffle": lambda _, x: torch.channel_shuffle(x, 2),
    "chunk": lambda _, x: x.chunk(2, dim=1)[1],
    "split": lambda _, x: torch.split(x, 4, dim=-1)[0],
    "unbind": lambda _, x: x.unbind(1)[2],
    "pixel_shuffle": lambda _, x: F.pixel_shuffle(x, 2),
    "pixel_unshuffle": lambda _, x: F.pixel_unshuffle(x, 2),
    "interpolate": lambda _, x: F.interpolate(x, size=(5, 7), mode="bilinear"),
    "relu": lambda _, x: F.relu(x),
    "relu6": lambda _, x: F.relu6(x),
    "hardtanh": lambda _, x: F.hardtanh(x, max_val=0.2, min_val=-0.3),
    "clamp": lambda _, x: x.clamp(-0.3, float("inf")),
    "clamp_min": lambda _, x: torch.clamp_min(x, min=0.1),
    "clamp_max": lambda _, x: torch.clamp_max(x, -0.2),
    "dropout": lambda model, x: model.dropout(x),
}
"""Heads without a weight, on images of :data:`IMAGES`."""


def recurrent_heads():
    """Layers and cells on rows of features, and a linear layer; for the modes with float activations."""
    layers = {
        "linear": nn.Linear(8, 5),
        "lstm": nn.LSTM(8, 6, 2, bidirectional=True),
        "gru": nn.GRU(8, 6, batch_first=True, bias=False),
        "lstm_cell": nn.LSTMCell(8, 6),
        "gru_cell": nn.GRUCell(8, 6),
        "rnn_cell": nn.RNNCell(8, 6, nonlinearity="relu"),
    }
    heads = {
        "linear": lambda model, x: F.relu6(model.linear(x)),
        "lstm": lambda model, x: model.lstm(x)[0],
        "gru": lambda model, x: model.gru(x)[0],
        "lstm_cell": lambda model, x: model.lstm_cell(x.mean(0))[1],
        "gru_cell": lambda model, x: model.gru_cell(x.mean(0)),
        "rnn_cell": lambda model, x: model.rnn_cell(x.mean(0)),
    }
    return heads, layers


def indexing_heads():
    """Embeddings of ids, one by one and in bags of one size."""
    layers = {"embedding": nn.Embedding(10, 7), "bag": nn.EmbeddingBag(10, 7, mode="sum")}
    heads = {
        "embedding": lambda model, ids: model.embedding(ids),
        "bag": lambda model, ids: model.bag(ids),
    }
    return heads, layers
