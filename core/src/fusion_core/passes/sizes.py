"""What reads the size of a tensor and none of its values."""

from __future__ import annotations

from torch.fx import Node

_METHODS = frozenset({"size", "dim", "ndimension", "numel"})
_ATTRIBUTES = frozenset({"shape", "ndim"})


def reads_size(node: Node) -> bool:
    """Whether ``node`` reads nothing of a tensor but its size; codes have the size of the values."""
    if node.op == "call_method":
        return node.target in _METHODS
    return node.op == "call_function" and node.target is getattr and node.args[1] in _ATTRIBUTES
