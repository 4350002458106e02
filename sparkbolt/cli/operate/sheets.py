"""Sheets: tables of texts and numbers that fit a terminal.

Which question it answers: which columns of a table are shown at a width, and how are its numbers and times written?
Rule: a number is shown completely or not at all. If a table is too wide, numbers become short first, then names lose
their middle, then the columns that are named last in ``droppable`` are left out, one after the other.

Read before: ``cli.columns``.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass

from sparkbolt.cli.columns import GAP, NAME_MIN, exact, short, shortened
from sparkbolt.core.model.progress import duration

Cell = str | float | None
"""A text as it is, a count, or nothing."""


@dataclass(frozen=True)
class Sheet:
    """A table; the first column has names, texts are left-aligned, numbers and times in milliseconds right-aligned."""

    titles: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    droppable: tuple[str, ...] = ()
    """Titles of columns that may be left out, the least important last."""

    def lines(self, width: int) -> list[str]:
        """The header and the rows, none wider than ``width`` if that is possible at all.

        >>> Sheet(("name", "state", "lag"), (("words", "active", 1_234_567.0),)).lines(40)
        ['name   state         lag', 'words  active  1,234,567']
        >>> Sheet(("name", "state", "lag"), (("words", "active", 1_234_567.0),)).lines(22)
        ['name   state     lag', 'words  active  1.23M']
        """
        longest = max((len(str(row[0])) for row in self.rows), default=0)
        kept = list(self.titles)
        attempts = [(kept, False, longest), (kept, True, longest), (kept, True, max(NAME_MIN, width // 4))]
        for title in reversed(self.droppable):
            kept = [one for one in kept if one != title]
            attempts.append((kept, True, NAME_MIN))
        lines: list[str] = []
        for titles, brief, name_width in attempts:
            lines = self._lines(titles, brief, name_width)
            if all(len(line) <= width for line in lines):
                break
        return lines

    def _lines(self, titles: Sequence[str], brief: bool, name_width: int) -> list[str]:
        places = [self.titles.index(title) for title in titles]
        written = [[_written(row[place], brief) for place in places] for row in self.rows]
        for cells in written:
            cells[0] = shortened(cells[0], name_width)
        texts = [
            any(isinstance(row[place], str) for row in self.rows) and not self.titles[place].endswith(" ms")
            for place in places
        ]
        widths = [max(map(len, cells)) for cells in zip(titles, *written, strict=True)]
        return [
            GAP.join(
                cell.ljust(width) if text else cell.rjust(width)
                for cell, width, text in zip(cells, widths, texts, strict=True)
            ).rstrip()
            for cells in (titles, *written)
        ]


def _written(cell: Cell, brief: bool) -> str:
    if cell is None:
        return ""
    if isinstance(cell, str):
        return cell
    return short(cell) if brief else exact(cell)


def ms_text(ms: float | None) -> str:
    """A latency in milliseconds, in three digits.

    >>> [ms_text(ms) for ms in (None, 0, 0.0213, 0.321, 41.83, 870, 9_100, 31_004, 600_000)]
    ['', '0', '0.021', '0.32', '41.8', '870', '9,100', '31.0 s', '600 s']
    """
    if ms is None:
        return ""
    if ms >= 10_000:
        return f"{ms / 1000:.1f} s" if ms < 100_000 else f"{ms / 1000:,.0f} s"
    if ms >= 99.95 or ms == 0:
        return f"{ms:,.0f}"
    return f"{ms:.1f}" if ms >= 9.995 else f"{ms:.2f}" if ms >= 0.0995 else f"{ms:.3f}"


def ago_text(time_ms: int, now_ms: int) -> str:
    """How long ago a time is.

    >>> ago_text(0, 7_500_000), ago_text(5, 0), ago_text(0, 400_000_000)
    ('2 h 5 min', '0 s', '4 d 15 h')
    """
    secs = max(0, now_ms - time_ms) / 1000
    if secs >= 2 * 86_400:
        return f"{secs // 86_400:.0f} d {secs % 86_400 // 3600:.0f} h"
    return duration(secs)


def bytes_text(count: float) -> str:
    """A size in bytes.

    >>> bytes_text(0), bytes_text(31 << 20), bytes_text(1_400 << 20)
    ('0 MB', '31 MB', '1.4 GB')
    """
    return f"{count / (1 << 30):.1f} GB" if count >= 1000 << 20 else f"{count / (1 << 20):,.0f} MB"


def plain(text: str) -> str:
    r"""A text without what a terminal would obey: control characters become visible; line feeds and tabs stay.

    >>> plain("a\x1b[2J\tb\r")
    'a\\x1b[2J\tb\\r'
    """
    return "".join(
        one if one.isprintable() or one in "\n\t" else one.encode("unicode_escape").decode("ascii") for one in text
    )


def terminal_width() -> int:
    """The width of the terminal in characters; 80 if there is none."""
    return shutil.get_terminal_size((80, 24)).columns
