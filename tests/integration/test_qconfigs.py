"""Models quantized with PyTorch's own qconfigs, with presets, and with rules of every kind."""

from __future__ import annotations

import pickle

import pytest
import torch
from torch import nn

import fusion_core as core

quantization = pytest.importorskip("torch.ao.quantization")
stock = pytest.importorskip("torch.ao.quantization.qconfig")
mappings = pytest.importorskip("torch.ao.quantization.qconfig_mapping")

QUICK = {"adaptive_rounding": False, "bias_correction": False}


class Net(nn.Module):
    """Convolution, reshape, sigmoid and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.relu = nn.ReLU()
        self.gate = nn.Sigmoid()
        self.head = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = nn.functional.adaptive_avg_pool2d(self.relu(self.conv(x)), 1)
        return self.head(self.gate(x.reshape(x.shape[0], 8)))


class Words(nn.Module):
    """An embedding and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(50, 16)
        self.head = nn.Linear(16, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.words(x))


@pytest.fixture(scope="module")
def net() -> nn.Module:
    torch.manual_seed(0)
    return Net().eval()


@pytest.fixture(scope="module")
def images() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(8, 3, 8, 8, generator=generator) for _ in range(2)]


def ledger(model):
    return {entry.path: entry for entry in core.report(model).ledger if entry.path}


@torch.no_grad()
def close(quantized, model, inputs, *, decibels=20):
    wanted = model(inputs)
    noise = (quantized(inputs) - wanted).pow(2).mean()
    return 10 * torch.log10(wanted.var() / noise) > decibels


@pytest.mark.parametrize(
    ("name", "backend"),
    [("fbgemm", "fbgemm"), ("x86", "fbgemm"), ("qnnpack", "qnnpack"), ("onednn", "qnnpack")],
)
@pytest.mark.filterwarnings("ignore:Default qconfig of oneDNN")
def test_the_default_mappings_of_pytorch_quantize_a_model(net, images, name, backend) -> None:
    mapping = quantization.get_default_qconfig_mapping(name)
    quantized = core.quantize(net, backend, calibration=images, qconfig_mapping=mapping, **QUICK)
    entries = ledger(quantized)
    for path in ("conv", "relu", "head"):
        assert entries[path].status is core.Status.INT8
    assert entries["gate"].mode == "static"
    assert close(quantized, net, images[0])
    (note,) = core.report(quantized).ledger.notes
    assert "types that do not occur in the model: " in note
    assert "layer_norm" in note


def test_the_symmetric_mapping_for_mobile_devices_quantizes_a_model(net, images) -> None:
    # The function has no public name, and is what users of mobile devices are told to take.
    mapping = mappings._get_symmetric_qnnpack_qconfig_mapping()
    quantized = core.quantize(net, "qnnpack", calibration=images, qconfig_mapping=mapping, **QUICK)
    entries = ledger(quantized)
    assert {entries[path].mode for path in ("conv", "relu", "head")} == {"static"}
    assert close(quantized, net, images[0])


def test_a_stock_qconfig_alone_is_for_everything(net, images) -> None:
    for qconfig in (stock.default_qconfig, stock.default_per_channel_qconfig):
        quantized = core.quantize(net, "fbgemm", calibration=images, qconfig=qconfig, **QUICK)
        assert ledger(quantized)["head"].mode == "static"
        assert close(quantized, net, images[0])


@pytest.mark.parametrize(
    ("backend", "qconfig", "types", "mode"),
    [
        ("qnnpack", "default_dynamic_qconfig", {"head": "dynamic"}, "dynamic"),
        ("fbgemm", "float16_dynamic_qconfig", {"head": "weight only"}, "weight_only"),
        ("fbgemm", "float_qparams_weight_only_qconfig", {"words": "weight only"}, "weight_only"),
        ("fbgemm", "float_qparams_weight_only_qconfig_4bit", {"words": "weight only"}, None),
    ],
)
def test_stock_qconfigs_of_the_other_modes_quantize_what_they_are_for(
    backend, qconfig, types, mode
) -> None:
    model, tokens = Words().eval(), torch.arange(50).reshape(5, 10)
    mapping = core.QConfigMapping()
    mapping.set_object_type(
        nn.Embedding if "words" in types else nn.Linear, getattr(stock, qconfig)
    )
    quantized = core.quantize(
        model, backend, mode=mode, example_inputs=(tokens,), qconfig_mapping=mapping
    )
    found = {path: entry.mode for path, entry in ledger(quantized).items() if entry.mode}
    assert found == types
    assert close(quantized, model, tokens)


def test_what_a_backend_has_no_kernel_for_stays_in_float_and_the_numbers_are_told(images) -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3)).eval()
    qconfig = stock.default_quint8_weight_qconfig
    quantized = core.quantize(model, "fbgemm", calibration=images, qconfig=qconfig, **QUICK)
    (entry,) = core.report(quantized).ledger
    assert entry.status is core.Status.FLOAT
    assert "its weight must be torch.qint8, the qconfig gives torch.quint8" in entry.reason
    assert torch.equal(quantized(images[0]), model(images[0]))


def test_a_model_prepared_with_a_mapping_of_pytorch_pickles(net, images) -> None:
    mapping = quantization.get_default_qconfig_mapping("fbgemm")
    fused = core.fuse(core.trace(net, images[0], backend="fbgemm"), "fbgemm")
    prepared = core.prepare(fused, "fbgemm", mapping)
    loaded = pickle.loads(pickle.dumps(prepared))  # noqa: S301  our own bytes
    results = [
        core.lower(core.convert(core.calibrate(each, images))) for each in (prepared, loaded)
    ]
    assert torch.equal(*(each(images[0]) for each in results))


@pytest.mark.parametrize("preset", core.catalog.presets.PRESETS)
def test_every_preset_quantizes_all_of_a_plain_model(images, preset) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 5)).eval()
    quantized = core.quantize(model, "qnnpack", calibration=images, qconfig=preset, **QUICK)
    assert {entry.mode for entry in core.report(quantized).ledger} == {"static"}
    assert close(quantized, model, images[0])


def test_presets_make_different_numbers(net, images) -> None:
    results = [
        core.quantize(net, "qnnpack", calibration=images, qconfig=preset, **QUICK)(images[0])
        for preset in ("per_channel", "per_tensor")
    ]
    assert not torch.equal(*results)


def test_one_operation_may_be_named_among_its_like(images) -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)).eval()
    mapping = core.get_backend("fbgemm").qconfig_mapping
    mapping.set_module_name_object_type_order("", nn.Linear, 1, None)
    quantized = core.quantize(model, "fbgemm", calibration=images, qconfig_mapping=mapping, **QUICK)
    modes = [entry.mode for entry in core.report(quantized).ledger]
    assert modes == ["static", None, "static"]
