"""The inputs and outputs of a model: which are integer codes, and how those are to be read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Node

from fusion_core.errors import CustomConfigError
from fusion_core.passes.edit import after
from fusion_core.passes.paths import input_values, output_values
from fusion_core.passes.record import PassRecord, Stage, record_of
from fusion_core.passes.shapes import dtype_of, shape_of
from fusion_core.passes.wishes import quantized_inputs, quantized_outputs
from fusion_core.qops import dequantize_per_tensor, give_codes, quantize_per_tensor, take_codes


@dataclass(frozen=True, slots=True)
class Port:
    """One input or output.

    Attributes:
        dtype: Of the tensor that is given: ``torch.uint8`` or ``torch.int8`` for codes; None where
            it is no tensor.
        shape: On the example inputs; None where it is no tensor.
        scale: What one step of the codes is worth; None for what is no codes.
        zero_point: The code that stands for 0.
        quant_min: Smallest code.
        quant_max: Largest code.
    """

    dtype: torch.dtype | None
    shape: tuple[int, ...] | None
    scale: float | None = None
    zero_point: int | None = None
    quant_min: int | None = None
    quant_max: int | None = None


@dataclass(frozen=True, slots=True)
class Interface:
    """What a model is given and gives.

    Attributes:
        inputs: By path, for example ``x`` or ``x['left']``.
        outputs: By path, for example ``[0]``; ``""`` for a single one.
    """

    inputs: dict[str, Port]
    outputs: dict[str, Port]


def interface(model: GraphModule) -> Interface:
    """The inputs and outputs of a model that came from one of the passes.

    Args:
        model: What :func:`fusion_core.quantize`, or any of the passes, returned.

    Raises:
        ModelStateError: ``model`` comes from none of them.
    """
    record_of(model, Stage.TRACED, "interface")
    inputs = {path: _port_of_input(values) for path, values in input_values(model).items()}
    outputs = {path: _port_of_output(value) for path, value in output_values(model).items()}
    return Interface(
        {
            path: port
            for path, port in inputs.items()
            if port.dtype or not _is_container(path, inputs)
        },
        outputs,
    )


def _is_container(path: str, ports: dict[str, Port]) -> bool:
    return any(other.startswith((f"{path}[", f"{path}.")) for other in ports)


def _port_of_input(values: tuple[Node, ...]) -> Port:
    for value in values:
        for user in value.users:
            if user.target is take_codes:
                _, scale, zero_point, low, high, dtype = user.args
                return _port(dtype, shape_of(value), (scale, zero_point, low, high))
    return _port(dtype_of(values[0]), shape_of(values[0]))


def _port_of_output(value: Any) -> Port:
    if isinstance(value, Node) and value.target is give_codes:
        _, scale, zero_point, low, high, dtype = value.args
        return _port(dtype, shape_of(value), (scale, zero_point, low, high))
    return _port(dtype_of(value), shape_of(value))


def _port(dtype: Any, shape: tuple[int, ...] | None, parameters: tuple[Any, ...] = ()) -> Port:
    return Port(dtype, shape, *parameters)


def open_to_codes(model: GraphModule, record: PassRecord) -> None:
    """Make the inputs and outputs that the user wants so take and give codes.

    Args:
        model: A reference graph; changed in place.
        record: Its record.

    Raises:
        CustomConfigError: Some of them is not quantized.
    """
    for path, values in quantized_inputs(model, record).items():
        _take(model, path, values)
    for path, value in quantized_outputs(model, record).items():
        _give(model, path, value)


def _take(model: GraphModule, path: str, values: tuple[Node, ...]) -> None:
    readers = [user for value in values for user in value.users]
    quantize = next((each for each in readers if each.target is quantize_per_tensor), None)
    if quantize is None:
        problem = "it is not quantized with one scale that is known beforehand"
        raise CustomConfigError("quantized_inputs", path, problem)
    for value in values:
        with model.graph.inserting_before(after(value)):
            taken = model.graph.call_function(take_codes, (value, *quantize.args[1:]))
        taken.meta = dict(value.meta)
        for reader in list(value.users):
            if reader is not taken:
                reader.replace_input_with(value, taken)


def _give(model: GraphModule, path: str, value: Node) -> None:
    quantize = value.args[0] if value.target is dequantize_per_tensor else None
    if not isinstance(quantize, Node) or quantize.target is not quantize_per_tensor:
        problem = "it is not quantized with one scale that is known beforehand"
        raise CustomConfigError("quantized_outputs", path, problem)
    reader = next(iter(value.users))  # a dequantize has one: the output, or what makes a container
    with model.graph.inserting_before(reader):
        given = model.graph.call_function(give_codes, (value, *quantize.args[1:]))
    given.meta = {key: each for key, each in value.meta.items() if key == "tensor_meta"}
    reader.replace_input_with(value, given)
