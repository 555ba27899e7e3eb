"""simplify: remove what has no effect in eval mode and what would make two nodes depend on each other unseen."""

from __future__ import annotations

import copy
from typing import Any

from torch import nn
from torch.fx import GraphModule, Node

from fusion_core.ledger import Ledger, Status
from fusion_core.matcher import CallGraph
from fusion_core.passes.both_modes import is_switched
from fusion_core.passes.dropout import DROPOUTS
from fusion_core.passes.edit import Names
from fusion_core.passes.in_place import out_of_place
from fusion_core.passes.norms import plain_norm, process_groups
from fusion_core.passes.record import member_names
from fusion_core.passes.shapes import BATCH_NORM_BY_RANK, shape_of
from fusion_core.passes.switched_off import gives_operand
from fusion_core.patterns import Operator


def simplify(model: GraphModule, ledger: Ledger, *, qat: bool = False) -> None:
    """Bring a traced graph into plain form; what it computes stays the same.

    * In-place operations become ordinary ones; what reads their operand later reads their result.
    * Dropout and identity in eval mode are removed, and so is any function that gives its operand itself
      because ``training`` is false.
    * A module called from several places becomes one module for each; they share their parameters.
    * A chunk, split or unbind becomes one for each of its items.
    * A parameter that is read directly, beside the module that owns it, is read from a name of its
      own.
    * SyncBatchNorm becomes BatchNorm.

    Args:
        model: The graph; changed in place.
        ledger: Told what was removed.
        qat: Whether the model is to be trained. Modules of dropout then stay, and so do functions that
            are switched on in training.

    Raises:
        UnsupportedModelError: An in-place operation writes through a view to a value that is read
            later.
    """
    out_of_place(model)
    _remove_identities(model, ledger, qat=qat)
    _one_module_per_call(model)
    _own_names_for_reads(model)
    _plain_batch_norm(model, qat=qat)


def _remove_identities(model: GraphModule, ledger: Ledger, *, qat: bool) -> None:
    calls = CallGraph.of(model)
    for node in list(model.graph.nodes):
        reason = _identity_reason(node, calls, qat=qat)
        site = calls.site(node)
        if reason is None or site is None or not isinstance(site.arguments[0], Node):
            continue
        for entry in ledger.of(member_names(node)):
            entry.status, entry.reason = Status.REMOVED, reason
        node.replace_all_uses_with(site.arguments[0])
        model.graph.erase_node(node)


def _identity_reason(node: Node, calls: CallGraph, *, qat: bool) -> str | None:
    site = calls.site(node)
    if site is None or not site.arguments or calls.obstacle(site) is not None or is_switched(node):
        return None
    if Operator("operation", "identity") in site.operators:
        return "identity"
    if Operator("operation", "dropout") in site.operators:
        module = calls.module(node)
        if qat and isinstance(module, DROPOUTS):
            return None
        active = (
            module.training
            if module is not None
            else site.bound().get("training", site.bound().get("train"))
        )
        return None if active is not False else "dropout does nothing in eval mode"
    # Kinds of dropout that libraries bring along, such as stochastic depth.
    switched_off = node.op == "call_function" and site.bound().get("training") is False
    return "does nothing in eval mode" if switched_off and gives_operand(node) else None


def _one_module_per_call(model: GraphModule) -> None:
    modules = dict(model.named_modules(remove_duplicate=False))
    names = Names(model)
    seen: set[int] = set()
    for node in model.graph.nodes:
        if node.op != "call_module":
            continue
        module = modules[str(node.target)]
        if id(module) in seen and module.state_dict():
            shared = [*module.parameters(), *module.buffers()]
            memo = {id(tensor): tensor for tensor in shared} | process_groups(module)
            clone = copy.deepcopy(module, memo)
            node.target = names.fresh(f"{node.target}_again")
            model.add_submodule(str(node.target), clone)
        seen.add(id(module))


def _own_names_for_reads(model: GraphModule) -> None:
    called = {str(node.target) for node in model.graph.nodes if node.op == "call_module"}
    names = Names(model)
    for node in model.graph.nodes:
        if node.op != "get_attr":
            continue
        owner, _, name = str(node.target).rpartition(".")
        if owner not in called:
            continue
        value = getattr(model.get_submodule(owner), name)
        node.target = names.fresh(str(node.target).replace(".", "_"))
        if isinstance(value, nn.Parameter):
            model.register_parameter(node.target, value)
        else:
            model.register_buffer(node.target, value)


def _plain_batch_norm(model: GraphModule, *, qat: bool) -> None:
    modules = dict(model.named_modules(remove_duplicate=False))
    for node in model.graph.nodes:
        module = modules[str(node.target)] if node.op == "call_module" else None
        shape = shape_of(node)
        if not isinstance(module, nn.SyncBatchNorm) or shape is None:
            continue
        plain = plain_norm(module, BATCH_NORM_BY_RANK[len(shape)], trained=qat)
        model.add_submodule(str(node.target), plain.eval())


def absorb_padding(model: GraphModule, ledger: Ledger) -> None:
    """Give the zero padding in front of a convolution to the convolution, which pads for nothing.

    Args:
        model: A lifted graph; changed in place. Padding stays where its two sides differ.
        ledger: Told what was removed.
    """
    calls = CallGraph.of(model)
    for node in list(model.graph.nodes):
        conv = calls.module(node)
        pad = node.args[0] if node.args else None
        if not isinstance(conv, (nn.Conv1d, nn.Conv2d, nn.Conv3d)) or not isinstance(pad, Node):
            continue
        amounts = _symmetric_zero_padding(pad, calls, len(conv.kernel_size))
        own = conv.padding
        if (
            amounts is None
            or len(pad.users) != 1
            or conv.padding_mode != "zeros"
            or isinstance(own, str)
        ):
            continue
        wider = copy.copy(conv)
        wider.padding = tuple(have + more for have, more in zip(own, amounts, strict=True))
        model.add_submodule(str(node.target), wider)
        for entry in ledger.of(member_names(pad)):
            entry.status, entry.reason = (
                Status.REMOVED,
                "zero padding joined the convolution behind it",
            )
        node.replace_input_with(pad, pad.all_input_nodes[0])
        model.graph.erase_node(pad)


def _symmetric_zero_padding(node: Node, calls: CallGraph, dims: int) -> tuple[int, ...] | None:
    """Padding per spatial dimension, outermost first, where ``node`` pads zeros alike on both sides."""
    site = calls.site(node)
    if (
        site is None
        or Operator("operation", "pad") not in site.operators
        or calls.obstacle(site) is not None
    ):
        return None
    module: Any = calls.module(node)
    if module is not None:
        amounts, value, mode = module.padding, module.value, "constant"
    else:
        bound = site.bound()
        amounts, value, mode = bound.get("pad"), bound.get("value"), bound.get("mode", "constant")
    pads = tuple(amounts) if isinstance(amounts, (tuple, list)) else ()
    if mode != "constant" or value not in {None, 0} or len(pads) != 2 * dims:
        return None
    if any(not isinstance(each, int) or each < 0 for each in pads):
        return None
    low, high = pads[0::2][::-1], pads[1::2][::-1]
    return low if low == high else None
