"""How many bytes a model's values take."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn


def parameter_bytes(model: nn.Module) -> int:
    """Bytes of a model's parameters and buffers, and of the tensors in its modules' extra state.

    Kernels keep their packed weights as extra state, so a float model and a quantized one compare.
    Memory that several tensors share counts once.

    Args:
        model: Any module.
    """
    # All at once: extra state may be made on request, and freed memory would be taken for shared.
    tensors = list(_tensors(model))
    views: dict[tuple[Any, ...], dict[tuple[Any, ...], int]] = {}
    room: dict[tuple[Any, ...], int] = {}
    for tensor in tensors:
        storage = tensor.untyped_storage()
        address = storage.data_ptr()
        key = (tensor.device, address or id(tensor))
        room[key] = storage.nbytes()
        view = (tensor.storage_offset(), tuple(tensor.shape), tensor.stride(), tensor.dtype)
        views.setdefault(key, {})[view] = tensor.numel() * tensor.element_size()
    return sum(min(room[key], sum(sizes.values())) for key, sizes in views.items())


def _tensors(model: nn.Module) -> Iterator[Tensor]:
    yield from model.parameters()
    yield from model.buffers()
    for module in model.modules():
        if type(module).get_extra_state is not nn.Module.get_extra_state:
            yield from _within(module.get_extra_state())


def _within(state: object) -> Iterator[Tensor]:
    """Every tensor in nested containers."""
    if isinstance(state, Tensor):
        yield state
    elif isinstance(state, dict):
        for part in state.values():
            yield from _within(part)
    elif isinstance(state, list | tuple):
        for part in state:
            yield from _within(part)
