"""Where in a match the weight sits, and how its modules are handed to a fuser method."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch.fx import Node

from fusion_core.configs import element_count
from fusion_core.errors import FuseError
from fusion_core.matcher import Match, NodePattern
from fusion_core.registry import PatternEntry


def root_node(match: Match[PatternEntry]) -> Node:
    """The node whose module is replaced: what the config's getter picks, else the last along last elements.

    Raises:
        FuseError: The getter failed, or picked no node of the match.
    """
    getter = match.entry.config.root_node_getter
    if getter is None:
        found: Any = match.node_pattern
        while isinstance(found, tuple):
            found = found[-1]
        return found if found in match.nodes else match.anchor
    found = call_plugin(match, "root-node getter", getter, match.node_pattern)
    if found not in match.nodes:
        raise FuseError(
            blame(match, f"its root-node getter returned {found!r}, which is no node of the match")
        )
    return found  # type: ignore[no-any-return]  # in match.nodes, so a Node


def extra_inputs(match: Match[PatternEntry]) -> tuple[Node, ...]:
    """The fused module's further inputs.

    Raises:
        FuseError: The getter failed, or returned what is not a sequence of nodes outside the match.
    """
    getter = match.entry.config.extra_inputs_getter
    if getter is None:
        return ()
    found = call_plugin(match, "extra-inputs getter", getter, match.node_pattern)
    fits = isinstance(found, Sequence) and all(
        isinstance(each, Node) and each not in match.nodes for each in found
    )
    if not fits:
        raise FuseError(
            blame(match, f"its extra-inputs getter returned {found!r}, not a list of input nodes")
        )
    return tuple(found)


def call_plugin(
    match: Match[PatternEntry], what: str, function: Callable[..., Any], *args: Any
) -> Any:
    """Call a plugin's function; what it raises is chained to an error that names plugin, pattern and node.

    Raises:
        FuseError: The function raised.
    """
    try:
        return function(*args)
    except Exception as error:
        problem = f"its {what} raised {type(error).__name__}: {error}"
        raise FuseError(blame(match, problem)) from error


def blame(match: Match[PatternEntry], problem: str) -> str:
    """``problem``, with plugin, pattern and node in front."""
    return f"{match.entry} at node {match.anchor.name}: {problem}"


def fuser_arguments(
    match: Match[PatternEntry], as_argument: Callable[[Node], Any]
) -> tuple[Any, ...]:
    """What the fuser method gets for each element of the pattern's tuple, in the order the user wrote it.

    Args:
        match: The match.
        as_argument: The object that stands for a node.
    """
    config, part = match.entry.config, match.node_pattern
    if config.complex_pattern is not None:
        return tuple(_mapped(each, as_argument) for each in part)
    chain: list[Any] = []
    for _ in range(element_count(config) - 1):
        chain.append(_mapped(part[0], as_argument))
        part = part[1]
    chain.append(_mapped(part, as_argument))
    return tuple(reversed(chain))


def _mapped(part: NodePattern, as_argument: Callable[[Node], Any]) -> Any:
    if isinstance(part, (tuple, list)):
        return type(part)(_mapped(each, as_argument) for each in part)
    return as_argument(part) if isinstance(part, Node) else part
