"""The pattern grammar: what a pattern is, how it is written, ordered and shown. It knows no graph."""

from fusion_core.patterns.aliases import (
    SPELLINGS,
    Operation,
    as_operator,
    operation_of,
    ops,
    spellings_of,
)
from fusion_core.patterns.authoring import (
    Expression,
    any_arguments,
    any_of,
    any_order,
    call,
    capture,
    chain,
    list_of,
    literal,
    optional,
    where,
)
from fusion_core.patterns.grammar import (
    AnyOf,
    Capture,
    ListOf,
    LiteralValue,
    MatchAllNode,
    Op,
    Operator,
    Pattern,
    Step,
    Where,
    all_parts,
    parts_of,
    with_parts,
)
from fusion_core.patterns.naming import OVERLOAD, PACKET, imported, object_named
from fusion_core.patterns.normalize import normalize_nested, normalize_sequential
from fusion_core.patterns.order import operator_count, operators_in, precedence, wildcard_count
from fusion_core.patterns.parse import parse
from fusion_core.patterns.pickling import by_name, from_name
from fusion_core.patterns.render import render
from fusion_core.patterns.soundness import anchors_of

__all__ = [
    "OVERLOAD",
    "PACKET",
    "SPELLINGS",
    "AnyOf",
    "Capture",
    "Expression",
    "ListOf",
    "LiteralValue",
    "MatchAllNode",
    "Op",
    "Operation",
    "Operator",
    "Pattern",
    "Step",
    "Where",
    "all_parts",
    "anchors_of",
    "any_arguments",
    "any_of",
    "any_order",
    "as_operator",
    "by_name",
    "call",
    "capture",
    "chain",
    "from_name",
    "imported",
    "list_of",
    "literal",
    "normalize_nested",
    "normalize_sequential",
    "object_named",
    "operation_of",
    "operator_count",
    "operators_in",
    "ops",
    "optional",
    "parse",
    "parts_of",
    "precedence",
    "render",
    "spellings_of",
    "where",
    "wildcard_count",
    "with_parts",
]
