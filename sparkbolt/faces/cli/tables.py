"""Tables of names, texts and counts, which rich lays out.

A row is one line, and a number is shown completely or not at all. If a table is too wide for a terminal, these steps
follow until it fits: numbers become short, names lose their middle, columns with only zeros are left out, and then the
columns that are last in ``droppable``. Output that is not a terminal is never narrowed, also if ``COLUMNS`` is set.
"""

from __future__ import annotations

import io
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, RenderableType
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from sparkbolt.faces.cli.texts import exact, short, shortened

GAP = 2
NAME_MIN = 12
"""A name is not shortened below this number of characters."""
UNLIMITED = 1 << 16
"""A width that no table reaches."""

Cell = str | float | None
"""A text as it is, a count, or nothing."""
Style = Callable[[int, str], str]
"""The style of a cell, by the number of its row and the title of its column."""


@dataclass(frozen=True)
class Sheet:
    """A table; the first column has names, texts are left-aligned, numbers and times in milliseconds right-aligned."""

    titles: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    droppable: tuple[str, ...] = ()
    """Titles of columns that may be left out, the least important last."""
    right: tuple[str, ...] = ()
    """Titles of columns whose texts are right-aligned, too."""

    def lines(self, width: int = UNLIMITED) -> list[str]:
        """The header and the rows, none wider than ``width`` if that is possible at all.

        >>> Sheet(("name", "state", "lag"), (("words", "active", 1_234_567.0),)).lines(40)
        ['name   state         lag', 'words  active  1,234,567']
        >>> Sheet(("name", "state", "lag"), (("words", "active", 1_234_567.0),)).lines(22)
        ['name   state     lag', 'words  active  1.23M']
        """
        return lines_of(self.table(width))

    def table(self, width: int, style: Style | None = None) -> Table:
        """The table for ``width`` characters, with a style for each cell."""
        console = _console()
        table = self._table(self.titles, exact, UNLIMITED, style)
        for titles, write, name_width in self._narrower(width):
            if Measurement.get(console, console.options, table).maximum <= width:
                break
            table = self._table(titles, write, name_width, style)
        return table

    def _narrower(self, width: int) -> Iterator[tuple[Sequence[str], Callable[[float], str], int]]:
        """From the widest on: titles, how numbers are written, and how long names may be."""
        yield self.titles, short, UNLIMITED
        yield self.titles, short, max(NAME_MIN, width // 4)
        yield self.titles, short, NAME_MIN
        left = list(self.titles)
        droppable = [title for title in reversed(self.droppable) if title in left]
        for title in sorted(droppable, key=self._has_counts):
            left.remove(title)
            yield tuple(left), short, NAME_MIN

    def _has_counts(self, title: str) -> bool:
        return any(row[self.titles.index(title)] for row in self.rows)

    def _table(
        self, titles: Sequence[str], write: Callable[[float], str], name_width: int, style: Style | None
    ) -> Table:
        table = _grid(show_header=True)
        places = [self.titles.index(title) for title in titles]
        for title, place in zip(titles, places, strict=True):
            has_text = any(isinstance(row[place], str) for row in self.rows)
            is_text = has_text and not title.endswith(" ms") and title not in self.right
            table.add_column(title, justify="left" if is_text else "right", no_wrap=True)
        for number, row in enumerate(self.rows):
            cells = [_written(row[place], write) for place in places]
            cells[0] = shortened(cells[0], name_width)
            styles = [style(number, title) if style else "" for title in titles]
            table.add_row(*map(Text, cells, styles))
        return table


def _written(cell: Cell, write: Callable[[float], str]) -> str:
    if cell is None:
        return ""
    return " ".join(cell.splitlines()) if isinstance(cell, str) else write(cell)


def _grid(*, show_header: bool) -> Table:
    return Table(box=None, show_header=show_header, header_style="dim", padding=(0, GAP, 0, 0), pad_edge=False)


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of texts as lines, column below column.

    >>> aligned([("lines", "spout"), ("count", "bolt")])
    ['lines  spout', 'count  bolt']
    """
    table = _grid(show_header=False)
    for row in rows:
        table.add_row(*map(Text, row))
    return lines_of(table) if rows else []


def lines_of(shown: RenderableType) -> list[str]:
    """The lines of anything that rich draws, without styles."""
    console = _console()
    console.print(shown)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]


def _console() -> Console:
    return Console(file=io.StringIO(), width=UNLIMITED, color_system=None)


def terminal_width() -> int:
    """The width of the terminal in characters; ``UNLIMITED`` if standard output is none."""
    return shutil.get_terminal_size((UNLIMITED, 24)).columns if sys.stdout.isatty() else UNLIMITED
