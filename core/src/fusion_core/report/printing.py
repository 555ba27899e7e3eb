"""What prints: as text, in colour through rich, and as HTML in a notebook."""

from __future__ import annotations

import io
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterator

from rich.console import Console, RenderableType

_NARROWEST = 60
_FALLBACK = (100, 24)


class Printable(ABC):
    """Base of values that draw themselves with rich; nothing of them is cut off."""

    __slots__ = ()

    def text(self, width: int | None = None) -> str:
        """As plain text.

        Args:
            width: Columns of the text, 60 at least; default those of the terminal.
        """
        wanted = shutil.get_terminal_size(_FALLBACK).columns if width is None else width
        return "\n".join(
            line.rstrip() for line in self._printed(max(wanted, _NARROWEST)).splitlines()
        )

    def __str__(self) -> str:
        return self.text()

    def __rich_console__(self, *_: object) -> Iterator[RenderableType]:
        yield from self._drawn()

    @abstractmethod
    def _drawn(self) -> Iterator[RenderableType]:
        """What is drawn, from top to bottom."""

    def _repr_html_(self) -> str:
        console = Console(file=io.StringIO(), record=True, width=_FALLBACK[0], force_jupyter=False)
        console.print(self)
        return console.export_html(inline_styles=True, code_format="<pre>{code}</pre>")

    def _printed(self, width: int) -> str:
        console = Console(file=io.StringIO(), width=width, color_system=None, force_jupyter=False)
        with console.capture() as printed:
            console.print(self)
        return printed.get()
