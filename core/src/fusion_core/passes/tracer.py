"""FX tracing with the leaves that quantization needs, and a place for every failure."""

from __future__ import annotations

import dataclasses
import traceback
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn
from torch.fx import Node, Proxy, Tracer
from torch.fx.proxy import TraceError as FxTraceError

from fusion_core.errors import TraceError
from fusion_core.passes.attention import known_type
from fusion_core.passes.record import MEMBERS, Member
from fusion_core.passes.written import Value, WriteError, check_write, state_kept
from fusion_core.patterns import Operation, as_operator, operation_of

WITHOUT_GRADIENT: Final = "fusion_without_gradient"
"""Key of the ``meta`` of a node whose call stands in ``torch.no_grad()``."""


class QuantizationTracer(Tracer):
    """Inlines user modules, keeps modules of ``torch.nn`` and those a backend names whole.

    Attributes:
        failed: Path and type of the innermost module whose forward raised, after a failure.
    """

    def __init__(
        self,
        leaf_types: Collection[type[nn.Module]] = (),
        opaque: Collection[str] = (),
        prefix: str = "",
    ) -> None:
        """A tracer for one attempt; without arguments it is what FX unpickles a traced model with.

        Args:
            leaf_types: Exact module types that are not inlined, beside those of ``torch.nn``.
            opaque: Paths of modules that are kept whole because they cannot be traced.
            prefix: Path in the user's model of what is traced.
        """
        super().__init__()
        self._leaf_types = frozenset(leaf_types)
        self._opaque = frozenset(opaque)
        self._prefix = prefix
        self._scopes: list[str] = [""]
        self._seen: Counter[tuple[str, Any]] = Counter()
        self.failed: tuple[str, type[nn.Module]] | None = None

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Whether ``m`` is called rather than inlined."""
        if module_qualified_name in self._opaque or type(m) in self._leaf_types:
            return True
        return super().is_leaf_module(m, module_qualified_name)

    def call_module(
        self,
        m: nn.Module,
        forward: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Trace a call of ``m``, remembering where it stands."""
        path = self.path_of_module(m)
        leaf = self.is_leaf_module(m, path)
        if not leaf:
            self._scopes.append(path)
        try:
            if leaf:
                return super().call_module(m, forward, args, kwargs)
            with state_kept(m):
                return super().call_module(m, forward, args, kwargs)
        except Exception:
            self.failed = self.failed or (path, type(m))
            raise
        finally:
            if not leaf:
                self._scopes.pop()

    def create_node(self, kind: str, target: Any, *args: Any, **kwargs: Any) -> Node:
        """A node that knows which call of which module it was."""
        node = super().create_node(kind, target, *args, **kwargs)
        if kind.startswith("call_"):
            check_write(node)
            node.meta[MEMBERS] = (self._member(node),)
            if not torch.is_grad_enabled():
                node.meta[WITHOUT_GRADIENT] = True
        return node

    def proxy(self, node: Node) -> Proxy:
        """What stands for the value of ``node`` while tracing."""
        return Value(node, self)

    def create_arg(self, a: Any) -> Any:
        """An operand; dictionaries of a class of their own keep it, which FX makes plain ones of."""
        if dataclasses.is_dataclass(a) and issubclass(type(a), dict):
            given = {
                each.name: self.create_arg(getattr(a, each.name)) for each in dataclasses.fields(a)
            }
            return self.create_node("call_function", type(a), (), given)
        if type(a) is OrderedDict:
            pairs = [(key, self.create_arg(value)) for key, value in a.items()]
            return self.create_node("call_function", OrderedDict, (pairs,), {})
        return super().create_arg(a)

    def _member(self, node: Node) -> Member:
        scope = self._scopes[-1]
        path = scope
        names: list[Any] = [node.target]
        if node.op == "call_module":
            path = str(node.target)
            names = [type(self.root.get_submodule(path))]
        operation = operation_of(as_operator(names[0]))
        names += [] if operation is None else [Operation(operation.target)]
        around = [known_type(self.root.get_submodule(each)) for each in reversed(self._scopes)]
        order = []
        for name in names:
            order.append((name, self._seen[scope, name]))
            self._seen[scope, name] += 1
        path, scope = joined(self._prefix, path), joined(self._prefix, scope)
        return Member(node.name, path, scope, (*names, *around), tuple(order))


def joined(*parts: str) -> str:
    """One path of several, some of which may be empty."""
    return ".".join(filter(None, parts))


def trace_graph(
    model: nn.Module,
    leaf_types: Collection[type[nn.Module]],
    concrete: Mapping[str, Any],
    *,
    kept: Mapping[str, str] | None = None,
    prefix: str = "",
) -> tuple[torch.fx.Graph, dict[str, str]]:
    """The graph of ``model``; modules that cannot be traced are kept whole.

    Args:
        model: Module to trace.
        leaf_types: Exact module types that are not inlined, beside those of ``torch.nn``.
        concrete: Arguments of the forward that are constants.
        kept: Paths in ``model`` of modules that shall not be traced, and why.
        prefix: Path of ``model`` in the user's model.

    Returns:
        The graph, and for each opaque module's path why it could not be traced.

    Raises:
        TraceError: The forward of ``model`` itself cannot be traced.
    """
    opaque = dict(kept or {})
    while True:
        tracer = QuantizationTracer(leaf_types, opaque, prefix)
        try:
            # With gradients, so that a forward can be seen to switch them off.
            with torch.enable_grad(), state_kept(*model.modules()):
                return tracer.trace(model, dict(concrete) or None), opaque
        except Exception as error:
            path, kind = tracer.failed or ("", type(model))
            problem = str(error).strip().split("\n", maxsplit=1)[0]
            location = getattr(error, "location", "") or _location(error)
            if not path or path in opaque:
                place = joined(prefix, path)
                raise TraceError(place, kind.__name__, location, problem) from error
            opaque[path] = obstacle(location, problem, error)


def obstacle(location: str, problem: str, error: BaseException) -> str:
    """Why a forward cannot be traced, in words."""
    what = type(error).__name__
    if isinstance(error, FxTraceError):
        what = "its forward depends on values"
    elif isinstance(error, WriteError):
        what = "its forward writes to memory"
    return f"cannot be traced at {location} ({what}: {problem})"


def _location(error: BaseException) -> str:
    """``file:line`` of the innermost statement that is the user's own."""
    ours = (str(Path(torch.__file__).parent), str(Path(__file__).parent))
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith(ours)]
    chosen = own[-1] if own else frames[-1]
    return f"{chosen.filename}:{chosen.lineno}"
