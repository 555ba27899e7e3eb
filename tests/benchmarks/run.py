"""Runs every benchmark of this folder and prints ratios against the peer in the same run.

Usage: ``python tests/benchmarks/run.py [--json FILE] [--only NAME]``. A benchmark is a module ``bench_*.py`` with
``run()``, which returns rows. One whose peer or model is not installed is skipped by name.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import warnings
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

HERE = Path(__file__).parent


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="write the rows to this file as well")
    parser.add_argument("--only", default="", help="run benchmarks whose name contains this")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    sys.path.insert(0, str(HERE))
    console = Console()
    results: dict[str, Any] = {}
    for path in sorted(HERE.glob("bench_*.py")):
        if options.only not in path.stem:
            continue
        try:
            results[path.stem] = importlib.import_module(path.stem).run()
        except ImportError as error:
            console.print(f"{path.stem}: skipped, {error}")
            continue
        console.print(_table(path.stem, results[path.stem]))
    if options.json:
        options.json.write_text(json.dumps(results, indent=2))


def _table(name: str, rows: list[dict[str, Any]]) -> Table:
    table = Table(title=name)
    for column in dict.fromkeys(key for row in rows for key in row):
        table.add_column(column)
    for row in rows:
        table.add_row(*(_cell(row.get(column.header)) for column in table.columns))
    return table


def _cell(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
