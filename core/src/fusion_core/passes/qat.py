"""What training changes in prepare and convert: weighted modules are swapped, and taken back with what was learnt."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from torch import nn
from torch.fx import GraphModule

from fusion_core.configs import ObserverFactory
from fusion_core.errors import FuseError
from fusion_core.ledger import Ledger, Status
from fusion_core.nn.fake_quantize import is_fake_quantize
from fusion_core.nn.normed import Normed
from fusion_core.nn.qat import QAT_OF
from fusion_core.nn.switches import unfreeze_batch_norm
from fusion_core.nn.training_recipe import fake_quantize_of
from fusion_core.nn.weighted import plain_type
from fusion_core.passes.dropout import DROPOUTS
from fusion_core.passes.edit import copy_model, copy_module
from fusion_core.passes.groups import Group
from fusion_core.passes.norms import process_groups, restored_norm, settled_norm
from fusion_core.passes.observed import needs_data
from fusion_core.passes.record import PassRecord, WeightPlan, member_names
from fusion_core.passes.roots import blame, call_plugin


def training_observer(factory: ObserverFactory) -> nn.Module:
    """The observer of a value in training, which rounds it as well."""
    return fake_quantize_of(factory)()


def swap_weighted(model: GraphModule, groups: Iterable[Group]) -> None:
    """Put modules for training in the place of the weighted ones that are quantized.

    A module of a kind that has none trains in float, and its weight is rounded afterwards.

    Args:
        model: A fused graph; the modules it calls are left as they are.
        groups: Its groups. A config with a ``qat_module`` swaps the whole root module.

    Raises:
        FuseError: The ``qat_module`` of a config failed, or cannot be turned back.
    """
    for group in groups:
        if group.root.op != "call_module":
            continue
        path = str(group.root.target)
        swapped = _vendors(model.get_submodule(path), group) or _ours(
            model.get_submodule(path), group
        )
        if swapped is not None:
            # A layer in eval mode is rounded in training all the same.
            for each in swapped.modules():
                if is_fake_quantize(each):
                    each.train(model.training)
            model.add_submodule(path, swapped)


def _vendors(module: nn.Module, group: Group) -> nn.Module | None:
    """What the ``qat_module`` of the group's config makes of ``module``."""
    kind: Any = group.match.entry.config.qat_module
    if kind is None:
        return None
    missing = [name for name in ("from_float", "to_float") if not hasattr(kind, name)]
    if missing:
        problem = (
            f"its qat_module {kind.__name__} has no {' and no '.join(missing)}; it needs "
            "from_float(float_module, qconfig) and to_float()"
        )
        raise FuseError(blame(group.match, problem))
    made = call_plugin(
        *(group.match, "qat_module", kind.from_float, module, group.qconfig),
    )
    if not isinstance(made, nn.Module):
        problem = f"its qat_module returned {type(made).__name__} from from_float, not a module"
        raise FuseError(blame(group.match, problem))
    return made


def _ours(module: nn.Module, group: Group) -> nn.Module | None:
    """``module`` with its weighted part for training, or None where there is no such part."""
    if group.weight is None:
        return None
    part = group.weight.part
    weighted = module.get_submodule(part) if part else module
    kind = QAT_OF.get(plain_type(weighted))
    if kind is None:
        return None
    swapped: nn.Module = kind.from_float(weighted, group.qconfig)
    if not part:
        return swapped
    container = copy_module(module)
    container.add_module(part, swapped)
    return container


def restore_norms(model: GraphModule) -> None:
    """Batch norms are again what they were in the user's model: synchronized, or frozen.

    Args:
        model: A graph; the modules it calls are left as they are, and copied where they hold such a
            norm.
    """
    for path in _called(model):
        _change(model, path, restored_norm)


def copy_to_convert(model: GraphModule, record: PassRecord) -> GraphModule:
    """A copy of a prepared model that convert may take apart.

    A trained one shares nothing with ``model``, which may be trained further. It is in eval mode,
    without dropout, and its batch norms are plain.
    """
    if not record.qat:
        return copy_model(model)
    copied = copy_model(copy.deepcopy(model, process_groups(model)))
    unfreeze_batch_norm(copied)
    copied.requires_grad_(requires_grad=False).eval()
    for path in _called(copied):
        _change(copied, path, settled_norm)
    return copied


def trained_plans(model: GraphModule, weights: Mapping[str, WeightPlan]) -> dict[str, WeightPlan]:
    """Turn modules for training back into float ones; their weights keep the ranges of training.

    Args:
        model: What :func:`copy_to_convert` returned; changed in place, also within modules.
        weights: The plan for each quantized module.

    Returns:
        The plans, with the observers that were trained.
    """
    plans = dict(weights)
    for path, plan in weights.items():
        module = model.get_submodule(path)
        rounding = _weight_rounding(module)
        if rounding is None and plan.part:
            rounding = _weight_rounding(module.get_submodule(plan.part))
        if rounding is not None and not needs_data(rounding):
            plans[path] = replace(plan, observer=_Kept(rounding))
    for parent in list(_without_parts(model)):
        for name, child in list(parent.named_children()):
            back = _turned_back(child)
            if back is not None:
                parent.add_module(name, back.eval())
    return plans


def _without_parts(module: nn.Module) -> Iterator[nn.Module]:
    """``module`` and all that is in it but parts, which are converted on their own."""
    yield module
    for child in module.children():
        if not isinstance(child, GraphModule):
            yield from _without_parts(child)


def remove_dropout(model: GraphModule, ledger: Ledger) -> None:
    """Take dropout modules out of a graph in eval mode; the ledger is told."""
    for node in list(model.graph.nodes):
        if node.op == "call_module" and isinstance(model.get_submodule(node.target), DROPOUTS):
            for line in ledger.of(member_names(node)):
                line.status, line.reason = Status.REMOVED, "dropout does nothing after training"
            node.replace_all_uses_with(node.args[0])
            model.graph.erase_node(node)


class _Kept:
    """Gives the one observer that was trained, which does not move any more."""

    def __init__(self, observer: nn.Module) -> None:
        self._observer = observer

    def __call__(self) -> nn.Module:
        return self._observer


def _weight_rounding(module: nn.Module) -> nn.Module | None:
    """The fake quantization of a weight in ours, or in a vendor's module by PyTorch's name for it."""
    for name in ("weight_fake_quantize", "weight_fake_quant"):
        found = getattr(module, name, None)
        if isinstance(found, nn.Module) and is_fake_quantize(found):
            stop = getattr(found, "disable_observer", None)  # PyTorch's observe in eval mode too
            if callable(stop):
                stop()
            return found
    return None


def _turned_back(module: nn.Module) -> nn.Module | None:
    if isinstance(module, Normed):
        return module.folded()
    turn: Any = getattr(module, "to_float", None)
    return turn() if callable(turn) else None


def _called(model: GraphModule) -> list[str]:
    """Paths of the modules that the graph calls, each once."""
    called = (str(node.target) for node in model.graph.nodes if node.op == "call_module")
    return list(dict.fromkeys(called))


def _change(
    model: GraphModule, path: str, changed: Callable[[nn.Module], nn.Module | None]
) -> None:
    """Let ``changed`` replace the module at ``path`` or parts of it; what holds a part is copied."""
    module = model.get_submodule(path)
    made = _changed(module, changed)
    if made is not module:
        model.add_submodule(path, made)


def _changed(module: nn.Module, changed: Callable[[nn.Module], nn.Module | None]) -> nn.Module:
    made = changed(module)
    if made is not None:
        return made
    parts = {name: _changed(child, changed) for name, child in module.named_children()}
    if all(getattr(module, name) is part for name, part in parts.items()):
        return module
    container = copy_module(module)
    for name, part in parts.items():
        container.add_module(name, part)
    return container
