"""An installed plugin seen from outside: its metadata, and what importing it does to a fresh process."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import importlib_metadata
import torch
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from fusion_core.registry import Backend
from fusion_core.registry.blame import RUN_TIME
from fusion_core.registry.discovery import GROUP, plugin_name
from fusion_core.testing.outcome import Outcome

SECONDS = 240

# Finds what this process finds. Imports core, then the plugin, both timed; then runs a saved model.
_PROGRAM = """
import json, sys, time, warnings

sys.path[:] = json.loads(sys.argv[1])
start = time.perf_counter()
import fusion_core
import torch
core_seconds = time.perf_counter() - start

package, value, model, data = sys.argv[2:]
before = set(sys.modules)
seen = {"imported by core": package in before}

def refer(value):
    module, _, attribute = value.partition(":")
    __import__(module)
    found = sys.modules[module]
    for name in filter(None, attribute.split(".")):
        found = getattr(found, name)

start = time.perf_counter()
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    refer(value)
seen["ratio"] = (time.perf_counter() - start) / core_seconds
seen["warned"] = [f"{each.category.__name__}: {each.message}" for each in caught]
new = set(sys.modules) - before
seen["modules"] = len(new)
seen["deprecated"] = sorted(name for name in new if name.startswith(("torch.ao", "torch.quantization")))
warnings.simplefilter("ignore")
loaded = torch.load(model, weights_only=False)
with torch.no_grad():
    torch.save(loaded(*torch.load(data)), data)
print(json.dumps(seen))
"""


@dataclass(frozen=True)
class FreshImport:
    """What a fresh process saw.

    Attributes:
        problem: Why it ended early; empty if it did not.
        seen: Its findings, by name.
        output: What the saved model gave there.
    """

    problem: str
    seen: dict[str, Any]
    output: Any


def is_installed(backend: Backend) -> bool:
    """Whether a backend comes from a distribution, not from a call of ``register_backend``."""
    return backend.origins[0].distribution != RUN_TIME


def entry_point_of(backend: Backend) -> importlib_metadata.EntryPoint | None:
    """The entry point by which an installed backend was found."""
    distribution = importlib_metadata.distribution(backend.origins[0].distribution)
    points = distribution.entry_points.select(group=GROUP)
    return next((each for each in points if plugin_name(each.name) == backend.name), None)


def metadata_of(backend: Backend) -> dict[str, str]:
    """What an index would show of the distribution of an installed backend; without it, empty."""
    distribution = importlib_metadata.distribution(backend.origins[0].distribution)
    found = distribution.metadata
    classifiers = found.get_all("Classifier") or []
    licenses = [each for each in classifiers if each.startswith("License ::")]
    needed = [each for each in distribution.requires or () if _is_core(each)]
    return {
        "version": distribution.version or "",
        "summary": found.get("Summary") or "",
        "license": found.get("License-Expression") or found.get("License") or "".join(licenses),
        "requirement of fusion-core": "".join(needed),
    }


def fresh_import(point: importlib_metadata.EntryPoint, outcome: Outcome) -> FreshImport:
    """Import a plugin in a process of its own, and run a model there that this one saved.

    Args:
        point: The plugin's entry point.
        outcome: The model, and its inputs.
    """
    package = point.value.partition(":")[0]
    with tempfile.TemporaryDirectory() as folder:
        model, data = Path(folder) / "model.pt", Path(folder) / "data.pt"
        torch.save(outcome.lowered, model)
        torch.save(outcome.inputs[-1], data)
        arguments = [json.dumps(sys.path), package, point.value, str(model), str(data)]
        done = subprocess.run(  # noqa: S603  this Python, on the program above
            [sys.executable, "-c", _PROGRAM, *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS,
        )
        if done.returncode:
            return FreshImport(done.stderr.strip() or f"exit code {done.returncode}", {}, None)
        return FreshImport("", json.loads(done.stdout.splitlines()[-1]), torch.load(data))


def _is_core(requirement: str) -> bool:
    return str(canonicalize_name(Requirement(requirement).name)) == "fusion-core"
