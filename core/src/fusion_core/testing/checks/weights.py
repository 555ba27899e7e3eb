"""Modules with a weight have a reference form, and for training one that is turned back to it."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.func import functional_call

from fusion_core.catalog import qat_qconfig
from fusion_core.configs import INTEGER_DTYPES, QConfig
from fusion_core.nn.reference import REFERENCE_OF
from fusion_core.passes.record import WeightPlan
from fusion_core.passes.weights import quantized_weights, reference_of
from fusion_core.registry import PatternEntry
from fusion_core.testing.measures import sqnr
from fusion_core.testing.qconfigs import fitting_qconfig, weight_observer
from fusion_core.testing.require import require
from fusion_core.testing.roots import root_of
from fusion_core.testing.subject import Subject

LEAST_SQNR = 100.0
"""What a reference module keeps of the operation on the dequantized weight, in decibel.

Both compute the same in float32, whose own rounding leaves some 140 dB.
"""


class WeightChecks:
    """Each check is run on each pattern with a root module."""

    def test_the_root_has_a_reference_module(self, subject: Subject, rooted: PatternEntry) -> None:
        """Built from float and codes, it gives what the float module gives on the dequantized weight."""
        kind: Any = rooted.config.root_module
        reference: Any = rooted.config.reference_quantized_module or REFERENCE_OF.get(kind)
        require(
            reference is not None,
            f"{kind.__name__} has no reference module that core knows; set reference_quantized_module",
        )
        root = root_of(subject, rooted)
        plan = WeightPlan(weight_observer(_weight(rooted), per_channel=False), "", reference)
        codes = quantized_weights(root.module, plan)
        with torch.no_grad():
            weights = {name: each.dequantize() for name, each in codes.items()}
            want = functional_call(copy.deepcopy(root.module), weights, root.inputs)
            have = reference_of(copy.deepcopy(root.module), plan).eval()(*root.inputs)
        found = sqnr(want, have)
        require(
            found >= LEAST_SQNR,
            f"{reference.__name__} gives something else than {kind.__name__} on the dequantized "
            f"weight: {found:.0f} dB of signal over noise",
        )

    def test_the_module_for_training_has_the_roots_parameters(
        self, subject: Subject, trained: PatternEntry
    ) -> None:
        """It is made of the root module and turned back into one with the same names and shapes."""
        kind: Any = trained.config.qat_module
        require(
            isinstance(kind, type) and issubclass(kind, nn.Module),
            f"qat_module is {kind!r}, which is not a type of module",
        )
        missing = [name for name in ("from_float", "to_float") if not hasattr(kind, name)]
        require(
            not missing,
            f"{kind.__name__} has no {' and no '.join(missing)}; prepare calls "
            "from_float(float_module, qconfig) in training, and convert to_float()",
        )
        root = root_of(subject, trained)
        module = kind.from_float(copy.deepcopy(root.module), qat_qconfig(_qconfig(trained)))
        want, have = (
            {name: tuple(each.shape) for name, each in built.named_parameters()}
            for built in (root.module, module.to_float())
        )
        require(
            want == have,
            f"what {kind.__name__} is turned back to has the parameters {have}, and "
            f"{type(root.module).__name__} has {want}",
        )


def _weight(entry: PatternEntry) -> Any:
    """What the first integer combination of dtypes wants of the weight; skips without one."""
    for config in entry.config.dtype_configs:
        wanted = config.constraints("weight")
        if wanted.dtype in INTEGER_DTYPES:
            return wanted
    pytest.skip("it lists no dtypes with an integer weight")


def _qconfig(entry: PatternEntry) -> QConfig:
    for config in entry.config.dtype_configs:
        return fitting_qconfig(config)
    pytest.skip("it lists no dtypes")
