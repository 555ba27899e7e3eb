"""Capabilities that are judged on dtype configs and qconfigs, not on an operation."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

import torch

from fusion_core.configs import (
    INTEGER_DTYPES,
    DTypeConfig,
    QConfig,
    QConfigMapping,
    quantized_type,
)
from fusion_core.ledger import Status
from fusion_core.nn.reference import ReferenceModule
from fusion_core.testing.measures import sqnr
from fusion_core.testing.outcome import Outcome
from fusion_core.testing.qconfigs import SIGNED, UNSIGNED, fitting_qconfig
from fusion_core.testing.subject import Subject
from fusion_core.testing.zoo import CASES, Case

_LAYERS = ("conv2d", "linear", "conv1d", "conv3d")
_LEAST = 20.0

Judge = Callable[[Subject], str | None]


@dataclass(frozen=True)
class _Trial:
    """A layer quantized with the default qconfig or one made to fit, until one is accepted.

    Attributes:
        wanted: What the qconfig is to have, in words.
        has: Whether a qconfig has it.
        qconfig: Makes one for a combination of dtypes, whether that allows it or not.
        channels: Whether the weight must have got several scales, or one; None for either.
    """

    wanted: str
    has: Callable[[QConfig], bool]
    qconfig: Callable[[DTypeConfig], QConfig] = fitting_qconfig
    channels: bool | None = None

    def __call__(self, subject: Subject) -> str | None:
        """Why none is accepted; None if one is."""
        layer = next((each for each in _LAYERS if subject.info.gap(each) is None), None)
        if layer is None:
            return f"no layer to try it on is claimed: none of {', '.join(_LAYERS)}"
        problem = f"no pattern with a weight lists dtypes with {self.wanted}"
        mapping = subject.backend.qconfig_mapping
        own = mapping.global_qconfig if mapping is not None else None
        fitting = map(self.qconfig, weighted_dtypes(subject))
        for qconfig in filter(None, (own, *fitting)):
            try:
                found = self._problem(subject, layer, qconfig) if self.has(qconfig) else problem
            except Exception as error:  # noqa: BLE001  a plugin's observer or kernel may raise anything
                found = f"{type(error).__name__}: {error}"
            if found is None:
                return None
            problem = found
        return problem

    def _problem(self, subject: Subject, layer: str, qconfig: QConfig) -> str | None:
        mapping = QConfigMapping(global_qconfig=qconfig)
        outcome = subject.outcome(CASES[layer][0], qconfig.model_dump_json(), mapping)
        (entry,) = outcome.ledger
        accepted = {Status.INT8, Status.REFERENCE} if subject.info.gap("kernels") else {Status.INT8}
        if entry.status not in accepted:
            return f"the ledger has {layer} with {self.wanted} as {entry.status.value} ({entry.reason})"
        if self.channels not in {None, _scales(outcome) > 1}:
            return f"its weight got {_scales(outcome)} scales"
        found = sqnr(outcome.want, outcome.from_kernels)
        return None if found >= _LEAST else f"it keeps {found:.1f} dB, {_LEAST:g} are expected"


def weighted_dtypes(subject: Subject) -> Iterator[DTypeConfig]:
    """The static integer combinations of patterns with a weight, each once, in their order."""
    configs = (each.config for each in subject.backend.entries)
    listed = (config.dtype_configs for config in configs if config.root_module is not None)
    for each in dict.fromkeys(itertools.chain.from_iterable(listed)):
        places = (each.constraints("input").dtype, each.constraints("weight").dtype)
        if not each.is_dynamic and INTEGER_DTYPES.issuperset(places):
            yield each


def _scales(outcome: Outcome) -> int:
    """How many scales the weight of a model with one weight got."""
    found = (each for each in outcome.reference.modules() if isinstance(each, ReferenceModule))
    return max((each.weight_scale.numel() for each in found), default=0)


def _reads(dtypes: frozenset[torch.dtype]) -> Callable[[QConfig], bool]:
    return lambda qconfig: quantized_type(qconfig.input_observer).dtype in dtypes


def _weighs(*schemes: torch.qscheme) -> Callable[[QConfig], bool]:
    return lambda qconfig: quantized_type(qconfig.weight).qscheme in schemes


def _is_affine(qconfig: QConfig) -> bool:
    read = quantized_type(qconfig.input_observer)
    return read.qscheme is torch.per_tensor_affine and read.fixed is None


def _kernels(subject: Subject) -> str | None:
    for name, cases in CASES.items():
        if subject.info.gap(name) is None and _has_kernels(subject, cases[0]):
            return None
    return "nothing that the backend claims runs in a kernel; the ledger has it all as reference"


def _has_kernels(subject: Subject, case: Case) -> bool:
    try:
        return subject.outcome(case).has_kernels
    except Exception:  # noqa: BLE001  what is wrong with it is the business of its own check
        return False


SPECIAL: Mapping[str, Judge] = MappingProxyType(
    {
        "weights.per_channel": _Trial(
            "weights per channel",
            _weighs(torch.per_channel_symmetric, torch.per_channel_affine),
            partial(fitting_qconfig, per_channel=True),
            channels=True,
        ),
        "weights.per_tensor": _Trial(
            "weights per tensor",
            _weighs(torch.per_tensor_symmetric, torch.per_tensor_affine),
            channels=False,
        ),
        "activations.unsigned": _Trial("unsigned activations", _reads(UNSIGNED)),
        "activations.signed": _Trial("signed activations", _reads(SIGNED)),
        "activations.affine": _Trial(
            "activations of any zero point", _is_affine, partial(fitting_qconfig, is_affine=True)
        ),
        "kernels": _kernels,
    }
)
"""By capability, what says why the backend does not have it, or None."""
