"""A pluggable backend registry for PyTorch quantization."""

from fusion_core import catalog, kernels
from fusion_core.configs import *
from fusion_core.hookspecs import hookimpl
from fusion_core.passes import calibrate, convert, fuse, lower, prepare, refine, trace, record_of

from fusion_core.patterns import MatchAllNode, Operation, any_of, ops
from fusion_core.quantize import quantize
from fusion_core.registry import backends, get_backend, refresh, register_backend
from fusion_core.configs import BackendInfo, LoweringRule
