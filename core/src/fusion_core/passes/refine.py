"""refine: choose weight codes and biases of a reference model by what its layers give on data.

One sweep in execution order. Each weighted layer is given the inputs that the quantized model
really has there, with every layer before it already refined, so it makes up for their errors too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import GraphModule, Interpreter, Node

from fusion_core.configs import quantized_type
from fusion_core.errors import CalibrationError, first_few
from fusion_core.nn.fused import Activated
from fusion_core.nn.reference import ReferenceModule
from fusion_core.nn.rounding import MAX_POSITIONS, InputMoments, odd_step, round_with_feedback
from fusion_core.passes.biases import round_biases
from fusion_core.passes.calibrate import as_arguments, shown
from fusion_core.passes.edit import copy_model, copy_module, finish
from fusion_core.passes.part_inputs import inputs_of_parts
from fusion_core.passes.parts import each_part
from fusion_core.passes.record import Part, PassRecord, Stage, WeightPlan, advance, record_of
from fusion_core.passes.written import memory_kept
from fusion_core.qops import take_codes

MAX_COLUMNS = 2304
"""Longest row of a weight for which codes are chosen with feedback: 256 channels of 3 x 3."""

_LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
_WITH_PLACES = 3
_NEWTON_STEPS = 4
_LEAST_SLOPE = 0.1


def refine(
    model: GraphModule,
    prepared: GraphModule,
    data: Iterable[Any],
    *,
    adaptive_rounding: bool = True,
    bias_correction: bool = True,
    progress: bool | None = None,
) -> GraphModule:
    """Refine the weights' codes and the biases of a reference model.

    * Adaptive rounding chooses codes so that the error of the layer's output is least
      (:mod:`fusion_core.nn.rounding`). Layers whose rows are longer than :data:`MAX_COLUMNS` keep
      theirs.
    * Bias correction moves each bias so that the mean of the layer's output, behind its activation,
      is that of the float model (Nagel et al. 2019, "Data-free quantization", section 4.2, with
      data).

    Args:
        model: What :func:`convert` returned. It is not changed.
        prepared: The prepared model it was converted from, which computes in float.
        data: A few batches, in the forms that :func:`calibrate` takes. They are held in memory
            together with the values of one layer for all of them.
        adaptive_rounding: Whether to choose codes.
        bias_correction: Whether to correct biases.
        progress: Show a progress bar on standard error; default where that is a terminal.

    Returns:
        A new reference model.

    Raises:
        CalibrationError: There are no data.
        ModelStateError: ``model`` has not been converted.
    """
    record = record_of(model, Stage.CONVERTED, "refine")
    batches = list(data)
    if not batches:
        msg = "there are no data to refine the model on; pass some of the calibration data"
        raise CalibrationError(msg)
    refined = copy_model(model)
    mine = advance(refined, record, Stage.CONVERTED)
    switches = {"adaptive_rounding": adaptive_rounding, "bias_correction": bias_correction}
    steps = ", ".join(name.replace("_", " ") for name, on in switches.items() if on)
    known = [path for path, plan in mine.weights.items() if _is_known(prepared, path, plan)]
    if not steps or not (known or mine.parts):
        return finish(refined)
    if mine.parts:
        _refine_parts(refined, prepared, batches, progress=progress, **switches)
    mine.ledger.notes.append(f"refined on {len(batches)} batches: {steps}")
    if not known:
        return finish(refined)
    with torch.no_grad(), memory_kept(refined):
        targets = _float_means(prepared, batches, known) if bias_correction else {}
        weights = _float_weights(prepared, record, known) if adaptive_rounding else {}
        sweep = _Sweep(refined, {path: mine.weights[path] for path in known}, targets, weights)
        sweep.run(batches, progress=progress)
        round_biases(refined, mine.weights)
    if sweep.too_long:
        mine.ledger.notes.append(f"rounded to nearest, rows too long: {first_few(sweep.too_long)}")
    return finish(refined)


def _refine_parts(
    refined: GraphModule, prepared: GraphModule, batches: list[Any], **settings: Any
) -> None:
    """Refine each part of ``refined`` on what it is given while the float model runs on ``batches``."""
    with torch.no_grad():
        inputs = inputs_of_parts(_without_observers(prepared), batches)

    def refine_part(graph: GraphModule, part: Part) -> GraphModule:
        source: Any = prepared.get_submodule(part.path)
        given = inputs[part.path]
        return refine(graph, source, given, **settings) if given else graph

    each_part(refined, refine_part)


def _float_means(
    prepared: GraphModule, batches: list[Any], paths: Iterable[str]
) -> Mapping[str, Tensor]:
    """Mean output of each weighted module in the float model: one row per batch, shape [batches, channels]."""
    plain = _without_observers(prepared)
    rows: dict[str, list[Tensor]] = {path: [] for path in paths}
    handles = []
    for path, found in rows.items():
        module = plain.get_submodule(path)

        def note(
            module: nn.Module, _inputs: Any, output: Tensor, found: list[Tensor] = found
        ) -> None:
            found.append(_channel_means(output, module))

        handles.append(module.register_forward_hook(note))
    try:
        with memory_kept(plain):
            for batch in batches:
                args, kwargs = as_arguments(batch)
                plain(*args, **kwargs)
    finally:
        for handle in handles:
            handle.remove()
    return {path: torch.cat(each) for path, each in rows.items() if each}


def _is_known(prepared: GraphModule, path: str, plan: WeightPlan) -> bool:
    """Whether a weighted module multiplies as a convolution or a linear layer does, on integer codes."""
    has_codes = quantized_type(plan.observer).quant_max is not None
    return has_codes and isinstance(_layer(prepared, path, plan), _LAYERS)


def _layer(prepared: GraphModule, path: str, plan: WeightPlan) -> Any:
    module = prepared.get_submodule(path)
    return module.get_submodule(plan.part) if plan.part else module


def _float_weights(
    prepared: GraphModule, record: PassRecord, paths: Iterable[str]
) -> Mapping[str, Tensor]:
    """Float weight of each weighted module, by its path."""
    plans = record.weights
    return {path: _layer(prepared, path, plans[path]).weight.detach() for path in paths}


def _without_observers(prepared: GraphModule) -> GraphModule:
    plain = copy_model(prepared)
    observers = set(record_of(prepared, Stage.PREPARED, "refine").observers)
    for node in list(plain.graph.nodes):
        if node.op == "call_module" and node.target in observers:
            node.replace_all_uses_with(node.args[0])
            plain.graph.erase_node(node)
    each_part(plain, lambda graph, _: _without_observers(graph))
    return finish(plain)


def _channel_means(output: Tensor, module: nn.Module) -> Tensor:
    """Mean over everything but batch and channel: shape [batch, channels]."""
    by_channel: Tensor = torch.atleast_2d(_channels_last(output, module))
    places = tuple(range(1, by_channel.dim() - 1))
    return by_channel.mean(places) if places else by_channel


def _channels_last(output: Tensor, module: nn.Module) -> Tensor:
    inner = module[0] if isinstance(module, Activated) else module
    inner = inner.float_module if isinstance(inner, ReferenceModule) else inner
    return (
        output
        if isinstance(inner, nn.Linear) or output.dim() < _WITH_PLACES
        else output.movedim(1, -1)
    )


class _FloatFed(Interpreter):
    """Runs a model that takes codes on float inputs; what reads them rounds them alike."""

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call ``target``, except that inputs are taken as they are."""
        is_input = target is take_codes and args[0].is_floating_point()
        return args[0] if is_input else super().call_function(target, args, kwargs)


@dataclass
class _Sweep:
    """Runs a reference model node by node on all batches at once, refining each weighted layer it meets.

    Attributes:
        model: The reference model; its weighted modules are replaced.
        plans: How each weight is quantized, by path.
        targets: Mean output in the float model, by path; biases of these are corrected.
        weights: Float weight, by path; codes of these are chosen.
        too_long: Paths of layers whose rows are too long to choose codes for.
    """

    model: GraphModule
    plans: Mapping[str, WeightPlan]
    targets: Mapping[str, Tensor]
    weights: Mapping[str, Tensor]
    too_long: list[str] = field(default_factory=list)

    def run(self, batches: list[Any], *, progress: bool | None) -> None:
        """Sweep once over ``batches``."""
        runs = [_FloatFed(self.model, garbage_collect_values=False) for _ in batches]
        for run, batch in zip(runs, batches, strict=True):
            self._start(run, batch)
        last_reader = {
            value: node for node in self.model.graph.nodes for value in node.all_input_nodes
        }
        nodes = list(self.model.graph.nodes)
        for node in shown(nodes, "Refining", len(nodes), progress=progress):
            if node.op == "output":
                continue
            if node.op == "call_module" and str(node.target) in self.plans:
                self._refine(node, [run.env[node.all_input_nodes[0]] for run in runs])
            for run in runs:
                if node.op != "placeholder":
                    run.env[node] = run.run_node(node)
                for value in node.all_input_nodes:
                    if last_reader[value] is node:
                        del run.env[value]

    def _start(self, run: Interpreter, batch: Any) -> None:
        args, kwargs = as_arguments(batch)
        waiting = list(args)
        for node in self.model.graph.nodes:
            if node.op == "placeholder":
                name = str(node.target)
                run.env[node] = (
                    waiting.pop(0)
                    if waiting
                    else kwargs.get(name, node.args[0] if node.args else None)
                )

    def _refine(self, node: Node, inputs: list[Tensor]) -> None:
        path = str(node.target)
        plan, module = self.plans[path], copy_module(self.model.get_submodule(path))
        layer: Any = module.get_submodule(plan.part) if plan.part else module
        if type(layer).forward is not ReferenceModule.forward or not _is_plain(
            layer.float_module, inputs
        ):
            return
        layer = copy_module(layer)
        layer.float_module = copy_module(layer.float_module)
        if layer.codes[0].numel() > MAX_COLUMNS:
            self.too_long.append(path)
        # What a vendor's own fused module does behind its layer is not known, so neither is its mean.
        corrects = path in self.targets and (not plan.part or isinstance(module, Activated))
        if path in self.weights and path not in self.too_long:
            # The mean of the inputs counts only where the bias does not make up for it.
            moments = InputMoments(layer.float_module).of(inputs, about_mean=corrects)
            _choose_codes(layer, plan, self.weights[path], moments)
        if corrects:
            activation = module[1] if isinstance(module, Activated) else nn.Identity()
            _correct_bias(layer, activation, self.targets[path], inputs)
        if plan.part:
            module.add_module(plan.part, layer)
        else:
            module = layer
        self.model.add_submodule(path, module)


def _is_plain(layer: nn.Module, inputs: list[Tensor]) -> bool:
    """Whether ``layer`` is of a kind whose arithmetic is known here, on inputs with a batch."""
    if isinstance(layer, nn.Linear):
        return all(x.dim() > 1 for x in inputs)
    kinds: dict[type[nn.Module], int] = {nn.Conv1d: 3, nn.Conv2d: 4, nn.Conv3d: 5}
    dims = kinds.get(type(layer))
    return dims is not None and all(x.dim() == dims for x in inputs)


def _choose_codes(
    layer: ReferenceModule, plan: WeightPlan, weight: Tensor, moments: Tensor
) -> None:
    wanted = quantized_type(plan.observer)
    if layer.weight_zero_point.any() or layer.axis not in {0, None}:
        return
    if wanted.quant_min is None or wanted.quant_max is None:
        return
    groups = len(moments)
    shape = (groups, layer.codes.shape[0] // groups, -1)
    scale = layer.weight_scale.expand(layer.codes.shape[0]).reshape(groups, -1, 1)
    codes = round_with_feedback(
        weight.reshape(shape),
        scale,
        moments,
        quant_min=wanted.quant_min,
        quant_max=wanted.quant_max,
    )
    layer.codes = codes.reshape(layer.codes.shape).to(layer.codes.dtype)


def _correct_bias(
    layer: ReferenceModule, activation: nn.Module, target: Tensor, inputs: list[Tensor]
) -> None:
    outputs = [_thinned(_channels_last(layer(x), layer), len(inputs)) for x in inputs]
    low, high = _bounds(activation)
    shift = torch.zeros(outputs[0].shape[-1])
    for _ in range(_NEWTON_STEPS):
        moved = [each + shift for each in outputs]
        mean = torch.cat([each.clamp(low, high).mean(dim=1) for each in moved])
        slope = torch.cat([((each > low) & (each < high)).float().mean(dim=1) for each in moved])
        error = target - mean
        shift = shift + error.mean(dim=0) / slope.mean(dim=0).clamp(min=_LEAST_SLOPE)
    shift = shift * _certainty(target, outputs, low, high)
    bias = layer.bias
    layer.float_module.bias = nn.Parameter(
        shift if bias is None else bias + shift, requires_grad=False
    )


def _thinned(values: Tensor, batches: int) -> Tensor:
    """Positions of a tensor with channels last, thinned out: shape [batch, positions, channels]."""
    rows = values.reshape(values.shape[0], -1, values.shape[-1])
    most = max(MAX_POSITIONS // (batches * rows.shape[0]), 1)
    return rows[:, :: odd_step(rows.shape[1], most)]


def _certainty(target: Tensor, outputs: list[Tensor], low: float, high: float) -> Tensor:
    """How much of the mean error is more than chance: ``m^2 / (m^2 + s^2 / n)`` over n samples, per channel."""
    errors = target - torch.cat([each.clamp(low, high).mean(dim=1) for each in outputs])
    count = errors.shape[0]
    if count == 1:
        return torch.ones(errors.shape[1])
    mean = errors.mean(dim=0).square()
    return mean / (mean + errors.var(dim=0) / count).clamp(min=1e-30)


def _bounds(activation: nn.Module) -> tuple[float, float]:
    if isinstance(activation, nn.Hardtanh):
        return float(activation.min_val), float(activation.max_val)
    return (0.0, float("inf")) if isinstance(activation, nn.ReLU) else (float("-inf"), float("inf"))
