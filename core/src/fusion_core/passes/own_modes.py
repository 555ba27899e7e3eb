"""What modules do in training beside others: they have modes of their own, and some stay in eval mode."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from torch import nn
from torch.fx import GraphModule

from fusion_core.errors import first_few
from fusion_core.nn.switches import BATCH_NORMS
from fusion_core.passes.dropout import DROPOUTS
from fusion_core.passes.norms import remember_frozen, was_frozen
from fusion_core.passes.parts import modules_with_parts
from fusion_core.passes.record import members
from fusion_core.passes.tracer import joined

_MODAL: Final = (nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d, nn.RReLU, nn.RNNBase)


def hold_modes(model: nn.Module) -> tuple[str, ...]:
    """Let what ``train()`` leaves in eval mode stay there, since the user's ``train()`` will not be called.

    Batch norms will be frozen ones, and dropout does nothing.

    Args:
        model: A private copy on which ``train()`` was called; changed in place.

    Returns:
        What the ledger is to say of modules that cannot be held.
    """
    lost = []
    for path, module in model.named_modules():
        if module.training:
            continue
        if type(module) in BATCH_NORMS:
            remember_frozen(module)
        elif isinstance(module, DROPOUTS):
            module.p = 0.0
        elif isinstance(module, _MODAL):
            lost.append(path or "the model")
    if not lost:
        return ()
    return (
        f"train() of the model keeps {first_few(lost)} in eval mode, and that of the graph does not",
    )


def own_modes(model: GraphModule, modes: Mapping[str, bool]) -> None:
    """Put each module in its own mode; one that is in no path of the user's, in that of what it stands in.

    Args:
        model: A traced model, finished.
        modes: By path in the user's model, whether a module is in training mode.
    """
    model.train(modes[""])
    for _, graph in modules_with_parts(model):
        for node in graph.graph.nodes:
            origin = members(node)
            if node.op != "call_module" or not origin:
                continue
            for below, module in graph.get_submodule(str(node.target)).named_modules():
                wanted = _mode(joined(origin[-1].path, below), modes)
                module.training = wanted and not was_frozen(module)


def _mode(path: str, modes: Mapping[str, bool]) -> bool:
    while path not in modes:
        path = path.rpartition(".")[0]
    return modes[path]
