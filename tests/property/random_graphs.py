"""Random FX graphs whose calls carry their own truth: what each means, noted down when it was made.

Nothing here asks the code under test how a call is to be read. The one thing taken from it is the
table of aliases, which has tests of its own.
"""

from __future__ import annotations

import operator
import random
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import fx, nn

from fusion_core.matcher import CallGraph
from fusion_core.patterns import Operator, operation_of

REQUIRED = object()


@dataclass(frozen=True)
class Parameter:
    """One parameter: what it may be given, and what it is otherwise."""

    name: str
    given: Any
    default: Any = REQUIRED
    is_keyword_only: bool = False


@dataclass(frozen=True)
class Spelling:
    """One operator as a graph may call it."""

    kind: str
    target: Any
    parameters: tuple[Parameter, ...]
    elsewhere: dict[str, Any] = field(default_factory=dict)
    """Defaults that another spelling of the operation has a parameter for, and this one has not."""
    by_name: bool = True
    build: Any = None

    @property
    def operators(self):
        exact = Operator(self.kind, self.target)
        packet = getattr(self.target, "overloadpacket", None)
        also = operation_of(exact), None if packet is None else Operator("function", packet)
        return (exact, *(each for each in also if each is not None))


@dataclass
class Call:
    """What a node means."""

    operators: tuple[Operator, ...]
    arguments: tuple[Any, ...]
    """In signature order, up to the last that is given."""
    names: tuple[str, ...]
    """Of the arguments."""
    defaults: dict[str, Any]
    modifiers: dict[str, Any]
    """Keyword-only arguments that are not at their defaults."""
    named: dict[str, Any]
    """Every parameter: what it is given, or its default."""


@dataclass
class RandomGraph:
    graph: fx.Graph = field(default_factory=fx.Graph)
    modules: dict[str, nn.Module] = field(default_factory=dict)
    truth: dict[fx.Node, Call] = field(default_factory=dict)
    values: list[fx.Node] = field(default_factory=list)
    """Every node but the output."""

    def _repr_pretty_(self, printer, _cycle):
        printer.text(str(self.graph))

    @property
    def calls(self):
        return CallGraph(self.graph, self.modules)

    def module(self, node):
        """The module that ``node`` calls, if it calls one."""
        is_call = isinstance(node, fx.Node) and node.op == "call_module"
        return self.modules[node.target] if is_call else None

    def is_sound(self, node):
        """Nothing about the module that ``node`` calls is left out of account."""
        module = self.module(node)
        if module is None:
            return True
        if module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module):
            return False
        calls = [each for each in self.values if self.module(each) is module]
        return len(calls) == 1 or not module.state_dict()

    def attribute(self, node, name):
        """The argument ``name``, or else the module's attribute; in a list, which may be empty."""
        call, module = self.truth[node], self.module(node)
        if name in call.named:
            return [call.named[name]]
        return [getattr(module, name)] if hasattr(module, name) else []


def blend(a, b, c=0.5, *, scale=1):
    """A function of the model's author, of three operands."""
    return scale * (c * a + (1 - c) * b)


X, Y = Parameter("input", "input"), Parameter("other", "operand")
A, B = Parameter("a", "input"), Parameter("b", "operand")
ALPHA = Parameter("alpha", (1, 2, "node"), 1, is_keyword_only=True)
DTYPE = Parameter("dtype", (None, torch.float64), None, is_keyword_only=True)
DIM = Parameter("dim", (0, 1), 0)
TENSORS = Parameter("tensors", "operands")
FLATTENED = (X, Parameter("start_dim", (0, 1), 0), Parameter("end_dim", (-1, 2), -1))
INPLACE = {"inplace": False}
SPELLINGS = (
    Spelling("module", nn.Conv2d, (X,), build=lambda: nn.Conv2d(1, 1, 1)),
    Spelling("module", nn.BatchNorm2d, (X,), build=lambda: nn.BatchNorm2d(1)),
    Spelling("module", nn.ReLU, (X,), build=nn.ReLU),
    Spelling("module", nn.Flatten, (X,), build=nn.Flatten),
    Spelling("function", F.relu, (X, Parameter("inplace", (False, True), default=False))),
    Spelling("function", torch.relu, (X,), INPLACE),
    Spelling("method", "relu", (X,), INPLACE),
    Spelling("function", torch.ops.aten.relu.default, (X,), INPLACE, by_name=False),
    Spelling("function", torch.neg, (X,)),
    Spelling("function", torch.sigmoid, (X,)),
    Spelling("function", operator.add, (A, B), {"alpha": 1}, by_name=False),
    Spelling("function", torch.add, (X, Y, ALPHA)),
    Spelling("method", "add", (X, Y, ALPHA)),
    Spelling("function", torch.ops.aten.add.Tensor, (X, Y, ALPHA), by_name=False),
    Spelling("function", operator.mul, (A, B), by_name=False),
    Spelling("function", torch.flatten, FLATTENED),
    Spelling("method", "flatten", FLATTENED),
    Spelling("function", torch.cat, (TENSORS, DIM)),
    Spelling("function", torch.stack, (TENSORS, DIM)),
    Spelling("function", torch.chunk, (X, Parameter("chunks", (2, 3)), DIM)),
    Spelling("function", operator.getitem, (A, Parameter("b", (0, 1))), by_name=False),
    Spelling("function", torch.cumsum, (X, Parameter("dim", (0, 1)), DTYPE)),
    Spelling(
        *("function", blend),
        (A, B, Parameter("c", "operand", 0.5), Parameter("scale", (1, 2), 1, is_keyword_only=True)),
    ),
)
SHAPE = Spelling("getattr", "shape", (X,), by_name=False)
SPELLED = {(each.kind, each.target): each for each in SPELLINGS}
LEGACY = (*(each for each in SPELLINGS if TENSORS not in each.parameters), SHAPE)


@dataclass
class Builder:
    """Adds calls to a graph; ``legacy`` ones are those that PyTorch's matcher sees alike."""

    made: RandomGraph
    chance: random.Random
    legacy: bool = False

    def one_in(self, count):
        return not self.legacy and self.chance.randrange(count) == 0

    def value(self, given, x):
        recent = self.made.values[-4:]
        if given == "input":
            return x
        if given == "operands":
            others = self.chance.choices([x, *recent], k=self.chance.randrange(3))
            return self.chance.sample([x, *others], len(others) + 1)
        if given == "operand" and self.legacy:
            others = [each for each in self.made.values if each is not x]
            return self.chance.choice(others or [1, 2.5])
        if given == "operand":
            return self.chance.choice([x, *recent[-2:], *self.made.values[:2], 1, 2.5])
        chosen = self.chance.choice(given)
        return self.chance.choice(recent) if chosen == "node" else chosen

    def call(self, spelling, x, **fixed):
        """A call of ``spelling`` on ``x``; arguments are spelled by position or by name."""
        given = {}
        for each in spelling.parameters:
            wanted = each.default is REQUIRED or self.one_in(4)
            if each.name in fixed or wanted:
                is_fixed = each.name in fixed
                given[each.name] = fixed[each.name] if is_fixed else self.value(each.given, x)
        node = self.node(spelling, *self.spelled(spelling, given))
        positional = [each for each in spelling.parameters if not each.is_keyword_only]
        last = max(i for i, each in enumerate(positional) if each.name in given)
        defaults = {each.name: each.default for each in spelling.parameters}
        named = {**spelling.elsewhere, **defaults, **given}
        self.made.values.append(node)
        self.made.truth[node] = Call(
            spelling.operators,
            tuple(named[each.name] for each in positional[: last + 1]),
            tuple(each.name for each in positional[: last + 1]),
            defaults,
            {
                each.name: given[each.name]
                for each in spelling.parameters
                if each.is_keyword_only and given.get(each.name, each.default) != each.default
            },
            {} if spelling.kind == "getattr" else named,
        )
        return node

    def spelled(self, spelling, given):
        """Positional and keyword arguments."""
        names = []
        for each in spelling.parameters:
            if each.name not in given or each.is_keyword_only:
                break
            names.append(each.name)
        fewest = 0 if spelling.kind != "method" else 1
        by_name = spelling.by_name and self.one_in(3)
        cut = self.chance.randint(fewest, len(names)) if by_name else len(names)
        args = tuple(given[name] for name in names[:cut])
        return args, {k: v for k, v in given.items() if k not in names[:cut]}

    def node(self, spelling, args, kwargs):
        graph = self.made.graph
        if spelling.kind == "module":
            return graph.call_module(self.path(spelling), args, kwargs)
        if spelling.kind == "method":
            return graph.call_method(spelling.target, args, kwargs)
        if spelling.kind == "getattr":
            return graph.call_function(getattr, (*args, spelling.target))
        return graph.call_function(spelling.target, args, kwargs)

    def path(self, spelling):
        """Where the module is: most are new; some are called again, by this name or another one."""
        modules = self.made.modules
        old = [path for path, each in modules.items() if type(each) is spelling.target]
        if old and self.one_in(10):
            path = self.chance.choice(old)
            if self.one_in(2):
                modules[f"{path}_too"] = modules[path]
                return f"{path}_too"
            return path
        path = f"{spelling.target.__name__.lower()}{len(self.made.values)}"
        modules[path] = spelling.build()
        if self.one_in(25):
            modules[path].register_forward_hook(lambda *_: None)
        elif self.one_in(25):
            modules[path].forward = lambda x: x
        return path

    def one_call(self, x):
        self.call(self.chance.choice(LEGACY if self.legacy else (*SPELLINGS, SHAPE)), x)

    def diamond(self, x):
        """``x * sigmoid(x)``, or with other functions."""
        one = SPELLED[self.chance.choice([("function", torch.sigmoid), ("method", "relu")])]
        two = self.chance.choice([("function", operator.mul), ("function", operator.add)])
        inner = self.call(one, x)
        operands = (x, inner) if self.chance.random() < 0.5 else (inner, x)
        self.call(SPELLED[two], operands[0], b=operands[1])

    def halves(self, x):
        """Both halves of a tensor, added or joined."""
        both = self.call(SPELLED["function", torch.chunk], x, chunks=2)
        getitem = SPELLED["function", operator.getitem]
        first = self.call(getitem, both)
        second = self.call(getitem, both, b=1)
        if self.chance.random() < 0.5:
            self.call(SPELLED["function", operator.add], first, b=second)
        else:
            self.call(SPELLED["function", torch.cat], first, tensors=[first, second])

    def twice(self, x):
        """``y + y``."""
        y = self.call(SPELLED["module", nn.Conv2d], x)
        self.call(SPELLED["function", operator.add], y, b=y)


def random_graph(chance, count, *, legacy=False):
    """A graph of ``count`` calls or small groups of calls."""
    made = RandomGraph()
    builder = Builder(made, chance, legacy)
    made.values.extend(map(made.graph.placeholder, "x" if legacy else "xy"))
    single = builder.one_call
    recipes = [single] * 6 + ([] if legacy else [builder.diamond, builder.halves, builder.twice])
    for _ in range(count):
        x = chance.choice([*made.values[-3:], *made.values[-1:] * 9])
        chance.choice(recipes)(x)
    escaping = chance.choices(made.values, k=chance.randrange(2))
    made.graph.output((made.values[-1], *escaping))
    return made
