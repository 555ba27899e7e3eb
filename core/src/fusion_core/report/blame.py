"""What stopped a pattern, in words: which operand or argument of which node."""

from __future__ import annotations

from torch.fx import Node

from fusion_core.matcher import CallGraph, NoMatch, reasons


def stopped_at(failure: NoMatch, calls: CallGraph) -> str:
    """The operand or argument that stopped a pattern; empty where it was the last node as such.

    Args:
        failure: Why it does not match.
        calls: Call sites of the graph.
    """
    argument = _argument(failure)
    if argument is not None:
        return f"argument {argument!r} of {failure.values[0]}"
    if failure.place is None:
        return ""
    node, index = failure.place
    return f"{operand_name(node, index, calls)} of {node.name}"


def operand_name(node: Node, index: int, calls: CallGraph) -> str:
    """What the argument ``index`` of ``node`` is called: ``operand 'other'``, else ``operand 1``."""
    site = calls.site(node)
    parameters = () if site is None else site.parameters
    return f"operand {parameters[index].name!r}" if index < len(parameters) else f"operand {index}"


def culprit(failure: NoMatch, calls: CallGraph) -> Node | None:
    """The node that stopped a pattern which ends further on; None where it is no node, or the last one."""
    if failure.place is not None:
        node, index = failure.place
        site = calls.site(node)
        value = None if site is None else site.arguments[index]
        return value if isinstance(value, Node) else None
    if failure.template == reasons.ALSO_USED.sentence:
        reader: Node = failure.values[0]
        return reader
    return None


def is_other_operator(failure: NoMatch) -> bool:
    """Whether a pattern stopped because another operator stands there than it has."""
    return failure.template == reasons.OTHER_OPERATOR.sentence


def _argument(failure: NoMatch) -> str | None:
    """The parameter that has the wrong value, where it was one given by name or left over."""
    if failure.template == reasons.OTHER_ARGUMENT.sentence:
        return str(failure.values[2])
    if failure.template == reasons.SURPLUS.sentence:
        name, is_named, _ = str(failure.values[1]).partition("=")
        return name if is_named and name.isidentifier() else None
    return None
