"""Small files, small functions: prints the lengths, and fails beyond the hard limits."""

from __future__ import annotations

import ast
from statistics import median, quantiles

import pytest

FILE_LIMIT = 400
FUNCTION_LIMIT = 60


@pytest.fixture(scope="module")
def files(core_sources, plugin_sources) -> dict[str, int]:
    return {str(source): len(source.text.splitlines()) for source in core_sources + plugin_sources}


@pytest.fixture(scope="module")
def functions(core_sources, plugin_sources) -> dict[str, int]:
    return {
        f"{source}:{node.lineno} {node.name}": node.end_lineno - node.lineno + 1
        for source in core_sources + plugin_sources
        for node in ast.walk(source.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def table(title: str, lengths: dict[str, int], longest: int = 5) -> str:
    ordered = sorted(lengths.items(), key=lambda item: -item[1])
    counts = [count for _, count in ordered]
    p90 = quantiles(counts, n=10)[-1]
    rows = [f"{count:>6}  {name}" for name, count in ordered[:longest]]
    head = f"{title}: {len(counts)}, median {median(counts):.0f}, p90 {p90:.0f} lines; the longest:"
    return "\n".join([head, *rows])


def beyond(lengths: dict[str, int], limit: int) -> list[str]:
    return [f"{name}: {count} lines" for name, count in lengths.items() if count > limit]


def test_the_lengths_are_printed(files, functions, capsys) -> None:
    with capsys.disabled():
        print("", table("files", files), table("functions", functions), sep="\n")  # noqa: T201


def test_no_file_is_longer_than_its_limit(files) -> None:
    assert not beyond(files, FILE_LIMIT)


def test_no_function_is_longer_than_its_limit(functions) -> None:
    assert not beyond(functions, FUNCTION_LIMIT)
