"""Shape, dtype and multiply-accumulates of every value, learnt by running one input."""

from __future__ import annotations

import io
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from typing import Any

import torch
from torch import nn
from torch.fx import GraphModule, Interpreter, Node
from torch.fx.passes.shape_prop import ShapeProp
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.utils.rnn import PackedSequence
from torch.utils.flop_counter import FlopCounterMode

from fusion_core.errors import ModelStateError
from fusion_core.passes.written import memory_kept

BATCH_NORM_BY_RANK = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}
"""The batch norm for values of so many dimensions."""

_MACS = "fusion_macs"


def propagate(model: GraphModule, arguments: tuple[Any, ...]) -> None:
    """Run ``model`` once; each node then knows its ``meta["tensor_meta"]`` and its MACs.

    Args:
        model: The graph.
        arguments: Positional arguments of one call.

    Raises:
        ModelStateError: The model fails on them; says where and how.
    """
    run = _Counting(model)
    with torch.no_grad(), memory_kept(model), _counted_attention():
        try:
            with redirect_stderr(io.StringIO()):  # ShapeProp prints what it raises as well
                run.propagate(*arguments)
        except RuntimeError as error:
            cause = error.__cause__ or error
            where = f"at {run.at} " if run.at else ""
            msg = f"the model fails {where}on example_inputs: {type(cause).__name__}: {cause}"
            raise ModelStateError(msg) from error


def propagate_each(model: GraphModule, examples: Sequence[tuple[tuple[Any, ...], int]]) -> None:
    """:func:`propagate` for several calls; nodes know the first one's shapes, and the MACs of all.

    Args:
        model: The graph.
        examples: Positional arguments of calls, and how often each is made.
    """
    macs: Counter[Node] = Counter()
    for arguments, count in reversed(examples):
        propagate(model, arguments)
        for node in model.graph.nodes:
            macs[node] += count * macs_of(node)
    for node in model.graph.nodes:
        node.meta[_MACS] = macs[node]


class _Unpacking(Interpreter):
    """Shows packed sequences as plain tuples, since shapes cannot be put into one.

    Attributes:
        given: What the node that ran last gives.
    """

    given: Any = None

    def run_node(self, n: Node) -> Any:
        """Run ``n``."""
        self.given = super().run_node(n)
        return _unpacked(self.given)


def _unpacked(value: Any) -> Any:
    """``value`` with each packed sequence in it as a plain tuple."""
    return tuple(map(_unpacked, value)) if type(value) in {tuple, PackedSequence} else value


class _Counting(ShapeProp, _Unpacking):
    """Counts what each node multiplies, besides shapes and dtypes.

    Attributes:
        at: The node that ran last.
    """

    at = ""

    def run_node(self, n: Node) -> Any:
        """Run ``n`` and note what torch's own counter counts."""
        self.at = n.name
        module = self.module.get_submodule(str(n.target)) if n.op == "call_module" else None
        with _counted_recurrence(module), FlopCounterMode(display=False) as counter:
            super().run_node(n)
        n.meta[_MACS] = counter.get_total_flops() // 2
        return self.given


@contextmanager
def _counted_attention() -> Iterator[None]:
    """Run attention without its fused kernels, whose products the counter does not see."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


@contextmanager
def _counted_recurrence(module: nn.Module | None) -> Iterator[None]:
    """Run recurrent layers without their fused kernel, for the same reason."""
    holds_one = module is not None and any(
        isinstance(each, nn.RNNBase) for each in module.modules()
    )
    if not holds_one:
        yield
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # restoring oneDNN's settings warns about other devices
        with torch.backends.mkldnn.flags(enabled=False):
            yield


def macs_of(node: Node) -> int:
    """Multiply-accumulates of a node; 0 for what multiplies no matrices or weights."""
    return int(node.meta.get(_MACS, 0))


def shape_of(value: Any) -> tuple[int, ...] | None:
    """Shape of the tensor that a node gives, or None where it gives none or is not a node."""
    meta = value.meta.get("tensor_meta") if isinstance(value, Node) else None
    shape = getattr(meta, "shape", None)
    return None if shape is None else tuple(shape)


def dtype_of(value: Any) -> torch.dtype | None:
    """Dtype of the tensor that a node gives, or None where it gives none or is not a node."""
    meta = value.meta.get("tensor_meta") if isinstance(value, Node) else None
    dtype = getattr(meta, "dtype", None)
    return dtype if isinstance(dtype, torch.dtype) else None
