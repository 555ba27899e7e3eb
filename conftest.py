"""Makes every test repeatable; at the root, so that the tests of plugins have it too.

Hypothesis tries the same examples in every run unless asked to look for new ones with
``make test ARGS=--hypothesis-profile=dev``.
"""

from __future__ import annotations

import os
import random
import re

import numpy as np
import pytest
import torch
from hypothesis import settings

from fusion_core import errors, registry

# The first example that builds a torch module can take seconds, so no example has a deadline.
settings.register_profile("ci", derandomize=True, deadline=None, max_examples=100)
settings.register_profile("dev", deadline=None, max_examples=400, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def pytest_make_parametrize_id(val: object) -> str | None:
    """Readable names for patterns and other values, the same in every process that collects them."""
    if isinstance(val, str | bytes | int | float | bool | None) or hasattr(val, "__name__"):
        return None
    try:
        return re.sub(r" at 0x[0-9a-f]+", "", str(val))
    except errors.FusionError:  # what a test is about may be that it cannot be shown
        return None


@pytest.fixture(autouse=True, scope="session")
def _fixed_threads() -> None:
    """Float sums depend on how many threads share them: one, so that processes do not get in each other's way."""
    torch.set_num_threads(1)


@pytest.fixture(autouse=True, scope="session")
def _installed_plugins() -> None:
    """The process's registry looks once; it must not look while a test has metadata of its own on the path."""
    registry.backends()


@pytest.fixture(autouse=True)
def _fixed_seeds() -> None:
    random.seed(0)
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002 - the libraries under test draw from this one
