"""Quantizes every classification network of torchvision and writes what came out into docs/models.md.

Usage: ``python tools/list_models.py [--only NAME] [--write]``. Weights are random with a fixed seed and the batch
norms hold the statistics of noise, so nothing is downloaded. That is harder than trained weights: each layer
passes the errors of all layers before it on.
"""

from __future__ import annotations

import argparse
import re
import time
import warnings
from pathlib import Path
from typing import NamedTuple

import torch
from rich.console import Console
from torch import nn
from torchvision import models

import fusion_core as core

PAGE = Path(__file__).parent.parent / "docs" / "models.md"
BEGIN, END = "<!-- table: begin -->\n", "<!-- table: end -->\n"

LARGEST = 60e6
"""Networks with more parameters are left out."""

SIDE = 96
"""Of the images, except for networks that are built for one size."""

SIDES = {"maxvit_t": 224}


class Row(NamedTuple):
    """One network of the table.

    Attributes:
        name: As torchvision calls it.
        millions: Parameters.
        macs: Share of multiply-accumulates that run in int8.
        ratio: Signal over noise of the logits in decibel, on images that were not calibrated on.
        noisy: The same of the float network when its images carry noise 30 dB below them.
        seconds: From float to int8.
        in_float: Operations with multiply-accumulates that stay in float.
    """

    name: str
    millions: float
    macs: float
    ratio: float
    noisy: float
    seconds: float
    in_float: str


def main() -> None:
    """Quantize what was asked for, print each row, and write the page if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="networks whose name contains this")
    parser.add_argument("--write", action="store_true", help=f"write the table into {PAGE.name}")
    options = parser.parse_args()
    if options.only and options.write:
        parser.error("--write is for the whole table")
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    console = Console(soft_wrap=True)
    rows = []
    for name in sorted(models.list_models(module=models), key=_by_number):
        if options.only not in name:
            continue
        model = _built(name)
        if model is not None:
            rows.append(row(name, model))
            console.print(_line(rows[-1]))
    if options.write:
        before, rest = PAGE.read_text().split(BEGIN)
        PAGE.write_text(before + BEGIN + table(rows) + END + rest.split(END)[1])


def row(name: str, model: nn.Module) -> Row:
    """Quantize ``model`` with the default recipe, but for adaptive rounding, which takes most of the time."""
    side = SIDES.get(name, SIDE)
    measure(model, torch.randn(8, 3, side, side))
    data = [torch.randn(4, 3, side, side) for _ in range(2)]
    started = time.perf_counter()
    quantized = core.quantize(
        model, "fbgemm", calibration=data, adaptive_rounding=False, progress=False
    )
    seconds = time.perf_counter() - started
    images = torch.randn(4, 3, side, side)
    with torch.no_grad():
        want, have = model(images), quantized(images)
    ledger = core.report(quantized).ledger
    left = [each.operation for each in ledger if each.macs and each.status is not core.Status.INT8]
    return Row(
        name,
        sum(each.numel() for each in model.parameters()) / 1e6,
        ledger.macs().fraction,
        decibel(want, have),
        decibel(want, noisy_logits(model, images)),
        seconds,
        ", ".join(f"`{each.rpartition('.')[2]}`" for each in dict.fromkeys(left)),
    )


def decibel(want: torch.Tensor, have: torch.Tensor) -> float:
    """Signal over noise."""
    noise = (want - have).square().sum().clamp(min=1e-30)
    return float(10 * torch.log10(want.square().sum() / noise))


@torch.no_grad()
def noisy_logits(model: nn.Module, images: torch.Tensor) -> torch.Tensor:
    """What the float network makes of ``images``, which are of variance 1, with noise 30 dB below them."""
    logits: torch.Tensor = model(images + 10 ** (-30 / 20) * torch.randn_like(images))
    return logits


@torch.no_grad()
def measure(model: nn.Module, images: torch.Tensor) -> None:
    """Give the batch norms the statistics of ``images``, with everything else as in use."""
    model.eval()
    norms = [each for each in model.modules() if isinstance(each, nn.BatchNorm2d)]
    for norm in norms:
        norm.train()
        norm.momentum = None
    if norms:
        model(images)
    model.eval()


def table(rows: list[Row]) -> str:
    """Markdown."""
    head = (
        "| network | parameters | int8 | SQNR | with noise | seconds | products left in float |",
        "|---|--:|--:|--:|--:|--:|---|",
    )
    return "\n".join((*head, *map(_line, rows))) + "\n"


def _line(row: Row) -> str:
    return (
        f"| {row.name} | {row.millions:.1f} M | {row.macs:.1%} | {row.ratio:.1f} dB "
        f"| {row.noisy:.1f} dB | {row.seconds:.1f} | {row.in_float} |"
    )


def _built(name: str) -> nn.Module | None:
    """The network with random weights; None where it is too large."""
    if models.get_model_weights(name).DEFAULT.meta["num_params"] > LARGEST:
        return None
    torch.manual_seed(0)
    return models.get_model(name, weights=None)


def _by_number(name: str) -> list[tuple[str, int]]:
    """Sorts resnet18 before resnet101."""
    return [(word, int(digits or 0)) for word, digits in re.findall(r"(\D+)(\d*)", name)]


if __name__ == "__main__":
    main()
