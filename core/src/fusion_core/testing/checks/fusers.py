"""Fuser methods and getters do what the passes rely on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.fx import GraphModule

from fusion_core.errors import FuseError
from fusion_core.passes import fuse
from fusion_core.passes.roots import extra_inputs, root_node
from fusion_core.registry import PatternEntry
from fusion_core.testing.looks import changes_between, look
from fusion_core.testing.measures import tensors_in
from fusion_core.testing.require import require
from fusion_core.testing.specimens import Specimen, alone, specimens_of
from fusion_core.testing.subject import Subject

ROUNDING = 1e-4
"""Part of the largest value by which results may differ; folding rounds weights once to float32."""

_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


class FuserChecks:
    """Each check is run on each pattern that has a fuser method."""

    def test_fusing_keeps_the_results(self, subject: Subject, fusing: PatternEntry) -> None:
        """The fused model gives what the model gave, but for rounding."""
        for each in _fused(subject, fusing):
            inputs, text = each.specimen.example.inputs, each.specimen.example.text
            with torch.no_grad():
                want, have = each.specimen.graph(*_clones(inputs)), each.model(*_clones(inputs))
            _require_close(want, have, f"fusing {text} changes the results")

    def test_fusing_keeps_the_gradients(self, subject: Subject, fusing: PatternEntry) -> None:
        """Those of the inputs, and where no batch norm is folded those of the parameters."""
        for each in _fused(subject, fusing):
            specimen, text = each.specimen, each.specimen.example.text
            before, after = _gradients(specimen.graph, specimen), _gradients(each.model, specimen)
            _require_close(
                before[0], after[0], f"fusing {text} changes the gradients of its inputs"
            )
            if any(isinstance(module, _NORMS) for module in specimen.graph.modules()):
                continue
            require(
                len(before[1]) == len(after[1]),
                f"fusing {text} leaves {len(after[1])} of {len(before[1])} trained parameters",
            )
            _require_close(
                before[1], after[1], f"fusing {text} changes the gradients of its parameters"
            )

    def test_fusing_gives_the_type_it_promises(
        self, subject: Subject, fusing: PatternEntry
    ) -> None:
        """One module of the config's ``fused_module`` is put in."""
        wanted = fusing.config.fused_module or nn.Module
        for each in _fused(subject, fusing):
            old = set(each.specimen.graph.modules())
            new = [module for module in _called(each.model) if module not in old]
            require(
                len(new) == 1 and isinstance(new[0], wanted),
                f"fusing {each.specimen.example.text} puts in "
                f"{[type(module).__name__ for module in new]}, not one {wanted.__name__}",
            )

    def test_fusing_leaves_the_parts_untouched(
        self, subject: Subject, fusing: PatternEntry
    ) -> None:
        """A fuser method returns a new module and changes none that it is given."""
        for each in _fused(subject, fusing):
            require(
                not each.changes,
                f"fusing {each.specimen.example.text} changed the modules it was given: "
                f"{'; '.join(each.changes)}",
            )

    def test_root_and_extra_inputs_are_where_they_must_be(
        self, subject: Subject, fusing: PatternEntry
    ) -> None:
        """The root is a module call of the match, the extra inputs are nodes outside of it."""
        for specimen in specimens_of(subject, fusing):
            match = specimen.match(fusing)
            if match is None:
                continue
            try:
                root, _ = root_node(match), extra_inputs(match)
            except FuseError as error:
                pytest.fail(str(error), pytrace=False)
            require(
                specimen.calls.module(root) is not None,
                f"at {specimen.example.text} its root node {root.name} calls no module",
            )


@dataclass(frozen=True)
class _Fused:
    """A specimen and its fused form.

    Attributes:
        specimen: The specimen.
        model: What fuse made of it.
        changes: What fusing changed in the specimen, in words.
    """

    specimen: Specimen
    model: GraphModule
    changes: tuple[str, ...]


def _fused(subject: Subject, entry: PatternEntry) -> list[_Fused]:
    """The specimens that are fused; skips the check where the plugin declines them all."""
    tried: list[_Fused] = subject.kept(("fused", id(entry)), lambda: _tried(subject, entry))
    done = [
        each for each in tried if list(_called(each.model)) != list(_called(each.specimen.graph))
    ]
    if not done:
        pytest.skip(f"it is fused in none of its examples: {_why_not(tried[0].model)}")
    return done


def _tried(subject: Subject, entry: PatternEntry) -> list[_Fused]:
    single, tried = alone(subject.backend, entry), []
    for specimen in specimens_of(subject, entry):
        before = look(specimen.graph)
        model = fuse(specimen.graph, single)
        tried.append(_Fused(specimen, model, changes_between(before, look(specimen.graph))))
    return tried


def _why_not(fused: GraphModule) -> str:
    ledger: Any = fused.fusion_record.ledger  # type: ignore[union-attr]  # which fuse has put there
    return next((str(entry.near_miss) for entry in ledger if entry.near_miss), "no match")


def _called(model: GraphModule) -> Iterator[nn.Module]:
    for node in model.graph.nodes:
        if node.op == "call_module":
            yield model.get_submodule(str(node.target))


def _gradients(model: GraphModule, specimen: Specimen) -> tuple[list[Tensor], list[Tensor]]:
    """Gradients of the outputs' sum by the float inputs, and by the parameters in order of shape."""
    leaves = [
        each.requires_grad_(each.is_floating_point()) for each in _clones(specimen.example.inputs)
    ]
    # Copies, because what is given may be changed in place, and a leaf may not.
    outputs = [each for each in tensors_in(model(*_clones(leaves))) if each.requires_grad]
    trained = [each for each in model.parameters() if each.requires_grad]
    wanted = [*(each for each in leaves if each.requires_grad), *trained]
    if not outputs or not wanted:
        return [], []
    # The square, because what is added to every value has a gradient that does not depend on it.
    total = torch.stack([each.square().sum() for each in outputs]).sum()
    found = torch.autograd.grad(total, wanted, allow_unused=True, materialize_grads=True)
    of_inputs, of_parameters = found[: len(wanted) - len(trained)], found[-len(trained) or None :]
    if not trained:
        return list(of_inputs), []
    return list(of_inputs), sorted(
        of_parameters, key=lambda each: (each.numel(), float(each.sum()))
    )


def _clones(inputs: Sequence[Tensor]) -> list[Tensor]:
    return [each.clone() for each in inputs]


def _require_close(want: Any, have: Any, message: str) -> None:
    pairs = zip(tensors_in(want), tensors_in(have), strict=True)
    for one, other in pairs:
        require(
            one.shape == other.shape and one.dtype == other.dtype,
            f"{message}: {other.dtype} of {tuple(other.shape)} and not {one.dtype} of "
            f"{tuple(one.shape)}",
        )
        allowed = ROUNDING * float(one.detach().abs().max()) + torch.finfo(torch.float32).eps
        worst = float((one.detach().double() - other.detach().double()).abs().max())
        require(
            worst <= allowed,
            f"{message}: they differ by {worst:.2g}, and {allowed:.2g} is rounding",
        )
