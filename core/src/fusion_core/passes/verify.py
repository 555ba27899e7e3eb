"""Verification of fused modules: each is called on what its region got in one run, and must give what that gave."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import GraphModule, Interpreter, Node, map_arg
from torch.fx.node import map_aggregate

from fusion_core.errors import ModelStateError
from fusion_core.matcher import CallGraph, Match, NoMatch, PatternIndex, scan
from fusion_core.passes.arguments import ExampleInputs, bind_inputs
from fusion_core.passes.record import PassRecord
from fusion_core.registry import PatternEntry

RELATIVE_ROUNDING = 1e-4
"""Part of the largest value by which a fused result may differ.

Weights are folded in float64 and rounded once to float32, so what remains is rounding of the order
of 1e-6 of the range. A hundred times that leaves room for long sums in another order, and is far
below the step of 1/255 of the range that eight bits have.
"""

ABSOLUTE_ROUNDING = 1e-6
"""What is added to that, for results that are zero or nearly so."""


def example_arguments(
    model: GraphModule, record: PassRecord, *, verify: bool | ExampleInputs
) -> tuple[Any, ...] | None:
    """Arguments of the one call that fused modules are verified on; None where they are not.

    Raises:
        ModelStateError: The inputs ``model`` was traced with are gone, or those given do not fit.
    """
    if verify is False:
        return None
    if verify is not True:
        arguments, omitted = bind_inputs(model, verify)
        if omitted:
            msg = f"verify needs every input of the traced model, and has none for {', '.join(omitted)}"
            raise ModelStateError(msg)
        return arguments
    if record.example.arguments is None:
        msg = (
            "verify=True needs the inputs that the model was traced with, and a model that has been fused or "
            "pickled no longer has them; trace the model again, or pass inputs: verify=inputs"
        )
        raise ModelStateError(msg)
    return record.example.arguments


class Verifier:
    """Holds what crosses the borders of all regions in one run of the graph before it is rewritten."""

    def __init__(
        self,
        calls: CallGraph,
        index: PatternIndex[PatternEntry],
        model: GraphModule,
        arguments: tuple[Any, ...],
    ) -> None:
        """Runs ``model`` once.

        Args:
            calls: Call sites of its graph.
            index: The patterns whose matches will be verified; values that none of them needs are
                not kept.
            model: The graph, not yet rewritten.
            arguments: Positional arguments of one call.

        Raises:
            ModelStateError: The model does not run on them.
        """
        self._model = model
        self._arguments = arguments
        self._values: dict[Node, Any] = {}
        self._run(_borders(calls, index))

    def refusal(
        self, match: Match[PatternEntry], module: nn.Module, inputs: Sequence[Any], options: Any
    ) -> NoMatch | None:
        """Why ``module`` may not take the place of ``match``, or None.

        Args:
            match: The match.
            module: What its fuser method built.
            inputs: The positional arguments it will be called with, nodes among them.
            options: Its keyword arguments.
        """
        # Deeper than any pattern can fail: wrong numbers say more than an operator that is missing.
        depth = len(self._model.graph.nodes) + 1
        expected = self._value(match.anchor)
        given = map_arg((tuple(inputs), dict(options)), self._value)
        args, kwargs = _cloned(given)
        try:
            with torch.no_grad(), _same_random_state():
                result = module.eval()(*args, **kwargs)
        except Exception as error:  # noqa: BLE001  a plugin's module may raise anything
            problem = f"{type(error).__name__}: {error}"
            return NoMatch("its fused module raises {} on its inputs", (problem,), depth)
        difference = _difference(expected, result)
        if difference is not None:
            return NoMatch("its fused module gives {}", (difference,), depth)
        if _difference(given, (args, kwargs)) is not None:
            return NoMatch("its fused module changes its inputs in place", (), depth)
        return None

    def _value(self, node: Node) -> Any:
        if node not in self._values:  # only an extra input can lie outside the borders
            self._run({node})
        return self._values[node]

    def _run(self, kept: Collection[Node]) -> None:
        recording = _Recording(self._model, kept, self._values)
        try:
            with torch.no_grad(), _same_random_state():
                recording.run(*_cloned(self._arguments))
        except Exception as error:
            # FX appends where it was to the message.
            problem = str(error).strip().split("\n", maxsplit=1)[0]
            msg = f"the model does not run on the inputs that its fusions are to be verified on: {problem}"
            raise ModelStateError(msg) from error


class _Recording(Interpreter):
    """Runs a graph and keeps the values of some of its nodes."""

    def __init__(self, model: GraphModule, kept: Collection[Node], values: dict[Node, Any]) -> None:
        super().__init__(model)
        self._kept = kept
        self._values = values

    def run_node(self, n: Node) -> Any:
        result = super().run_node(n)
        if n in self._kept:
            self._values[n] = result
        return result


def _borders(calls: CallGraph, index: PatternIndex[PatternEntry]) -> set[Node]:
    """What any match gives, and what it reads from outside."""
    found: set[Node] = set()

    def note(match: Match[PatternEntry]) -> NoMatch:
        read = {value for node in match.nodes for value in node.all_input_nodes}
        found.update(read.difference(match.nodes), (match.anchor,))
        return NoMatch("")  # so that the next pattern has its turn

    scan(calls, index, note)
    return found


def _difference(expected: Any, given: Any) -> str | None:
    """What is wrong with ``given``, to follow "gives"; None where it is ``expected`` but for rounding."""
    if isinstance(expected, Tensor) and isinstance(given, Tensor):
        return _tensor_difference(expected, given)
    pair = _children(expected), _children(given)
    if pair[0] is None or pair[1] is None:
        same = type(expected) is type(given) and (pair[0] is pair[1]) and _equal(expected, given)
        return None if same else f"{_kind(given)} and not {_kind(expected)}"
    if list(pair[0]) != list(pair[1]):
        return f"{_kind(given)} of {len(pair[1])} and not {_kind(expected)} of {len(pair[0])}"
    found = (_difference(part, pair[1][key]) for key, part in pair[0].items())
    return next((each for each in found if each is not None), None)


def _children(value: Any) -> dict[Any, Any] | None:
    if isinstance(value, dict):
        return value
    return dict(enumerate(value)) if isinstance(value, (tuple, list)) else None


def _equal(expected: Any, given: Any) -> bool:
    """Whether two plain values are the same; objects of other types cannot be compared, and pass."""
    plain = (bool, int, float, complex, str, torch.dtype, torch.device)
    return not isinstance(expected, plain) or bool(expected == given or expected != expected)  # noqa: PLR0124  NaN


def _kind(value: Any) -> str:
    return repr(value) if isinstance(value, (bool, int, float)) else f"a {type(value).__name__}"


def _tensor_difference(expected: Tensor, given: Tensor) -> str | None:
    for name in ("shape", "dtype", "device"):
        have, want = getattr(given, name), getattr(expected, name)
        if have != want:
            shown = [tuple(each) if name == "shape" else each for each in (have, want)]
            return f"a tensor of {name} {shown[0]} and not {shown[1]}"
    want, have = _comparable(expected), _comparable(given)
    finite = want[want.isfinite()].abs()
    allowed = 0.0
    if expected.is_floating_point() or expected.is_complex() or expected.is_quantized:
        largest = float(finite.max()) if finite.numel() else 0.0
        allowed = RELATIVE_ROUNDING * largest + ABSOLUTE_ROUNDING
    if bool((want.isnan() != have.isnan()).any()):
        return "NaN where its operations give numbers, or the other way round"
    # Infinity less infinity is NaN, though they are equal.
    unequal = (want != have) & ~want.isnan()
    worst = float((want[unequal] - have[unequal]).abs().max()) if bool(unequal.any()) else 0.0
    if worst <= allowed:
        return None
    return f"results that differ by {worst:.2g} (at most {allowed:.2g} is rounding)"


def _comparable(tensor: Tensor) -> Tensor:
    """Values in the widest type of their kind."""
    plain = tensor.dequantize() if tensor.is_quantized else tensor.detach()
    return plain.to(torch.complex128 if plain.is_complex() else torch.float64)


def _cloned(values: Any) -> Any:
    """``values`` with tensors of their own."""
    return map_aggregate(values, lambda each: each.clone() if isinstance(each, Tensor) else each)


@contextmanager
def _same_random_state() -> Iterator[None]:
    """Afterwards the random generators are as before."""
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    with torch.random.fork_rng(devices):
        yield
