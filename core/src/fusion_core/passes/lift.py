"""lift: weighted functional calls on the model's own parameters become modules, and meet module patterns.

FX inlines user modules, so a subclass of ``nn.Conv2d`` with a forward of its own appears as a
functional call on two attribute reads; the call and they are a module.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from operator import attrgetter
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  the name everyone knows it by
from torch import Tensor, nn
from torch.fx import GraphModule, Node

from fusion_core.matcher import CallGraph
from fusion_core.passes.both_modes import in_training, is_switched
from fusion_core.passes.edit import Names, nodes_in
from fusion_core.passes.norms import remember_frozen
from fusion_core.passes.shapes import BATCH_NORM_BY_RANK, shape_of

aten = torch.ops.aten

_CONVOLUTIONS: Mapping[Any, type[nn.Module]] = {
    F.conv1d: nn.Conv1d,
    F.conv2d: nn.Conv2d,
    F.conv3d: nn.Conv3d,
    torch.conv1d: nn.Conv1d,
    torch.conv2d: nn.Conv2d,
    torch.conv3d: nn.Conv3d,
    aten.conv1d.default: nn.Conv1d,
    aten.conv2d.default: nn.Conv2d,
    aten.conv3d.default: nn.Conv3d,
}
_TRANSPOSED: Mapping[Any, type[nn.Module]] = {
    F.conv_transpose1d: nn.ConvTranspose1d,
    F.conv_transpose2d: nn.ConvTranspose2d,
    F.conv_transpose3d: nn.ConvTranspose3d,
    torch.conv_transpose1d: nn.ConvTranspose1d,
    torch.conv_transpose2d: nn.ConvTranspose2d,
    torch.conv_transpose3d: nn.ConvTranspose3d,
    aten.conv_transpose1d.default: nn.ConvTranspose1d,
    aten.conv_transpose2d.input: nn.ConvTranspose2d,
    aten.conv_transpose3d.input: nn.ConvTranspose3d,
}
_MATRIX = 2
_LINEAR = (F.linear, aten.linear.default)
_BATCH_NORM = (F.batch_norm, torch.batch_norm)


def lift(model: GraphModule, spelled: Collection[Any], *, qat: bool = False) -> None:
    """Turn weighted functional calls into module calls.

    Convolutions, transposed or not, linear layers, embeddings, batch and layer norm are lifted when
    each of their tensors is a parameter or buffer of the model. Calls that differ in nothing but their
    input become calls of one module; what else reads a tensor, such as a tied embedding, shares it.

    Args:
        model: A simplified graph; changed in place.
        spelled: Functions that a pattern of the backend names itself; their calls stay as they are.
        qat: Whether the model is to be trained. A batch norm that is called with ``training=False`` then
            is a frozen one.
    """
    calls, names = CallGraph.of(model), Names(model)
    lifted: dict[tuple[Any, ...], str] = {}
    for node in list(model.graph.nodes):
        if node.op != "call_function" or node.target in spelled:
            continue
        build = _builder(node.target)
        site = calls.site(node)
        if build is None or site is None or (is_switched(node) and build is not _batch_norm):
            continue
        bound = site.bound()
        tensors = {
            name: _own_tensor(value, model) for name, value in bound.items() if name in _TENSORS
        }
        if any(value is None and bound[name] is not None for name, value in tensors.items()):
            continue
        key = _call_but_for_input(node, bound, tensors)
        path = lifted.get(key)
        if path is None:
            module = build(node, bound, tensors)
            if module is None:
                continue
            if qat and build is _batch_norm and "training" not in in_training(site):
                remember_frozen(module)
            path = _added(model, module, bound, names)
        if build is not _batch_norm:  # each is folded into what stands in front of it
            lifted[key] = path
        _install(model, node, path, bound)


_TENSORS = ("weight", "bias", "running_mean", "running_var")


def _builder(target: Any) -> Callable[..., nn.Module | None] | None:
    return next((build for targets, build in _BUILDERS if target in targets), None)


def _own_tensor(value: Any, model: GraphModule) -> Tensor | None:
    if not isinstance(value, Node) or value.op != "get_attr":
        return None
    tensor = attrgetter(str(value.target))(model)
    return tensor if isinstance(tensor, Tensor) else None


def _call_but_for_input(
    node: Node, bound: Mapping[str, Any], tensors: Mapping[str, Tensor | None]
) -> tuple[Any, ...]:
    """What is the same for two calls that one module can stand for."""
    settings = {name: value for name, value in bound.items() if name not in {"input", *tensors}}
    return node.target, repr(settings), *(id(each) for each in tensors.values())


def _convolution(
    node: Node, bound: Mapping[str, Any], tensors: Mapping[str, Tensor | None]
) -> nn.Module | None:
    weight, bias = tensors.get("weight"), tensors.get("bias")
    is_transposed = node.target in _TRANSPOSED
    defaults = {**_CONVOLUTION_DEFAULTS, **({"output_padding": 0} if is_transposed else {})}
    settings = {name: bound.get(name, default) for name, default in defaults.items()}
    if weight is None or nodes_in(settings):
        return None
    kind: Any = (_TRANSPOSED if is_transposed else _CONVOLUTIONS)[node.target]
    groups, dims = settings.pop("groups"), weight.dim() - 2
    first, second = weight.shape[0], weight.shape[1] * groups
    with torch.device("meta"):
        module: nn.Module = kind(
            *((first, second) if is_transposed else (second, first)),
            tuple(weight.shape[2:]),
            groups=groups,
            bias=bias is not None,
            **{name: _per_dimension(value, dims) for name, value in settings.items()},
        )
    return _with_tensors(module, weight=weight, bias=bias)


_CONVOLUTION_DEFAULTS = {"stride": 1, "padding": 0, "dilation": 1, "groups": 1}


def _linear(
    _node: Node, _bound: Mapping[str, Any], tensors: Mapping[str, Tensor | None]
) -> nn.Module | None:
    weight, bias = tensors.get("weight"), tensors.get("bias")
    if weight is None or weight.dim() != _MATRIX:
        return None
    with torch.device("meta"):
        module = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    return _with_tensors(module, weight=weight, bias=bias)


def _embedding(
    _node: Node, bound: Mapping[str, Any], tensors: Mapping[str, Tensor | None]
) -> nn.Module | None:
    weight = tensors.get("weight")
    # With a largest norm the function shortens rows of the weight where they are.
    if weight is None or bound.get("max_norm") is not None:
        return None
    kept = ("padding_idx", "scale_grad_by_freq", "sparse")
    settings = {name: bound[name] for name in kept if bound.get(name) is not None}
    with torch.device("meta"):
        module = nn.Embedding(*weight.shape, **settings)
    return _with_tensors(module, weight=weight)


def _batch_norm(
    node: Node, bound: Mapping[str, Any], tensors: Mapping[str, Tensor | None]
) -> nn.Module | None:
    mean, variance = tensors.get("running_mean"), tensors.get("running_var")
    weight, bias = tensors.get("weight"), tensors.get("bias")
    kind: Any = BATCH_NORM_BY_RANK.get(len(shape_of(node) or ()))
    training = bound.get("training", False)
    if (
        mean is None
        or variance is None
        or kind is None
        or training is not False
        or (weight is None) != (bias is None)
    ):
        return None
    eps, momentum = bound.get("eps", 1e-5), bound.get("momentum", 0.1)
    with torch.device("meta"):
        module: nn.Module = kind(len(mean), eps, momentum, affine=weight is not None)
    _with_tensors(module, weight=weight, bias=bias)
    module.register_buffer("running_mean", mean.detach())
    module.register_buffer("running_var", variance.detach())
    module.register_buffer("num_batches_tracked", torch.tensor(0))
    return module


def _layer_norm(
    _node: Node, bound: Mapping[str, Any], tensors: Mapping[str, Tensor | None]
) -> nn.Module | None:
    weight, bias, shape = tensors.get("weight"), tensors.get("bias"), bound["normalized_shape"]
    if weight is None or nodes_in(shape):
        return None
    with torch.device("meta"):
        module = nn.LayerNorm(shape, eps=bound.get("eps", 1e-5), bias=bias is not None)
    return _with_tensors(module, weight=weight, bias=bias)


def _with_tensors(module: nn.Module, **tensors: Tensor | None) -> nn.Module:
    for name, tensor in tensors.items():
        if tensor is not None:
            parameter = (
                tensor
                if isinstance(tensor, nn.Parameter)
                else nn.Parameter(tensor, requires_grad=False)
            )
            module.register_parameter(name, parameter)
    return module.eval()


def _added(model: GraphModule, module: nn.Module, bound: Mapping[str, Any], names: Names) -> str:
    """Where ``module`` is put: beside the tensors that it is made of."""
    scope = str(_sources(bound)[0].target).rpartition(".")[0]
    kind = type(module).__name__.lower()
    path = names.fresh(f"{scope}.{kind}" if scope else kind)
    model.add_submodule(path, module)
    return path


def _install(model: GraphModule, node: Node, path: str, bound: Mapping[str, Any]) -> None:
    with model.graph.inserting_before(node):
        call = model.graph.call_module(path, (bound["input"],))
    call.meta = dict(node.meta)
    node.replace_all_uses_with(call)
    model.graph.erase_node(node)
    for source in _sources(bound):
        if not source.users:
            model.graph.erase_node(source)


def _sources(bound: Mapping[str, Any]) -> list[Node]:
    """Nodes that read the tensors of a call."""
    return [value for name, value in bound.items() if name in _TENSORS and isinstance(value, Node)]


def _per_dimension(value: Any, dims: int) -> Any:
    """An int or a one-element sequence as one value per dimension; a padding name as it is."""
    if isinstance(value, str):
        return value
    values = (value,) if isinstance(value, int) else tuple(value)
    return values * dims if len(values) == 1 else values


_BUILDERS: tuple[tuple[Collection[Any], Callable[..., nn.Module | None]], ...] = (
    ((*_CONVOLUTIONS, *_TRANSPOSED), _convolution),
    (_LINEAR, _linear),
    ((F.embedding,), _embedding),
    ((F.layer_norm,), _layer_norm),
    (_BATCH_NORM, _batch_norm),
)
