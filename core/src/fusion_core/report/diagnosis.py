"""What ``doctor`` finds, as values that print."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from fusion_core.report.printing import Printable
from fusion_core.report.tables import table

Health: TypeAlias = Literal["fine", "slow", "unavailable", "disabled", "broken"]

_STYLES: dict[Health, str] = {
    "fine": "green",
    "slow": "yellow",
    "unavailable": "yellow",
    "disabled": "dim",
    "broken": "red",
}


@dataclass(frozen=True, slots=True)
class PluginDiagnosis:
    """How one backend is.

    Attributes:
        name: Name of the backend, or of an extension that cannot be used.
        distribution: What was installed with pip.
        version: Version of the distribution.
        extensions: Names of the plugins that extend it.
        health: ``"fine"``; ``"slow"`` to import; ``"unavailable"`` on this machine, which is no fault
            of the plugin; ``"disabled"`` by the environment; or ``"broken"``.
        problem: What is wrong; empty if nothing is.
        remedy: What to do about it.
        seconds: How long loading it took; None where it was not loaded, or did not come to an end.
    """

    name: str
    distribution: str
    version: str
    extensions: tuple[str, ...]
    health: Health
    problem: str = ""
    remedy: str = ""
    seconds: float | None = None


@dataclass(frozen=True)
class Diagnosis(Printable):
    """What is installed, and what is wrong with it.

    ``print`` shows it as text, ``rich.print`` in colour, a notebook as HTML.

    Attributes:
        versions: Of fusion-core, its plugin interface, torch and Python, and the platform.
        engines: Quantized engines that this build of PyTorch has.
        plugins: One for each backend, and for each extension that cannot be used.
    """

    versions: dict[str, str]
    engines: tuple[str, ...]
    plugins: tuple[PluginDiagnosis, ...]

    @property
    def errors(self) -> tuple[PluginDiagnosis, ...]:
        """The plugins that are broken."""
        return tuple(each for each in self.plugins if each.health == "broken")

    @property
    def warnings(self) -> tuple[PluginDiagnosis, ...]:
        """The plugins that are slow to import, or cannot run on this machine."""
        return tuple(each for each in self.plugins if each.health in {"slow", "unavailable"})

    def to_dict(self) -> dict[str, Any]:
        """Everything it knows, in values that JSON has."""
        return {
            "versions": dict(self.versions),
            "engines": list(self.engines),
            "is_healthy": not self.errors,
            "plugins": [asdict(each) for each in self.plugins],
        }

    def _drawn(self) -> Iterator[RenderableType]:
        for name, version in self.versions.items():
            yield _fact(name, version)
        yield _fact("quantized engines", ", ".join(self.engines) or "none")
        if not self.plugins:
            yield Text(
                "\nNo backend is installed; one for x86 CPUs: pip install fusion-backend-fbgemm"
            )
            return
        drawn = table("Backends", ("", "backend", "distribution", "extensions", "loaded in"))
        for each in self.plugins:
            seconds = "" if each.seconds is None else f"{each.seconds:.1f} s"
            drawn.add_row(
                Text(each.health, style=_STYLES[each.health]),
                Text(each.name),
                Text(f"{each.distribution} {each.version}"),
                Text(", ".join(each.extensions)),
                seconds,
            )
        yield drawn
        for each in self.plugins:
            yield from _finding(each)
        yield Text(self._verdict(), style="red" if self.errors else "green")

    def _verdict(self) -> str:
        if not self.errors:
            return "Nothing is wrong with any plugin."
        count = len(self.errors)
        return f"{count} of {len(self.plugins)} {'is' if count == 1 else 'are'} broken."


def _fact(name: str, value: str) -> Text:
    return Text.assemble((f"{name:<19}", "dim"), value)


def _finding(each: PluginDiagnosis) -> Iterator[RenderableType]:
    """In lines of full width, so that commands are less often broken."""
    if not each.problem:
        return
    yield Text.assemble((each.name, f"bold {_STYLES[each.health]}"), ": ", each.problem)
    if each.remedy:
        yield Padding(Text.assemble(("to do: ", "dim"), each.remedy), (0, 0, 0, 2))
    yield Text("")
