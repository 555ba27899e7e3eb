"""Commands about a model: ``explain`` and ``coverage``."""

from __future__ import annotations

from typing import Annotated

import typer
from torch import nn

import fusion_core as core
from fusion_core.cli.output import Answer, Json, answering
from fusion_core.cli.target import Inputs, load_model, read_inputs
from fusion_core.errors import ModelTargetError

Target = Annotated[
    str,
    typer.Argument(
        metavar="MODULE:FACTORY",
        help="A model, or what is called to make one: nets:build or nets.py:build. It returns the "
        "model, or a pair of the model and one input.",
    ),
]
Shapes = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        metavar="SHAPE[:DTYPE]",
        help="One input of the model, such as 1x3x224x224 or 1x16:int64; again for each further one.",
    ),
]


@answering
def explain(
    target: Target,
    node: Annotated[
        str | None,
        typer.Argument(metavar="NODE", help="Explain this node, or module, alone and in full."),
    ] = None,
    *,
    backend: Annotated[str, typer.Option("--backend", metavar="NAME", help="Name of a backend.")],
    shapes: Shapes = None,
    full: Annotated[
        bool, typer.Option("--full", help="Show all candidates, not but the nearest.")
    ] = False,
    _as_json: Json = False,
) -> Answer:
    """Say why each operation of a model is quantized with a backend, or why it is not."""
    chosen = core.get_backend(backend)
    model, inputs = _model(target, shapes)
    found = core.explain(model, chosen, node, example_inputs=inputs)
    return Answer(found.expanded() if full else found, found.to_dict())


@answering
def coverage(
    target: Target,
    *,
    backends: Annotated[
        list[str] | None,
        typer.Option(
            "--backend", metavar="NAME", help="A backend; again for each further one. Default: all."
        ),
    ] = None,
    shapes: Shapes = None,
    _as_json: Json = False,
) -> Answer:
    """Compare how much of a model each backend would quantize; the model is not run on data."""
    chosen = [core.get_backend(each) for each in backends] if backends else None
    model, inputs = _model(target, shapes)
    if inputs is None:
        problem = (
            "one input is needed: --input 1x3x224x224, or a factory that returns (model, inputs)"
        )
        raise ModelTargetError(target, problem)
    found = core.coverage(model, chosen, example_inputs=inputs)
    return Answer(found, found.to_dict())


def _model(target: str, shapes: list[str] | None) -> tuple[nn.Module, Inputs]:
    given = read_inputs(shapes) if shapes else None
    model, inputs = load_model(target)
    return model, inputs if given is None else given
