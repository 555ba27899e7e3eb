"""Turns whatever goes wrong inside a plugin into one error that names the plugin."""

from __future__ import annotations

import reprlib
from contextlib import contextmanager
from typing import TYPE_CHECKING

from fusion_core.errors import BackendUnavailableError, PluginError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fusion_core.registry.origin import PluginOrigin

RUN_TIME = "registered at run time"
"""Stands for the distribution of a plugin that was not installed."""

DISABLED_BACKENDS = "FUSION_DISABLED_BACKENDS"
"""Environment variable with the names of installed plugins to leave out, separated by commas."""


def plugin_error(origin: PluginOrigin, problem: str, *, hook: str | None = None) -> PluginError:
    """The error that says which plugin has ``problem`` and what its user can do."""
    if origin.distribution == RUN_TIME:
        remedy = f"Correct the object that was given to register_backend({origin.name!r}, ...)"
    else:
        remedy = (
            f"Upgrade it (pip install --upgrade {origin.distribution}) or tell its authors; "
            f"{DISABLED_BACKENDS}={origin.name} leaves it out"
        )
    return PluginError(
        problem,
        backend=origin.name,
        distribution=origin.distribution,
        version=origin.version,
        hook=hook,
        remedy=remedy,
    )


def unavailable_error(origin: PluginOrigin, missing: str, *, hook: str) -> BackendUnavailableError:
    """The error for a plugin that is right and a machine that lacks ``missing``."""
    remedy = "Choose another backend, or a machine that has it"
    if origin.distribution != RUN_TIME:
        remedy += f"; {DISABLED_BACKENDS}={origin.name} leaves it out"
    return BackendUnavailableError(
        f"it cannot run on this machine: {missing.rstrip('.')}",
        backend=origin.name,
        distribution=origin.distribution,
        version=origin.version,
        hook=hook,
        remedy=remedy,
    )


@contextmanager
def blaming(origin: PluginOrigin, doing: str, *, hook: str | None = None) -> Iterator[None]:
    """Within it, any exception but KeyboardInterrupt becomes a PluginError that chains it.

    SystemExit is no exception to that: a plugin that calls ``sys.exit`` must not end the program.
    """
    try:
        yield
    except KeyboardInterrupt:
        raise
    except BaseException as cause:
        problem = f"{doing} {type(cause).__name__}: {cause}".rstrip(": .")
        raise plugin_error(origin, problem, hook=hook) from cause


def show(value: object) -> str:
    """The repr of a plugin's value, short, and never an error in itself."""
    short = reprlib.Repr()
    short.maxstring = short.maxother = 80
    return short.repr(value)
