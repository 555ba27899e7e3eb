"""The table of operations: a name, and everything a model may write for it.

What stands in one row means the same operation with the same leading operands, so a pattern may name
the operation and a rule may read the operands of whatever was written. From this follows:

* A function that *must* be given weights is not the module that owns them: convolution, linear,
  embedding and batch norm have no row, and ``prelu`` is the function alone. The other norms take
  their input first and may be given weights behind their settings; those are the row of their
  modules, and a config says where a function's weights are (``input_type_to_index``).
* A function with its operands in another order is not in the row: ``torch.instance_norm``,
  ``torch.constant_pad_nd``, ``x.where(...)``.
* Settings may differ: a module holds those that a function is given, and ``nn.Flatten`` has another
  default than ``torch.flatten``. A pattern reads the arguments of a call.
* In-place forms are the operation. Dunder methods are there where a trace records them, which it
  does for ``x.__iadd__(y)``, but not for ``x.__add__(y)`` and ``y.__radd__(x)``: those it turns into
  ``operator.add``.
"""

from __future__ import annotations

import operator as python
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  the name everyone knows it by
from torch import nn

aten = torch.ops.aten

# Modules, functions, method names (a string) and aten overloads in one row each. The packets of the
# overloads (``torch.ops.aten.relu``) need no mention.
SPELLINGS: Mapping[str, tuple[Any, ...]] = MappingProxyType(
    {
        # Activations.
        "relu": (
            *(nn.ReLU, F.relu, F.relu_, torch.relu, torch.relu_, "relu", "relu_"),
            *(aten.relu.default, aten.relu_.default),
        ),
        "relu6": (nn.ReLU6, F.relu6, aten.relu6.default, aten.relu6_.default),
        "hardtanh": (
            *(nn.Hardtanh, F.hardtanh, F.hardtanh_),
            *(aten.hardtanh.default, aten.hardtanh_.default),
        ),
        "clamp": (
            *(torch.clamp, torch.clamp_, torch.clip, torch.clip_),
            *("clamp", "clamp_", "clip", "clip_"),
            *(aten.clamp.default, aten.clamp.Tensor, aten.clamp_.default, aten.clamp_.Tensor),
            *(aten.clip.default, aten.clip.Tensor, aten.clip_.default, aten.clip_.Tensor),
        ),
        "clamp_min": (
            *(torch.clamp_min, torch.clamp_min_, "clamp_min", "clamp_min_"),
            *(aten.clamp_min.default, aten.clamp_min.Tensor),
            *(aten.clamp_min_.default, aten.clamp_min_.Tensor),
        ),
        "clamp_max": (
            *(torch.clamp_max, torch.clamp_max_, "clamp_max", "clamp_max_"),
            *(aten.clamp_max.default, aten.clamp_max.Tensor),
            *(aten.clamp_max_.default, aten.clamp_max_.Tensor),
        ),
        "sigmoid": (
            *(nn.Sigmoid, F.sigmoid, torch.sigmoid, torch.sigmoid_, torch.special.expit),
            *("sigmoid", "sigmoid_", aten.sigmoid.default, aten.sigmoid_.default),
            aten.special_expit.default,
        ),
        "hardsigmoid": (
            *(nn.Hardsigmoid, F.hardsigmoid),
            *(aten.hardsigmoid.default, aten.hardsigmoid_.default),
        ),
        "logsigmoid": (nn.LogSigmoid, F.logsigmoid, aten.log_sigmoid.default),
        "tanh": (
            *(nn.Tanh, F.tanh, torch.tanh, torch.tanh_, "tanh", "tanh_"),
            *(aten.tanh.default, aten.tanh_.default),
        ),
        "softmax": (
            *(nn.Softmax, F.softmax, torch.softmax, torch.special.softmax, "softmax"),
            *(aten.softmax.int, aten.special_softmax.default),
        ),
        "log_softmax": (
            *(nn.LogSoftmax, F.log_softmax, torch.log_softmax, torch.special.log_softmax),
            *("log_softmax", aten.log_softmax.int, aten.special_log_softmax.default),
        ),
        "elu": (nn.ELU, F.elu, F.elu_, aten.elu.default, aten.elu_.default),
        "celu": (
            *(nn.CELU, F.celu, torch.celu, torch.celu_),
            *(aten.celu.default, aten.celu_.default),
        ),
        "selu": (
            *(nn.SELU, F.selu, torch.selu, torch.selu_),
            *(aten.selu.default, aten.selu_.default),
        ),
        "leaky_relu": (
            *(nn.LeakyReLU, F.leaky_relu, F.leaky_relu_),
            *(aten.leaky_relu.default, aten.leaky_relu_.default),
        ),
        "prelu": (torch.prelu, "prelu", aten.prelu.default),
        "hardswish": (
            *(nn.Hardswish, F.hardswish, aten.hardswish.default, aten.hardswish_.default),
        ),
        "silu": (nn.SiLU, F.silu, aten.silu.default, aten.silu_.default),
        "gelu": (nn.GELU, F.gelu, aten.gelu.default, aten.gelu_.default),
        "mish": (nn.Mish, F.mish, aten.mish.default, aten.mish_.default),
        "softplus": (nn.Softplus, F.softplus, aten.softplus.default),
        "softsign": (nn.Softsign, F.softsign),
        "glu": (nn.GLU, F.glu, aten.glu.default),
        # Arithmetic of two operands.
        "add": (
            *(python.add, python.iadd, torch.add, "add", "add_", "__iadd__"),
            *(aten.add.Tensor, aten.add.Scalar, aten.add_.Tensor, aten.add_.Scalar),
        ),
        "sub": (
            *(python.sub, python.isub, torch.sub, torch.subtract),
            *("sub", "sub_", "subtract", "subtract_", "__isub__"),
            *(aten.sub.Tensor, aten.sub.Scalar, aten.sub_.Tensor, aten.sub_.Scalar),
            *(aten.subtract.Tensor, aten.subtract.Scalar),
            *(aten.subtract_.Tensor, aten.subtract_.Scalar),
        ),
        # The second operand minus the first.
        "rsub": (torch.rsub, "__rsub__", aten.rsub.Tensor, aten.rsub.Scalar),
        "mul": (
            *(python.mul, python.imul, torch.mul, torch.multiply),
            *("mul", "mul_", "multiply", "multiply_", "__imul__"),
            *(aten.mul.Tensor, aten.mul.Scalar, aten.mul_.Tensor, aten.mul_.Scalar),
            *(aten.multiply.Tensor, aten.multiply.Scalar),
            *(aten.multiply_.Tensor, aten.multiply_.Scalar),
        ),
        # The overloads with a rounding mode are another operation; torch.div with one is refused
        # by every pattern that does not name it.
        "div": (
            *(python.truediv, python.itruediv, torch.div, torch.divide, torch.true_divide),
            *("div", "div_", "divide", "divide_", "true_divide", "true_divide_"),
            *("__itruediv__", "__idiv__"),
            *(aten.div.Tensor, aten.div.Scalar, aten.div_.Tensor, aten.div_.Scalar),
            *(aten.divide.Tensor, aten.divide.Scalar, aten.divide_.Tensor, aten.divide_.Scalar),
            *(aten.true_divide.Tensor, aten.true_divide.Scalar),
            *(aten.true_divide_.Tensor, aten.true_divide_.Scalar),
        ),
        "floor_divide": (
            *(python.floordiv, python.ifloordiv, torch.floor_divide),
            *("floor_divide", "floor_divide_", "__floordiv__", "__ifloordiv__"),
            *(aten.floor_divide.default, aten.floor_divide.Scalar),
            *(aten.floor_divide_.Tensor, aten.floor_divide_.Scalar),
        ),
        "remainder": (
            *(python.mod, python.imod, torch.remainder, "remainder", "remainder_", "__imod__"),
            *(aten.remainder.Tensor, aten.remainder.Scalar),
            *(aten.remainder_.Tensor, aten.remainder_.Scalar),
        ),
        "pow": (
            *(python.pow, python.ipow, torch.pow, "pow", "pow_", "__ipow__"),
            *(aten.pow.Tensor_Scalar, aten.pow.Tensor_Tensor, aten.pow.Scalar),
            *(aten.pow_.Scalar, aten.pow_.Tensor),
        ),
        # torch.max and torch.min are a reduction, one along a dimension (which gives indices too),
        # or elementwise; only their arguments tell. The overloads do tell, and elementwise is
        # maximum, minimum.
        "maximum": (torch.maximum, "maximum", aten.maximum.default, aten.max.other),
        "minimum": (torch.minimum, "minimum", aten.minimum.default, aten.min.other),
        # Products of matrices.
        "matmul": (
            *(python.matmul, python.imatmul, torch.matmul, torch.linalg.matmul),
            *("matmul", aten.matmul.default, aten.linalg_matmul.default),
        ),
        "bmm": (torch.bmm, "bmm", aten.bmm.default),
        "mm": (torch.mm, "mm", aten.mm.default),
        "addmm": (torch.addmm, "addmm", "addmm_", aten.addmm.default, aten.addmm_.default),
        "scaled_dot_product_attention": (
            *(F.scaled_dot_product_attention, aten.scaled_dot_product_attention.default),
        ),
        # Arithmetic of one operand.
        "neg": (
            *(python.neg, torch.neg, torch.neg_, torch.negative, torch.negative_),
            *("neg", "neg_", "negative", "negative_", aten.neg.default, aten.neg_.default),
            *(aten.negative.default, aten.negative_.default),
        ),
        "abs": (
            *(python.abs, torch.abs, torch.abs_, torch.absolute, "abs", "abs_"),
            *("absolute", "absolute_", aten.abs.default, aten.abs_.default),
            *(aten.absolute.default, aten.absolute_.default),
        ),
        "exp": (torch.exp, torch.exp_, "exp", "exp_", aten.exp.default, aten.exp_.default),
        "log": (torch.log, torch.log_, "log", "log_", aten.log.default, aten.log_.default),
        "sqrt": (torch.sqrt, torch.sqrt_, "sqrt", "sqrt_", aten.sqrt.default, aten.sqrt_.default),
        "rsqrt": (
            *(torch.rsqrt, torch.rsqrt_, "rsqrt", "rsqrt_"),
            *(aten.rsqrt.default, aten.rsqrt_.default),
        ),
        # Reductions.
        "mean": (torch.mean, "mean", aten.mean.dim, aten.mean.default),
        "sum": (torch.sum, "sum", aten.sum.dim_IntList, aten.sum.default),
        "max": (torch.max, "max", aten.max.default),
        "min": (torch.min, "min", aten.min.default),
        "amax": (torch.amax, "amax", aten.amax.default),
        "amin": (torch.amin, "amin", aten.amin.default),
        "argmax": (torch.argmax, "argmax", aten.argmax.default),
        # Pooling.
        "max_pool1d": (nn.MaxPool1d, F.max_pool1d, torch.max_pool1d, aten.max_pool1d.default),
        "max_pool2d": (nn.MaxPool2d, F.max_pool2d, torch.max_pool2d, aten.max_pool2d.default),
        "max_pool3d": (nn.MaxPool3d, F.max_pool3d, torch.max_pool3d, aten.max_pool3d.default),
        "avg_pool1d": (nn.AvgPool1d, F.avg_pool1d, aten.avg_pool1d.default),
        "avg_pool2d": (nn.AvgPool2d, F.avg_pool2d, aten.avg_pool2d.default),
        "avg_pool3d": (nn.AvgPool3d, F.avg_pool3d, aten.avg_pool3d.default),
        "adaptive_avg_pool1d": (
            *(nn.AdaptiveAvgPool1d, F.adaptive_avg_pool1d),
            aten.adaptive_avg_pool1d.default,
        ),
        "adaptive_avg_pool2d": (
            *(nn.AdaptiveAvgPool2d, F.adaptive_avg_pool2d),
            aten.adaptive_avg_pool2d.default,
        ),
        "adaptive_avg_pool3d": (
            *(nn.AdaptiveAvgPool3d, F.adaptive_avg_pool3d),
            aten.adaptive_avg_pool3d.default,
        ),
        # The functions of torch and aten give the indices too.
        "adaptive_max_pool1d": (nn.AdaptiveMaxPool1d, F.adaptive_max_pool1d),
        "adaptive_max_pool2d": (nn.AdaptiveMaxPool2d, F.adaptive_max_pool2d),
        "adaptive_max_pool3d": (nn.AdaptiveMaxPool3d, F.adaptive_max_pool3d),
        # Norms.
        "layer_norm": (nn.LayerNorm, F.layer_norm, torch.layer_norm, aten.layer_norm.default),
        "rms_norm": (nn.RMSNorm, F.rms_norm, torch.rms_norm, aten.rms_norm.default),
        "group_norm": (nn.GroupNorm, F.group_norm, torch.group_norm, aten.group_norm.default),
        "instance_norm": (
            *(nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d, F.instance_norm),
        ),
        # What moves values without changing them.
        "cat": (
            *(torch.cat, torch.concat, torch.concatenate),
            *(aten.cat.default, aten.concat.default, aten.concatenate.default),
        ),
        "stack": (torch.stack, aten.stack.default),
        "chunk": (torch.chunk, "chunk", aten.chunk.default),
        # A size or a list of sizes, in the same place; split_with_sizes takes the list.
        "split": (
            *(torch.split, torch.split_with_sizes, "split", "split_with_sizes"),
            *(aten.split.Tensor, aten.split.sizes, aten.split_with_sizes.default),
        ),
        "unbind": (torch.unbind, "unbind", aten.unbind.int),
        "narrow": (torch.narrow, "narrow", aten.narrow.default),
        "flatten": (nn.Flatten, torch.flatten, "flatten", aten.flatten.using_ints),
        "unflatten": (nn.Unflatten, torch.unflatten, "unflatten", aten.unflatten.int),
        "reshape": (torch.reshape, "reshape", "view", aten.view.default, aten.reshape.default),
        "permute": (torch.permute, "permute", aten.permute.default),
        "transpose": (
            *(torch.transpose, torch.swapaxes, torch.swapdims, "transpose", "transpose_"),
            *("swapaxes", "swapaxes_", "swapdims", "swapdims_"),
            *(aten.transpose.int, aten.transpose_.default),
            *(aten.swapaxes.default, aten.swapaxes_.default),
            *(aten.swapdims.default, aten.swapdims_.default),
        ),
        "movedim": (
            *(torch.movedim, torch.moveaxis, "movedim", "moveaxis"),
            *(aten.movedim.int, aten.movedim.intlist, aten.moveaxis.int, aten.moveaxis.intlist),
        ),
        "squeeze": (
            *(torch.squeeze, "squeeze", "squeeze_"),
            *(aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims),
            *(aten.squeeze_.default, aten.squeeze_.dim, aten.squeeze_.dims),
        ),
        "unsqueeze": (
            *(torch.unsqueeze, "unsqueeze", "unsqueeze_"),
            *(aten.unsqueeze.default, aten.unsqueeze_.default),
        ),
        "expand": ("expand", aten.expand.default),
        "repeat": ("repeat", aten.repeat.default),
        "repeat_interleave": (
            *(torch.repeat_interleave, "repeat_interleave"),
            *(aten.repeat_interleave.self_int, aten.repeat_interleave.self_Tensor),
        ),
        "roll": (torch.roll, "roll", aten.roll.default),
        "flip": (torch.flip, "flip", aten.flip.default),
        "pixel_shuffle": (nn.PixelShuffle, torch.pixel_shuffle, aten.pixel_shuffle.default),
        "pixel_unshuffle": (
            *(nn.PixelUnshuffle, torch.pixel_unshuffle, aten.pixel_unshuffle.default),
        ),
        "channel_shuffle": (
            *(nn.ChannelShuffle, torch.channel_shuffle, aten.channel_shuffle.default),
        ),
        "contiguous": ("contiguous", aten.contiguous.default),
        "clone": (torch.clone, "clone", aten.clone.default),
        "detach": (
            *(torch.detach, torch.detach_, "detach", "detach_"),
            *(aten.detach.default, aten.detach_.default),
        ),
        # The modules that pad with anything but a constant are not here: they are F.pad in another
        # mode, and no argument of their calls says so.
        "pad": (
            *(nn.ZeroPad1d, nn.ZeroPad2d, nn.ZeroPad3d),
            *(nn.ConstantPad1d, nn.ConstantPad2d, nn.ConstantPad3d, F.pad, aten.pad.default),
        ),
        # Every mode: nn.Upsample holds what F.interpolate is given, and hands it on. aten has one
        # operator for each mode, with operands of its own; those are other operations.
        "interpolate": (
            *(nn.Upsample, nn.UpsamplingNearest2d, nn.UpsamplingBilinear2d, F.interpolate),
        ),
        "masked_fill": (
            *(torch.masked_fill, "masked_fill", "masked_fill_"),
            *(aten.masked_fill.Scalar, aten.masked_fill.Tensor),
            *(aten.masked_fill_.Scalar, aten.masked_fill_.Tensor),
        ),
        "where": (
            *(torch.where, aten.where.self, aten.where.ScalarOther, aten.where.ScalarSelf),
            aten.where.Scalar,
        ),
        "identity": (nn.Identity,),
        # Whatever they drop in training: in eval mode all of them do nothing.
        "dropout": (
            *(nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout),
            *(nn.FeatureAlphaDropout, F.dropout, F.dropout1d, F.dropout2d, F.dropout3d),
            *(F.alpha_dropout, F.feature_alpha_dropout, torch.dropout, torch.dropout_),
            *(torch.alpha_dropout, torch.alpha_dropout_, torch.feature_dropout),
            *(torch.feature_dropout_, torch.feature_alpha_dropout, torch.feature_alpha_dropout_),
            *(aten.dropout.default, aten.dropout_.default),
            *(aten.alpha_dropout.default, aten.alpha_dropout_.default),
            *(aten.feature_dropout.default, aten.feature_dropout_.default),
            *(aten.feature_alpha_dropout.default, aten.feature_alpha_dropout_.default),
        ),
    }
)
