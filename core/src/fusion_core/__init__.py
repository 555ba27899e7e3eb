"""A pluggable backend registry for PyTorch quantization.

::

    import fusion_core as core

    quantized = core.quantize(model, backend="fbgemm", calibration=loader)
    print(core.report(quantized))

Backends are plugins, installed on their own; importing this package imports none of them.
"""

from fusion_core import catalog, errors, kernels, nn, qops
from fusion_core.configs import (
    BackendInfo,
    BackendPatternConfig,
    DTypeConfig,
    DTypeWithConstraints,
    LoweringRule,
    ObservationType,
    ObserverSpec,
    QConfig,
    QConfigMapping,
    Replacement,
    Skip,
)
from fusion_core.hookspecs import hookimpl
from fusion_core.ledger import Ledger, LedgerEntry, Status
from fusion_core.passes import calibrate, convert, fuse, lower, prepare, refine, trace
from fusion_core.patterns import (
    MatchAllNode,
    Operation,
    any_arguments,
    any_of,
    any_order,
    call,
    capture,
    chain,
    list_of,
    literal,
    ops,
    optional,
    parse,
    where,
)
from fusion_core.quantize import quantize
from fusion_core.registry import (
    Backend,
    BackendRecord,
    backends,
    get_backend,
    read_backend,
    refresh,
    register_backend,
)
from fusion_core.report import (
    Explanation,
    Matches,
    Report,
    explain,
    match,
    parameter_bytes,
    report,
)

__all__ = [
    "Backend",
    "BackendInfo",
    "BackendPatternConfig",
    "BackendRecord",
    "DTypeConfig",
    "DTypeWithConstraints",
    "Explanation",
    "Ledger",
    "LedgerEntry",
    "LoweringRule",
    "MatchAllNode",
    "Matches",
    "ObservationType",
    "ObserverSpec",
    "Operation",
    "QConfig",
    "QConfigMapping",
    "Replacement",
    "Report",
    "Skip",
    "Status",
    "any_arguments",
    "any_of",
    "any_order",
    "backends",
    "calibrate",
    "call",
    "capture",
    "catalog",
    "chain",
    "convert",
    "errors",
    "explain",
    "fuse",
    "get_backend",
    "hookimpl",
    "kernels",
    "list_of",
    "literal",
    "lower",
    "match",
    "nn",
    "ops",
    "optional",
    "parameter_bytes",
    "parse",
    "prepare",
    "qops",
    "quantize",
    "read_backend",
    "refine",
    "refresh",
    "register_backend",
    "report",
    "trace",
    "where",
]
