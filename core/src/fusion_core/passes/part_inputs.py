"""What the parts of a model are given while it runs on data."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from contextlib import ExitStack
from typing import Any

from torch import Tensor, nn
from torch.fx import GraphModule

from fusion_core.passes.calibrate import as_arguments
from fusion_core.passes.parts import parts_of
from fusion_core.passes.written import memory_kept

MAX_BYTES = 1 << 26
"""Calls of one part are kept until their tensors take so much; the first always is."""


def inputs_of_parts(model: GraphModule, batches: Iterable[Any]) -> dict[str, list[dict[str, Any]]]:
    """Arguments by name of the calls of each part, by its path.

    Args:
        model: A finished model without observers; it is run.
        batches: In the forms that :func:`fusion_core.passes.calibrate` takes.
    """
    kept: dict[str, list[dict[str, Any]]] = {}
    with ExitStack() as hooks:
        for part, module in parts_of(model):
            kept[part.path] = []
            note = _Note(kept[part.path], inspect.signature(module.forward))
            hooks.callback(module.register_forward_pre_hook(note, with_kwargs=True).remove)
        hooks.enter_context(memory_kept(model))
        for batch in batches:
            args, kwargs = as_arguments(batch)
            model(*args, **kwargs)
    return kept


class _Note:
    """A hook that keeps arguments until there are enough."""

    def __init__(self, kept: list[dict[str, Any]], signature: inspect.Signature) -> None:
        self._kept = kept
        self._signature = signature
        self._left = MAX_BYTES

    def __call__(self, _module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._kept and self._left < 0:
            return
        given = self._signature.bind(*args, **kwargs).arguments
        self._kept.append(given)
        self._left -= sum(each.nbytes for each in given.values() if isinstance(each, Tensor))
