"""The kit finds what is wrong with a backend, and nothing wrong with one that is right."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import nn

import fusion_core as core
from fusion_core import catalog
from fusion_core.configs import CAPABILITIES
from fusion_core.nn.fused import LinearReLU

INT8 = core.DTypeConfig(
    input_dtype=torch.quint8, output_dtype=torch.quint8, weight_dtype=torch.qint8
)
NO_CODES = core.DTypeWithConstraints(dtype=torch.quint8, quant_max_upper_bound=-1)


def test_a_backend_that_does_what_it_claims_passes(whole_run):
    run, _ = whole_run
    found = run.matrix["backends"]["acme"]

    assert run.code == 0, run.output
    assert found["totals"] == {
        "supported": 10,
        "gap": len(CAPABILITIES) - 10,
        "failed": 0,
        "not checked": 0,
    }
    assert found["checks"]["passed"] > 150
    assert found["checks"]["failed"] == 0
    assert run.cell("acme", "conv2d") == {"status": "gap", "reason": "the chip has none"}


def test_a_claim_that_does_not_hold_fails_with_what_the_ledger_said(plugin, lacks, checks_of):
    del lacks["conv2d"]
    run = checks_of(plugin(gaps=lacks), "test_capability and conv2d")

    failure = run.failure("test_capability[conv2d]")
    assert run.code == 1
    assert failure.startswith("conv2d is claimed, for it is not among the gaps, and fails")
    assert "the ledger has Conv2d as float (no pattern of acme matches Conv2d here)" in failure
    assert run.cell("acme", "conv2d") == {"status": "failed", "reason": failure}


def test_a_gap_that_works_is_to_be_removed(plugin, lacks, checks_of):
    run = checks_of(plugin(gaps={**lacks, "linear.relu": "not yet"}), "test_capability and linear")

    assert run.code == 1
    assert run.failure("test_capability[linear.relu]") == (
        "linear.relu is declared a gap (not yet), and works: remove it from gaps"
    )


def test_a_gap_by_glob_is_to_be_removed_if_all_of_it_works(plugin, lacks, checks_of):
    run = checks_of(plugin(gaps={**lacks, "linear.b*": "not yet", "conv*": "never"}), "glob")

    check = "test_a_gap_by_glob_has_something_in_it"
    assert "all that it covers works" in run.failure(f"{check}[linear.b*]")
    assert not run.failure(f"{check}[conv*]")


def without_its_bias(_is_qat, linear, _relu):
    layer = nn.Linear(linear.in_features, linear.out_features, bias=False)
    layer.weight = linear.weight
    return LinearReLU(layer, nn.ReLU())


def with_doubled_weight(_is_qat, linear, _relu):
    with torch.no_grad():
        linear.weight.mul_(2)
    return LinearReLU(linear, nn.ReLU())


def frozen(_is_qat, linear, _relu):
    layer = nn.Linear(linear.in_features, linear.out_features).requires_grad_(requires_grad=False)
    layer.load_state_dict(linear.state_dict())
    return LinearReLU(layer, nn.ReLU())


@pytest.mark.parametrize(
    ("fuser", "check", "words"),
    [
        (without_its_bias, "test_fusing_keeps_the_results", "changes the results"),
        (with_doubled_weight, "test_fusing_leaves_the_parts_untouched", "values of linear"),
        (frozen, "test_fusing_keeps_the_gradients", "leaves 0 of 2 trained parameters"),
    ],
    ids=["wrong", "changing", "frozen"],
)
def test_a_fuser_method_that_is_not_what_it_should_be_fails(plugin, checks_of, fuser, check, words):
    pair = core.BackendPatternConfig(
        (nn.Linear, nn.ReLU), fuser_method=fuser, fused_module=LinearReLU
    )
    fused = core.BackendPatternConfig(LinearReLU, dtype_configs=[INT8], root_module=nn.Linear)
    run = checks_of(plugin(fusion_pattern_configs=lambda: [pair, fused]), check)

    assert run.code == 1
    assert words in str(run.matrix["backends"]["acme"]["failures"])


def three_too_many(x, scale, zero_point, low, high, dtype):
    """A kernel that is wrong."""
    codes = core.qops.quantize_per_tensor(x, scale, zero_point, low, high, dtype)
    return (codes.int() + 3).clamp(low, high).to(dtype)


def lower_wrongly(node, _modules):
    return core.Replacement(three_too_many, node.args)


def test_a_kernel_that_is_some_steps_off_fails(plugin, lacks, checks_of):
    del lacks["kernels"]
    rule = core.LoweringRule(
        pattern=core.qops.quantize_per_tensor, lower=lower_wrongly, name="wrong"
    )
    wrong = plugin(gaps=lacks, fusion_lowering_rules=lambda: [rule])
    run = checks_of(wrong, "test_the_kernel_agrees_with_the_reference and linear")

    assert run.code == 1
    failure = run.failure("test_the_kernel_agrees_with_the_reference[linear]")
    assert "quantization steps from those of the reference model, and 1 may be rounding" in failure


def test_a_hook_that_answers_otherwise_the_second_time_fails(plugin, checks_of):
    turns = itertools.count(1)
    moody = plugin(
        fusion_default_qconfig_mapping=lambda: core.QConfigMapping(
            global_qconfig=catalog.static_qconfig(quant_max=255 - next(turns))
        )
    )
    run = checks_of(moody, "test_hooks_answer_alike_when_asked_again")

    check = "test_hooks_answer_alike_when_asked_again[default qconfig mapping]"
    assert "asked twice, its default qconfig mapping differ" in run.failure(check)


def test_a_default_qconfig_that_no_kernel_takes_fails(plugin, checks_of):
    signed = INT8.model_copy(update={"input_dtype": torch.qint8})
    run = checks_of(
        plugin(fusion_pattern_configs=lambda: catalog.linear([signed])),
        "test_the_default_qconfig_fits",
    )

    assert "its input must be torch.qint8, the qconfig gives torch.quint8" in str(run.matrix)


def test_what_needs_a_distribution_is_skipped_for_a_backend_registered_at_run_time(
    plugin, checks_of
):
    run = checks_of(plugin(), "test_importing or test_its_distribution_says")

    assert run.code == 0
    assert run.matrix["backends"]["acme"]["checks"] == {"passed": 0, "failed": 0, "skipped": 8}
    assert "it was registered at run time, and has no distribution to look at" in run.output


def test_an_unknown_backend_is_one_failure_that_names_those_that_exist(run_pytest):
    run = run_pytest("--fusion-backend", "fbgem")

    assert run.code == 1
    assert run.matrix["backends"]["fbgem"]["checks"]["failed"] == 1
    assert "Did you mean 'fbgemm'" in run.failure("test_the_backend_loads")


def test_a_backend_that_the_machine_cannot_run_is_skipped_with_the_reason(plugin, checks_of):
    info = core.BackendInfo(summary="far away", unavailable=lambda: "no chip is plugged in")
    run = checks_of(plugin(fusion_backend_info=lambda: info), "test")

    assert run.code == 0
    assert run.matrix["backends"]["acme"]["checks"]["passed"] == 0
    assert "no chip is plugged in" in run.output


def test_a_class_that_names_no_backend_is_told_so(run_pytest, tmp_path):
    file = tmp_path / "test_nothing.py"
    file.write_text(
        "from fusion_core.testing import BackendConformance\n"
        "class TestNothing(BackendConformance):\n"
        "    pass\n"
    )
    run = run_pytest(file)

    assert run.code == 1
    assert "TestNothing does not say which backend it is about" in run.output


class Doubling(core.nn.reference.Linear):
    """A reference module that is wrong."""

    def forward(self, x):
        return super().forward(x) * 2


class WithoutBias(nn.Linear):
    """A module for training that cannot be turned back into what it was made of."""

    @classmethod
    def from_float(cls, layer, _qconfig):
        return cls(layer.in_features, layer.out_features, bias=False)

    def to_float(self):
        return self


@pytest.mark.parametrize(
    ("fields", "check", "words"),
    [
        (
            {"reference_quantized_module": Doubling},
            "test_the_root_has_a_reference_module",
            "Doubling gives something else than Linear on the dequantized weight",
        ),
        (
            {"qat_module": WithoutBias},
            "test_the_module_for_training_has_the_roots_parameters",
            "what WithoutBias is turned back to has the parameters {'weight': (6, 8)}",
        ),
        (
            {"qat_module": nn.Linear},
            "test_the_module_for_training_has_the_roots_parameters",
            "Linear has no from_float and no to_float",
        ),
        (
            {"dtype_configs": [INT8.model_copy(update={"input_dtype": NO_CODES})]},
            "test_a_fitting_qconfig_is_taken",
            "no observer can keep within",
        ),
    ],
    ids=["reference", "training", "one way", "dtypes"],
)
def test_a_config_that_is_wrong_in_one_field_fails(plugin, checks_of, fields, check, words):
    fields = {"pattern": nn.Linear, "root_module": nn.Linear, "dtype_configs": [INT8], **fields}
    config = core.BackendPatternConfig(**fields)
    run = checks_of(plugin(fusion_pattern_configs=lambda: [config]), check)

    assert run.code == 1, run.output
    assert words in str(run.matrix["backends"]["acme"]["failures"])
