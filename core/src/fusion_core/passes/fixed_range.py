"""Outputs whose parameters are known without data, because the backend's kernel gives no others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch.fx import Node

from fusion_core.catalog.families import GENERAL, POOLING, SHAPE
from fusion_core.configs import DTypeConfig, ObserverFactory, ObserverSpec, QConfig, quantized_type
from fusion_core.nn import FixedQParamsObserver
from fusion_core.nn.protocol import INTEGER_RANGES
from fusion_core.passes.dtypes import choose_dtype_config, known_zero_point
from fusion_core.patterns import operation_name


def with_fixed_output(config: DTypeConfig, qconfig: QConfig) -> QConfig:
    """``qconfig`` with the output's parameters that ``config`` prescribes.

    The input keeps its own observer: that a sigmoid gives values between 0 and 1 says nothing of
    what it is given.

    Args:
        config: A combination of dtypes; the exact scale and zero point of its output count.
        qconfig: What an operation is quantized with. An ``output`` that it names itself stays.
    """
    wanted = config.constraints("output")
    scale, zero_point = wanted.scale_exact_match, wanted.zero_point_exact_match
    dtype = quantized_type(qconfig.activation).dtype
    if scale is None or zero_point is None or qconfig.output is not None:
        return qconfig
    if dtype not in INTEGER_RANGES or wanted.dtype not in {None, dtype}:
        return qconfig
    low, high = INTEGER_RANGES[dtype]
    fixed = ObserverSpec(
        FixedQParamsObserver,
        scale=scale,
        zero_point=zero_point,
        dtype=dtype,
        qscheme=torch.per_tensor_affine,
        quant_min=low,
        quant_max=high,
    )
    return qconfig.model_copy(update={"output": fixed, "input": qconfig.input_observer})


def taken_as_given(
    given: ObserverFactory, configs: Sequence[DTypeConfig], qconfig: QConfig, *, weighted: bool
) -> bool:
    """Whether an operation reads a value with the fixed parameters that it was given with.

    To measure values that have been rounded to such a grid and to round them again would cost time
    and precision, so a kernel that takes the grid gets it, unless the operation is to have other
    codes.

    Args:
        given: The observer of the value.
        configs: Combinations of dtypes that the operation's kernel takes.
        qconfig: What the operation is quantized with.
        weighted: Whether it has a weight.
    """
    have, wanted = quantized_type(given), quantized_type(qconfig.input_observer)
    if have.fixed is None or wanted.fixed is not None or known_zero_point(wanted) is not None:
        return False
    if any(getattr(have, name) != getattr(wanted, name) for name in _CODES):
        return False
    as_given = qconfig.model_copy(update={"input": given})
    chosen, _problem = choose_dtype_config(configs, as_given, weighted=weighted)
    return chosen is not None


def keeps_range(nodes: Iterable[Node]) -> bool:
    """Whether operations that share their input's parameters are known to stay in its range, whatever it is.

    Padding, clamping and dividing by a number of the caller's may leave it.
    """
    return all(name_of_call(node) in _WITHIN for node in nodes)


def name_of_call(node: Node) -> str:
    """The name of the operation that ``node`` spells, or nothing."""
    target: Any = node.target
    owner = node.graph.owning_module
    if node.op == "call_module" and owner is not None:
        target = type(owner.get_submodule(target))
    return operation_name(target)


_MAY_LEAVE = frozenset({"pad", "interpolate", "avg_pool1d", "avg_pool2d", "avg_pool3d"})
_WITHIN = frozenset((*POOLING, *SHAPE, *GENERAL, "relu", "relu6", "cat")) - _MAY_LEAVE
_CODES = ("dtype", "quant_min", "quant_max")
