"""``quantize``: all passes in one call."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import nn
from torch.fx import GraphModule

from fusion_core.configs import CustomConfig
from fusion_core.errors import CalibrationError, QConfigError
from fusion_core.passes import (
    ExampleInputs,
    Stage,
    calibrate,
    convert,
    fuse,
    lower,
    prepare,
    record_of,
    refine,
    trace,
)
from fusion_core.passes.batches import Batches
from fusion_core.passes.mappings import modes_of
from fusion_core.passes.trace import trace_unseen
from fusion_core.passes.unseen import UnknownTensor, guarded_backend
from fusion_core.registry import Backend, get_backend

_WITHOUT_DATA = ("dynamic", "weight_only")
"""Modes that need no calibration data, better ones first."""


def quantize(  # noqa: PLR0913  one keyword for each choice a user has
    model: nn.Module,
    backend: str | Backend,
    *,
    mode: str | None = None,
    calibration: Iterable[Any] | None = None,
    example_inputs: ExampleInputs | None = None,
    has_labels: bool = False,
    limit: int | None = None,
    qconfig: Any = None,
    qconfig_mapping: Any = None,
    custom: CustomConfig | None = None,
    adaptive_rounding: bool = True,
    bias_correction: bool = True,
    verify: bool | ExampleInputs = False,
    reference: bool = False,
    progress: bool | None = None,
) -> GraphModule:
    """Quantize a trained model for a backend.

    Runs trace, fuse, prepare, calibrate, convert, refine and lower, each of which is public.

    Args:
        model: A module in eval mode with float32 parameters. It is not changed.
        backend: Name of an installed or registered backend, or the backend.
        mode: ``"static"``, ``"dynamic"`` or ``"weight_only"``; default static with data or a
            qconfig, else the first of the others that the backend has.
        calibration: Inputs like those the model will see, one batch each: a tensor, a tuple or list
            of positional arguments, or a dict of keyword arguments. Tens of samples are enough.
        example_inputs: One input for tracing; default the first of ``calibration``.
        has_labels: Each item of ``calibration`` is a pair of inputs and labels, which are ignored.
        limit: Use at most so many batches.
        qconfig: Name of a preset, or one qconfig for everything.
        qconfig_mapping: Ours or PyTorch's; default the backend's own for the mode.
        custom: Modules, inputs and outputs that are treated apart.
        adaptive_rounding: Choose weight codes by the error of the layers' outputs.
        bias_correction: Shift biases so that the layers' outputs keep their means.
        verify: Refuse fused modules that give other numbers than what they replace.
        reference: Return the reference model, which runs anywhere, without the backend's kernels.
        progress: Show a progress bar on standard error; default where that is a terminal.

    Returns:
        The quantized model. :func:`fusion_core.report` tells what was quantized, what not, and why.

    Raises:
        FusionError: Backend, data, model or qconfigs cannot be used; says where and what to do.
    """
    chosen = get_backend(backend)
    data = Batches(calibration, has_labels=has_labels, limit=limit)
    is_settled = qconfig is not None or qconfig_mapping is not None
    wanted = _mode(mode, chosen, has_data=data.given, is_settled=is_settled)
    if example_inputs is None and data.given:
        example_inputs = data.first()
    fused, seen = _fused(model, chosen, example_inputs, custom, verify=verify)
    prepared = prepare(fused, seen, qconfig_mapping, mode=wanted, qconfig=qconfig)
    if wanted != mode:
        _note(prepared, f"no calibration data: mode {wanted}, which needs none")
    switches = {"adaptive_rounding": adaptive_rounding, "bias_correction": bias_correction}
    converted = _converted(prepared, data, progress=progress, **switches)
    return converted if reference else lower(converted, chosen)


def _converted(
    prepared: GraphModule, data: Batches, *, progress: bool | None, **switches: bool
) -> GraphModule:
    """The reference model, calibrated and refined where there are data."""
    if data.given:
        calibrate(prepared, data, progress=progress)
    converted = convert(prepared)
    if not data.given or not any(switches.values()):
        return converted
    return refine(converted, prepared, data.kept, progress=progress, **switches)


def _mode(mode: str | None, backend: Backend, *, has_data: bool, is_settled: bool) -> str | None:
    """The mode that counts; None where a qconfig decides by itself.

    Raises:
        CalibrationError: Without data there is none.
        QConfigError: The mode is one that the user trains in.
    """
    if mode == "qat":
        msg = (
            "quantize does not train: trace and fuse the model with qat=True, prepare(model, qat=True), "
            "train it, then convert and lower it"
        )
        raise QConfigError(msg)
    if has_data or (mode != "static" and (is_settled or mode is not None)):
        return mode
    others = [each for each in _WITHOUT_DATA if each in modes_of(backend)]
    if mode is None and others:
        return others[0]
    instead = " or ".join(f"mode={each!r}" for each in others)
    msg = (
        "static quantization needs calibration data: pass calibration=, an iterable of inputs like those "
        "the model will see; with labels beside them, has_labels=True"
    )
    raise CalibrationError(f"{msg}. {backend.name} needs none with {instead}" if others else msg)


def _fused(
    model: nn.Module,
    backend: Backend,
    example: ExampleInputs | None,
    custom: CustomConfig | None,
    *,
    verify: bool | ExampleInputs,
) -> tuple[GraphModule, Backend]:
    """The fused model, and the backend; one that asks for no shapes where there is no example to learn them from."""
    if example is not None:
        traced = trace(model, example, backend=backend, custom=custom)
        return fuse(traced, backend, verify=verify), backend
    unknown = UnknownTensor()
    guarded = guarded_backend(backend, unknown)
    traced = trace_unseen(model, unknown, backend=backend)
    _note(traced, "traced without example_inputs: what depends on shapes stays in float")
    return fuse(traced, guarded, verify=verify), guarded


def _note(model: GraphModule, note: str) -> None:
    record_of(model, Stage.TRACED, "quantize").ledger.notes.append(note)
