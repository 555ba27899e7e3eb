"""What a forward writes to while it is traced: values by ``x += y``, and the model's own tensors."""

from __future__ import annotations

import dis
import inspect
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.fx import Node, Proxy

IN_PLACE = "fusion_in_place"
"""Key in the ``meta`` of a node that the user spelled ``x += y`` or the like."""

_LOCAL = "_tensor_constant"
"""What FX's names of tensors begin with that a forward made itself."""

_OWN = "fusion_core."
_Held: TypeAlias = tuple[nn.Module, str, Tensor, Tensor]


class WriteError(Exception):
    """A forward writes to memory in a way that a graph of values does not show.

    Attributes:
        location: ``file:line`` of the forward; empty where the traceback says more.
    """

    def __init__(self, problem: str, location: str = "") -> None:
        self.location = location
        super().__init__(problem)


def _augmented(plain: Callable[[Any, Any], Any]) -> Callable[[Proxy, Any], Any]:
    def augmented(self: Proxy, other: Any) -> Any:
        result = plain(self, other)
        if isinstance(result, Proxy):
            result.node.meta[IN_PLACE] = True
        return result

    return augmented


class Value(Proxy):
    """A traced value that tells ``x += y`` from ``x = x + y``: all names of ``x`` see the first."""

    __iadd__ = _augmented(operator.add)
    __isub__ = _augmented(operator.sub)
    __imul__ = _augmented(operator.mul)
    __itruediv__ = _augmented(operator.truediv)
    __ifloordiv__ = _augmented(operator.floordiv)
    __imod__ = _augmented(operator.mod)
    __ipow__ = _augmented(operator.pow)
    __iand__ = _augmented(operator.and_)
    __ior__ = _augmented(operator.or_)
    __ixor__ = _augmented(operator.xor)


def check_write(node: Node) -> None:
    """Refuse to trace a write that a graph would lose, or keep for the next call.

    Args:
        node: A node that was just traced.

    Raises:
        WriteError: It writes to a parameter, a buffer or another tensor of a module, to a part of a
            tensor, or to an argument.
    """
    if isinstance(node.kwargs.get("out"), Node):
        raise WriteError("it has a result written to a tensor of its own, by out=")
    written = node.args[0] if node.args else None
    if node.op != "call_method" or not isinstance(written, Node):
        return
    name = str(node.target)
    if name == "__setitem__":
        raise WriteError("it assigns to a part of a tensor")
    is_in_place = name.endswith("_") and not name.endswith("__")
    if is_in_place and written.op == "get_attr" and not str(written.target).startswith(_LOCAL):
        raise WriteError(f"it writes to {written.target}, which the next call would see")


@contextmanager
def state_kept(module: nn.Module, *others: nn.Module) -> Iterator[None]:
    """See that tracing the forward of ``module`` changes none of its own tensors.

    Args:
        module: Whose forward is traced.
        *others: Modules whose tensors it shall not change either.

    Raises:
        WriteError: It does. They have their values again.
    """
    modules = (module, *others)
    held, attributes = list(_held(modules)), _attributes(modules)
    changed: list[str] = []
    try:
        yield
    finally:
        changed += _restored(held)
        kinds = {type(each) for each in modules}
        changed += [name for name in _put_back(attributes) if any(_is_read(k, name) for k in kinds)]
    if changed:
        code = type(module).forward.__code__
        problem = f"it changes {', '.join(changed)}, which the next call would see"
        raise WriteError(problem, f"{code.co_filename}:{code.co_firstlineno}")


@contextmanager
def memory_kept(model: nn.Module, but: Iterable[nn.Module] = ()) -> Iterator[None]:
    """Let ``model`` forget what its modules remember of the calls in between.

    A norm that always takes the statistics of its batch writes to its buffers, and so may a module of
    the user's whose forward runs as Python. What a pass runs a model on shall not be in them afterwards.

    Modules of this package change when a pass means them to.

    Args:
        model: A model; the objects in it stay the same.
        but: Modules that remember on purpose, such as observers.
    """
    meant = {id(each) for one in but for each in one.modules()}
    theirs = (each for each in model.modules() if not type(each).__module__.startswith(_OWN))
    modules = [each for each in theirs if id(each) not in meant]
    held, attributes = list(_held(modules)), _attributes(modules)
    try:
        yield
    finally:
        _restored(held)
        _put_back(attributes)


def _held(modules: Iterable[nn.Module]) -> Iterator[_Held]:
    """Buffers, and tensors that are attributes without being registered, with copies of them."""
    for module in modules:
        plain = {name: value for name, value in vars(module).items() if isinstance(value, Tensor)}
        for name, tensor in {**dict(module.named_buffers(recurse=False)), **plain}.items():
            yield module, name, tensor, tensor.detach().clone()


def _restored(held: Iterable[_Held]) -> list[str]:
    """Give tensors their values back; returns the names of those that had others."""
    changed = []
    for module, name, tensor, value in held:
        if getattr(module, name, None) is tensor and _is_same(tensor, value):
            continue
        changed.append(name)
        if not tensor.is_leaf:  # it was written a value with a gradient
            tensor.detach_()
        with torch.no_grad():
            tensor.copy_(value)
        setattr(module, name, tensor)
    return changed


def _attributes(modules: Iterable[nn.Module]) -> list[tuple[nn.Module, dict[str, Any]]]:
    """What modules have of their own, by name."""
    return [(each, dict(vars(each))) for each in modules]


def _put_back(attributes: Iterable[tuple[nn.Module, dict[str, Any]]]) -> list[str]:
    """Give attributes that hold what was computed their values back; returns their names."""
    changed = []
    for module, before in attributes:
        for name, value in list(vars(module).items()):
            is_same = name in before and before[name] is value
            if is_same or name.startswith(_LOCAL) or not _is_computed(value):
                continue
            changed.append(name)
            if name in before:
                vars(module)[name] = before[name]
            else:
                del vars(module)[name]
    return changed


def _is_computed(value: Any) -> bool:
    """Whether there is a traced value or a tensor in ``value``, which may be a tuple or the like."""
    if isinstance(value, Mapping):
        return any(map(_is_computed, value.values()))
    if isinstance(value, (tuple, list)):
        return any(map(_is_computed, value))
    return isinstance(value, (Proxy, Tensor))


def _is_read(kind: type[nn.Module], name: str) -> bool:
    """Whether a module's methods may read an attribute that a call before has set.

    They do not where nothing but the forward reads it, behind a line that sets it in any case.

    Args:
        kind: Type of the module.
        name: Name of the attribute.
    """
    if kind.__module__.startswith("torch."):
        return False
    methods = {key: each for each in reversed(kind.__mro__) for key, each in vars(each).items()}
    functions = {key: each for key, each in methods.items() if inspect.isfunction(each)}
    forward = functions.pop("forward", None)
    others = [each for each in functions.values() if not each.__module__.startswith("torch.")]
    if any(_loads(each, name) for each in others):
        return True
    return (
        forward is not None and _loads(forward, name) and _first_use(forward, name) != "STORE_ATTR"
    )


def _loads(function: Any, name: str) -> bool:
    uses = (each for each in dis.get_instructions(function) if each.argval == name)
    return any(each.opname.startswith("LOAD_") for each in uses)


def _first_use(function: Any, name: str) -> str:
    """The first instruction that has to do with ``name``, unless it may be jumped over."""
    for each in dis.get_instructions(function):
        if each.argval == name:
            return each.opname
        if each.opcode in _JUMPS:
            break
    return ""


_JUMPS = frozenset((*dis.hasjrel, *dis.hasjabs))


def _is_same(tensor: Tensor, value: Tensor) -> bool:
    if tensor.is_meta:  # it has no values
        return True
    return torch.equal(tensor, value) or torch.equal(tensor.nan_to_num(), value.nan_to_num())
