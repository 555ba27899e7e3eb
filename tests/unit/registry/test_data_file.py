"""A backend may be a file of data; what is wrong in it is said with file and table."""

from __future__ import annotations

import json
import re

import pytest
import torch
from torch import nn

import fusion_core as core
from fusion_core import errors
from fusion_core.configs import BackendInfo, QConfig, QConfigMapping
from fusion_core.nn import MinMaxObserver
from fusion_core.patterns import parse

ACME = """
[info]
summary = "int8 for the Acme NPU"
torch = ">=2.9"

[[patterns]]
pattern = "Conv2d -> BatchNorm2d -> relu"
fuser_method = "fusion_core.catalog.fusers.fuse_batch_norm_activation"

[[patterns]]
pattern = "fusion_core.nn.fused.ConvReLU2d"
root_module = "torch.nn.Conv2d"
priority = 1

    [[patterns.dtype_configs]]
    input_dtype = "quint8"
    output_dtype = "quint8"
    weight_dtype = { dtype = "qint8", quant_min_lower_bound = -127, quant_max_upper_bound = 127 }

[[lowering_rules]]
complex_pattern = "relu(fusion_core.qops.dequantize_per_tensor(...))"
lower = "torch.nn.Identity"
name = "nothing"

[qconfig.global_qconfig]
activation = { observer = "fusion_core.nn.MinMaxObserver", options = { dtype = "torch.quint8" } }

    [qconfig.global_qconfig.weight]
    observer = "fusion_core.nn.PerChannelMinMaxObserver"

        [qconfig.global_qconfig.weight.options]
        dtype = "torch.qint8"
        qscheme = "torch.per_channel_symmetric"
        quant_min = -127
        quant_max = 127
        ch_axis = 0
"""


@pytest.fixture
def written(tmp_path):
    """Writes a file, and gives its path."""

    def write(text, name="acme.toml"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


@pytest.fixture
def registered():
    """Registers plugins until the test ends."""
    undo = []
    yield lambda name, plugin: undo.append(core.register_backend(name, plugin))
    for each in reversed(undo):
        each()


def test_a_file_says_what_a_module_with_hooks_would(written, registered):
    plugin = core.read_backend(written(ACME))
    registered("acme", plugin)
    backend = core.get_backend("acme")
    assert backend.info == BackendInfo(summary="int8 for the Acme NPU", torch=">=2.9")
    assert [entry.pattern for entry in backend.entries] == [
        parse("fusion_core.nn.fused.ConvReLU2d"),
        parse("Conv2d -> BatchNorm2d -> relu"),
    ]
    assert backend.entries[0].config.root_module is nn.Conv2d
    assert [rule.label for rule in backend.lowering] == ["acme: nothing"]
    assert backend.qconfig_mapping.global_qconfig.activation.observer is MinMaxObserver
    assert repr(plugin).endswith("acme.toml')")


def test_a_backend_without_code_quantizes_a_block_to_reference_form(written, registered):
    registered("acme", core.read_backend(str(written(ACME))))
    block = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()).eval()
    data = [torch.randn(2, 3, 8, 8) for _ in range(4)]
    quantized = core.quantize(block, backend="acme", calibration=data, reference=True)
    ledger = core.report(quantized).ledger
    assert {entry.status.value for entry in ledger} == {"reference"}
    assert any(isinstance(each, core.nn.reference.Conv2d) for each in quantized.modules())
    error = (quantized(data[0]) - block(data[0])).abs().max()
    assert error < 0.05 * block(data[0]).abs().max()


def test_json_says_the_same_as_toml(written, registered):
    tables = {
        "info": {"summary": "as JSON"},
        "patterns": [{"pattern": "Conv2d -> relu", "fuser_method": None}],
        "qconfig": {"global_qconfig": None},
    }
    registered("acme", core.read_backend(written(json.dumps(tables), "acme.json")))
    backend = core.get_backend("acme")
    assert backend.info.summary == "as JSON"
    assert backend.qconfig_mapping == QConfigMapping()
    assert [str(entry.config) for entry in backend.entries] == [
        "BackendPatternConfig(Conv2d -> relu)"
    ]


def test_a_file_may_extend_a_backend(written, registered):
    registered("acme", core.read_backend(written(ACME)))
    more = "[[patterns]]\npattern = 'Linear'\n"
    registered("acme.more", core.read_backend(written(more, "more.toml")))
    assert parse("Linear") in [entry.pattern for entry in core.get_backend("acme").entries]


def test_a_file_without_patterns_is_no_backend(written, registered):
    registered("acme", core.read_backend(written("[info]\n")))
    with pytest.raises(errors.PluginError, match="lacks the one hook every backend has"):
        core.get_backend("acme")


def qconfig() -> QConfig:
    return core.catalog.static_qconfig(weight_min=-127)


def mapping() -> QConfigMapping:
    return QConfigMapping(global_qconfig=qconfig())


@pytest.mark.parametrize("function", [qconfig, mapping])
def test_the_qconfig_may_be_what_a_function_returns(written, registered, function):
    name = f"qconfig = '{__name__}.{function.__name__}'\n"
    registered("acme", core.read_backend(written(name + ACME.partition("[qconfig")[0])))
    assert core.get_backend("acme").qconfig_mapping == mapping()


def test_qconfigs_by_type_go_by_name(written, registered):
    by_type = {
        "torch.nn.Linear": None,
        "torch.nn.functional.linear": qconfig().model_dump(mode="json"),
        "matmul": None,
    }
    tables = {"patterns": [], "qconfig": {"object_type_qconfigs": by_type}}
    registered("acme", core.read_backend(written(json.dumps(tables), "acme.json")))
    assert core.get_backend("acme").qconfig_mapping.object_type_qconfigs == {
        nn.Linear: None,
        nn.functional.linear: qconfig(),
        "matmul": None,
    }


def test_further_mappings_go_by_name(written, registered):
    tables = {
        "patterns": [],
        "qconfigs": {"none": {"global_qconfig": None}, "fast": f"{__name__}.qconfig"},
    }
    registered("acme", core.read_backend(written(json.dumps(tables), "acme.json")))
    assert core.get_backend("acme").qconfig_mappings == {
        "fast": mapping(),
        "none": QConfigMapping(),
    }


FUSER = "fuser_method = 'fusion_core.catalog.fusers.fuse_batch_norm'"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[info]\nsummary = \n", "line 2"),
        (b"\xff\xfe", "codec can't decode"),
        ("", "it has none of the tables info, patterns, lowering_rules, qconfig"),
        ("[inof]\n", "there is no table 'inof'; did you mean info?"),
        ("[[patern]]\n", "there is no table 'patern'; did you mean patterns?"),
        ("colour = 1\n", "there is no table 'colour'; there are info, patterns"),
        ("[info]\nsumary = 'x'\n", "info: there is no field 'sumary'; did you mean summary?"),
        ("[info]\ntorch = 'nine'\n", "info: field torch: 'nine' is not a version specifier"),
        ("info = 3\n", "info: Input should be an object"),
        ("[patterns]\n", "patterns is not an array of tables; in TOML, write [[patterns]]"),
        ("patterns = [3]\n", "patterns[0]: Input should be an object"),
        ("[[patterns]]\n", "patterns[0]: None is not a valid pattern"),
        ("[[patterns]]\npattern = 3\n", "patterns[0]: 3 is not a valid pattern"),
        (
            "[[patterns]]\npattern = 'relu'\n[[patterns]]\npattern = 'relo'\n",
            "patterns[1]: 'relo' is not a valid pattern: column 1: torch.nn has no 'relo'; near",
        ),
        (
            f"[[patterns]]\npattern = 'relu'\n{FUSER.replace('method', 'metod')}\n",
            "patterns[0]: there is no field 'fuser_metod'; did you mean fuser_method",
        ),
        (
            f"[[patterns]]\npattern = 'Conv2d -> BatchNorm2d -> relu'\n{FUSER}\n",
            "patterns[0]: fuser method of Conv2d",
        ),
        (
            "[[patterns]]\npattern = 'relu'\nfuser_method = 'no.such.function'\n",
            "patterns[0]: field fuser_method: 'no.such.function' cannot be imported",
        ),
        (
            "[[patterns]]\npattern = 'relu'\ndtype_configs = [{ input_dtyp = 'quint8' }]\n",
            "patterns[0]: there is no field 'dtype_configs.0.input_dtyp'; did you mean input_dtype",
        ),
        (
            "[[patterns]]\npattern = 'relu'\ndtype_configs = [{ input_dtype = 'quint9' }]\n",
            "field dtype_configs.0.input_dtype: 'quint9' is not a torch dtype",
        ),
        (
            "[[patterns]]\npattern = 'relu'\nobservation_type = 'share'\n",
            "field observation_type: Input should be 'separate', 'shared' or 'none'",
        ),
        ("[[patterns]]\npattern = 'relu'\npriority = 1979-05-27\n", "patterns[0]: field priority"),
        (
            "[[lowering_rules]]\nlower = 'torch.relu'\n",
            "lowering_rules[0]: None is not a valid pattern: a lowering rule has either",
        ),
        ("[[lowering_rules]]\npattern = 'relu'\n", "lowering_rules[0]: field lower: Field req"),
        ("qconfig = 'no.such'\n", "qconfig: 'no.such' cannot be imported"),
        ("qconfig = 'torch.float32'\n", "torch.float32 is neither a type nor a function"),
        ("qconfig = 3\n", "qconfig: Input should be an object"),
        ("qconfigs = 3\n", "qconfigs is not a table; in TOML, write [qconfigs.<name>]"),
        ("[qconfigs.fast]\nglobal = 1\n", "qconfigs.fast: there is no field 'global'"),
        (
            "[qconfig.object_type_qconfigs.'torch.nn.Liner']\n"  # noqa: ISC004  one file
            "activation.observer = 'fusion_core.nn.MinMaxObserver'\n"
            "weight.observer = 'fusion_core.nn.MinMaxObserver'\n",
            "qconfig.object_type_qconfigs: there is no 'torch.nn.Liner'",
        ),
    ],
)
def test_what_is_wrong_is_said_with_file_and_table(written, text, problem):
    path = written(text)
    with pytest.raises(errors.BackendFileError, match=re.escape(problem)) as caught:
        core.read_backend(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert caught.value.path == path


@pytest.mark.parametrize(
    ("text", "name", "problem"),
    [
        ("{", "acme.json", "line 1 column 2"),
        ("[]", "acme.json", "it holds a list, not an object with keys"),
        ("", "acme.yaml", "its name ends in none of .toml, .json"),
    ],
)
def test_a_file_of_another_kind_is_refused(written, text, name, problem):
    with pytest.raises(errors.BackendFileError, match=re.escape(problem)):
        core.read_backend(written(text, name))


def test_a_file_that_is_not_there_is_not_found(tmp_path):
    with pytest.raises(FileNotFoundError):
        core.read_backend(tmp_path / "acme.toml")
