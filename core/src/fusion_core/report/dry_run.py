"""The passes up to prepare on a model without values, so that size and calibration do not matter."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from fusion_core.errors import FusionError
from fusion_core.passes import ExampleInputs, trace
from fusion_core.passes.mappings import mapping_for
from fusion_core.registry import Backend
from fusion_core.report.sweeps import Swept, swept

_META = torch.device("meta")


def dry_run(
    model: nn.Module, backend: Backend, example_inputs: ExampleInputs
) -> tuple[Swept, tuple[str, ...]]:
    """What the passes decide on ``model``, learnt from shapes alone where that is possible.

    Args:
        model: A module in eval mode. It is not changed, and its weights are not copied.
        backend: Whose patterns count.
        example_inputs: One input; of its values only those count that the model branches on.

    Returns:
        The decisions, and what is to be said of how they were reached. A model that asks for a
        value, which a tensor on the meta device has not, is run on the values it was given.

    Raises:
        FusionError: Whatever tracing, fusing and preparing the model raises.
    """
    try:
        with _META:
            traced = trace(on_meta(model), _inputs_on_meta(example_inputs), backend=backend)
        return swept(traced, backend, mapping_for(backend)), ()
    except Exception as error:  # whatever it was, the run on values says it better
        if _is_without_values(model):
            raise
        note = f"run once on real values, because without them {_short(error)}"
    traced = trace(model, example_inputs, backend=backend)
    return swept(traced, backend, mapping_for(backend)), (note,)


def on_meta(model: nn.Module) -> nn.Module:
    """A copy of ``model`` whose tensors have a shape and a dtype and take no memory."""
    memo: dict[int, Any] = {}
    for tensor in _tensors(model):
        empty: Tensor = tensor.detach().to(_META)
        is_parameter = isinstance(tensor, nn.Parameter)
        memo[id(tensor)] = nn.Parameter(empty, requires_grad=False) if is_parameter else empty
    return copy.deepcopy(model, memo)


def _tensors(model: nn.Module) -> Iterator[Tensor]:
    """Parameters, buffers, and tensors kept as plain attributes."""
    yield from model.parameters()
    yield from model.buffers()
    for module in model.modules():
        yield from (value for value in vars(module).values() if isinstance(value, Tensor))


def _inputs_on_meta(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.to(_META)
    if isinstance(value, Mapping):
        return {key: _inputs_on_meta(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        parts = [_inputs_on_meta(each) for each in value]
        # A named tuple takes its fields one by one.
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return value


def _is_without_values(model: nn.Module) -> bool:
    return any(tensor.device == _META for tensor in _tensors(model))


def _short(error: Exception) -> str:
    what = str(error).strip().partition("\n")[0]
    return what if isinstance(error, FusionError) else f"{type(error).__name__}: {what}"
