"""The pattern grammar: what a pattern is, how it is written, ordered and shown. It knows no graph."""

from fusion_core.patterns.aliases import Operation, operation_of, ops
from fusion_core.patterns.grammar import (
    Alternatives,
    AnyOf,
    LiteralValue,
    MatchAllNode,
    Op,
    Operator,
    Pattern,
    any_arguments,
    any_of,
)
from fusion_core.patterns.normalize import normalize_nested, normalize_sequential
from fusion_core.patterns.order import operator_count, operators_in, precedence, wildcard_count
from fusion_core.patterns.pickling import by_name, from_name
from fusion_core.patterns.render import render

__all__ = [
    "Alternatives",
    "AnyOf",
    "LiteralValue",
    "MatchAllNode",
    "Op",
    "Operation",
    "Operator",
    "Pattern",
    "any_arguments",
    "any_of",
    "by_name",
    "from_name",
    "normalize_nested",
    "normalize_sequential",
    "operation_of",
    "operator_count",
    "operators_in",
    "ops",
    "precedence",
    "render",
    "wildcard_count",
]
