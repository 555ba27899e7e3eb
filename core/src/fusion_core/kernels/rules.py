"""Lowering rules onto PyTorch's native int8 CPU kernels, shared by the backends that use them."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from functools import partial

from torch import nn
from torch.fx import Node

from fusion_core.configs import LoweringRule, Replacement, Skip
from fusion_core.kernels.arithmetic import arithmetic_rules
from fusion_core.kernels.between import BETWEEN, PRODUCTS, FloatBetween
from fusion_core.kernels.codes import CodeTypes
from fusion_core.kernels.copies import COPIES, Copy
from fusion_core.kernels.elementwise import ELEMENTWISE, Pointwise
from fusion_core.kernels.facts import Engine, engine_named
from fusion_core.kernels.modules import Dequantize, Quantize
from fusion_core.kernels.norms import BATCH_NORMS, Normalized
from fusion_core.kernels.tuple_parts import PARTS, Part
from fusion_core.kernels.weighted import LinearToFloat, Transposed, Weighted
from fusion_core.nn import fused, reference
from fusion_core.patterns import Operation, any_arguments, any_of
from fusion_core.qops import dequantize_per_tensor, quantize_per_tensor

Modules = Mapping[str, nn.Module]


def native_rules(
    engine: str, *, float_output: bool = False, signed: bool = False, steady: bool = False
) -> list[LoweringRule]:
    """Every rule for one of PyTorch's quantized engines.

    Weights are packed for ``engine`` and run in it, whichever engine the process has selected. What
    has no weight runs in kernels that all engines share, some of which look at the selected engine.

    Args:
        engine: ``"fbgemm"``, ``"qnnpack"``, ...
        float_output: Whether the engine has a linear kernel with float output.
        signed: Whether activations of dtype ``int8`` are lowered too. They run as unsigned codes
            that are 128 higher, which changes no value.
        steady: Whether no result may depend on the engine that the process has selected. It costs
            some ten microseconds for each sum, mean and pooling.

    Returns:
        Rules for conv and linear with their activations, transposed conv where the engine has it,
        arithmetic of two tensors and of a tensor and a number, activations, norms and products of
        matrices, the operations of :data:`COPIES`, and quantize and dequantize themselves.
    """
    facts, types = engine_named(engine), CodeTypes(signed)
    return [
        *_weighted_rules(facts, types, float_output=float_output),
        *arithmetic_rules(engine, types, steady=steady),
        *_activation_rules(engine, types),
        LoweringRule(
            complex_pattern=(quantize_per_tensor, any_of(*map(Operation, COPIES)), ...),
            lower=Copy(types, steady=steady),
            name="native copy",
        ),
        LoweringRule(
            complex_pattern=(
                quantize_per_tensor,
                (
                    operator.getitem,
                    any_of(*(any_arguments(Operation(name)) for name in PARTS)),
                    ...,
                ),
                ...,
            ),
            lower=Part(types),
            name="native part",
        ),
        LoweringRule(
            pattern=quantize_per_tensor,
            lower=partial(_lower_quantize, types),
            name="native quantize",
        ),
        LoweringRule(
            pattern=dequantize_per_tensor,
            lower=partial(_lower_dequantize, types),
            name="native dequantize",
        ),
    ]


def _weighted_rules(
    engine: Engine, types: CodeTypes, *, float_output: bool
) -> Iterator[LoweringRule]:
    convolutions = (reference.Conv1d, reference.Conv2d, reference.Conv3d)
    transposed = (reference.ConvTranspose1d, reference.ConvTranspose2d, reference.ConvTranspose3d)
    activated = (*fused.RELU_OF.values(), *fused.HARDTANH_OF.values())
    weighted = any_of(*convolutions, reference.Linear, *activated)
    if float_output:
        yield LoweringRule(
            pattern=any_of(reference.Linear, fused.LinearReLU, fused.LinearHardtanh),
            lower=LinearToFloat(engine, types),
            name=f"{engine.name} linear to float",
        )
    yield LoweringRule(
        complex_pattern=(quantize_per_tensor, weighted, ...),
        lower=Weighted(engine, types),
        name=f"{engine.name} conv/linear",
    )
    if engine.transposed:
        yield LoweringRule(
            complex_pattern=(quantize_per_tensor, any_of(*transposed), ...),
            lower=Transposed(engine, types),
            name=f"{engine.name} transposed conv",
        )


def _activation_rules(engine: str, types: CodeTypes) -> Iterator[LoweringRule]:
    elementwise = any_of(*map(Operation, ELEMENTWISE), nn.PReLU)
    products = any_of(*map(Operation, PRODUCTS))
    others = any_of(*(Operation(name) for name in BETWEEN if name not in PRODUCTS))
    for label, inner, lower in (
        ("elementwise", elementwise, Pointwise(types)),
        ("matmul", products, FloatBetween(types, all_quantized=True)),
        ("norm/softmax", others, FloatBetween(types, all_quantized=False)),
        ("batch norm", any_of(*BATCH_NORMS), Normalized(types)),
    ):
        yield LoweringRule(
            complex_pattern=(quantize_per_tensor, inner, ...),
            lower=lower,
            name=f"{engine} {label}",
        )


def _lower_quantize(types: CodeTypes, node_pattern: Node, _modules: Modules) -> Replacement | Skip:
    output = types.output(node_pattern)
    if isinstance(output, Skip):
        return output
    return Replacement(Quantize(output), (node_pattern.args[0],))


def _lower_dequantize(
    types: CodeTypes, node_pattern: Node, _modules: Modules
) -> Replacement | Skip:
    codes = types.source(node_pattern)
    if codes is None:
        return Skip("its codes are not uint8")
    return Replacement(Dequantize(), (codes,))
