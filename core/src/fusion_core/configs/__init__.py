"""What a plugin says, as pydantic models. Configs know no graph and no backend."""

from fusion_core.configs.capabilities import CAPABILITIES
from fusion_core.configs.custom import CustomConfig, Standalone
from fusion_core.configs.dtypes import INTEGER_DTYPES, DTypeConfig, DTypeWithConstraints
from fusion_core.configs.info import API_VERSION, BackendInfo
from fusion_core.configs.lowering import LoweringRule, Replacement, Skip
from fusion_core.configs.observation import Mode, ObservationType
from fusion_core.configs.observers import (
    ObserverFactory,
    ObserverSpec,
    QuantizedType,
    quantized_type,
)
from fusion_core.configs.pattern_config import (
    BackendPatternConfig,
    check_fuser_arity,
    element_count,
)
from fusion_core.configs.qconfig import QConfig, as_qconfig, mode_of
from fusion_core.configs.qconfig_mapping import (
    GLOBAL,
    QConfigMapping,
    Rule,
    as_qconfig_mapping,
    object_type_name,
)

__all__ = [
    "API_VERSION",
    "CAPABILITIES",
    "GLOBAL",
    "INTEGER_DTYPES",
    "BackendInfo",
    "BackendPatternConfig",
    "CustomConfig",
    "DTypeConfig",
    "DTypeWithConstraints",
    "LoweringRule",
    "Mode",
    "ObservationType",
    "ObserverFactory",
    "ObserverSpec",
    "QConfig",
    "QConfigMapping",
    "QuantizedType",
    "Replacement",
    "Rule",
    "Skip",
    "Standalone",
    "as_qconfig",
    "as_qconfig_mapping",
    "check_fuser_arity",
    "element_count",
    "mode_of",
    "object_type_name",
    "quantized_type",
]
