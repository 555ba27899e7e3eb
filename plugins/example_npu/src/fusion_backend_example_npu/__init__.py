"""An imaginary NPU that computes in int8 and shifts: the hooks, which are all that core asks for."""

from __future__ import annotations

from typing import Any

import torch

import fusion_core as core
from fusion_backend_example_npu import chip, residual, rules

# The dtypes that the chip takes. A zero point is always 0, which is what symmetric observers promise.
CODE = core.DTypeWithConstraints(dtype=torch.qint8, zero_point_exact_match=0)
ACTIVATION = core.DTypeConfig(input_dtype=CODE, output_dtype=CODE)
WEIGHTED = ACTIVATION.model_copy(update={"weight_dtype": CODE})


def fits(call: Any) -> core.Skip | None:
    """A constraint says what a pattern cannot; its reason appears in the user's report."""
    module = call.graph.owning_module.get_submodule(call.target)
    conv = next(each for each in module.modules() if isinstance(each, torch.nn.Conv2d))
    is_small = max(conv.kernel_size) in range(6)
    if is_small and conv.dilation == (1, 1) and conv.padding_mode == "zeros":
        return None
    return core.Skip(f"the chip has kernels up to 5x5, no dilation, zero padding; this is {conv}")


@core.hookimpl
def fusion_pattern_configs() -> list[core.BackendPatternConfig]:
    """What becomes one module, where there is a fuser method; what is quantized, where there is none."""
    block = core.BackendPatternConfig(residual.ConvAddReLU, dtype_configs=[WEIGHTED])
    copies = core.BackendPatternConfig(rules.COPIES, dtype_configs=[ACTIVATION])
    copies.set_observation_type(core.ObservationType.OUTPUT_SHARE_OBSERVER_WITH_INPUT)
    convolutions = [block, *core.catalog.conv([WEIGHTED], dims=[2])]
    for config in convolutions:
        config.constraint = None if config.fuser_method else fits
    blocks = (core.BackendPatternConfig(complex_pattern=each) for each in residual.PATTERNS)
    return [*blocks, *convolutions, *core.catalog.linear([WEIGHTED]), copies]


@core.hookimpl
def fusion_fuser_methods() -> dict[Any, Any]:
    """What makes the fused module; the catalog's patterns bring theirs along."""
    return dict.fromkeys(residual.PATTERNS, residual.fuse)


@core.hookimpl
def fusion_root_node_getters() -> dict[Any, Any]:
    """Whose inputs the fused module is given: those of the convolution."""
    return dict.fromkeys(residual.PATTERNS, lambda nodes: residual.operands(nodes)[0][1])


@core.hookimpl
def fusion_extra_inputs_getters() -> dict[Any, Any]:
    """And what besides: the other operand of the sum."""
    return dict.fromkeys(residual.PATTERNS, lambda nodes: [residual.operands(nodes)[1]])


@core.hookimpl
def fusion_lowering_rules() -> list[core.LoweringRule]:
    """What the chip runs; all else stays in reference form, which runs on any machine."""
    return [
        core.LoweringRule(complex_pattern=rules.LAYER, lower=rules.lower_layer, name="layer"),
        core.LoweringRule(complex_pattern=rules.BLOCK, lower=rules.lower_layer, name="block"),
        core.LoweringRule(complex_pattern=rules.COPY, lower=rules.lower_copy, name="copy"),
    ]


@core.hookimpl
def fusion_default_qconfig_mapping() -> core.QConfigMapping:
    """How values are quantized unless the user says otherwise."""
    activation = core.ObserverSpec(chip.ActivationObserver, dtype=torch.qint8)
    # Channels of zeros have a scale too; one below eps would leave no room for a bias.
    weight = core.ObserverSpec(chip.WeightObserver, dtype=torch.qint8, quant_min=-127, eps=2**-16)
    return core.QConfigMapping(global_qconfig=core.QConfig(activation=activation, weight=weight))


@core.hookimpl
def fusion_backend_info() -> core.BackendInfo:
    """Which of core's capabilities the chip lacks, and why; it claims all others."""
    reasons = {
        "it convolves images": "conv1d conv3d conv_transpose*",
        "its kernels are up to 5x5 and without dilation": "conv2d.large conv2d.dilated",
        "it adds to a convolution only, and with a ReLU behind": "add*",
        "its codes lie around zero, with a scale for each output channel": "weights.per_tensor *.unsigned *.affine",
        "it is given integers only": "linear.dynamic weights.float16",
        "it has no unit for that": "mul* matmul cat mean *avg_pool2d batch_norm2d layer_norm "
        "group_norm instance_norm embedding* lstm* gru* rnn_cell softmax tanh *sigmoid hardswish hardtanh "
        "elu leaky_relu prelu relu6 clamp pad interpolate pixel_shuffle",
    }
    gaps = {name: reason for reason, names in reasons.items() for name in names.split()}
    return core.BackendInfo(summary="an imaginary NPU, to be copied", torch=">=2.9", gaps=gaps)
