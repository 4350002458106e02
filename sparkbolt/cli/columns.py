"""Columns: tables of counters that fit a terminal.

Which question it answers: which columns are shown at a width, and how are numbers and names written?
Rule: a number or a header is shown completely or not at all. If a table is too wide, it is narrowed in this order: long
names lose their middle, exact numbers become short ones, columns with only zeros are dropped, the least important
columns are dropped.

Read before: nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

GAP = "  "
NAME_MIN = 12
"""A name is not shortened below this number of characters."""
DROPPED = ("late", "errors", "failed", "pending")
"""Columns that are dropped first if all their values are zero."""
LEFT_OUT = ("tuples/s", "pending", "errors", "emitted", "late", "failed", "executed")
"""Columns that are dropped then, in this order."""
_UNITS = ("", "k", "M", "B", "T")


def exact(number: float) -> str:
    """A number with all its digits.

    >>> exact(12_345_678)
    '12,345,678'
    """
    return f"{number:,.0f}"


def short(number: float) -> str:
    """A number in at most six characters, if it is less than a thousand trillions.

    >>> [short(number) for number in (0, 9_999, 12_345, 632_012, 1_234_567, 98_765_432, 999_999_999)]
    ['0', '9,999', '12.3k', '632k', '1.23M', '98.8M', '1.00B']
    """
    if number < 9_999.5:
        return f"{number:,.0f}"
    unit, scaled = 0, float(number)
    while scaled >= 999.5 and unit < len(_UNITS) - 1:
        scaled /= 1000
        unit += 1
    digits = 2 if scaled < 9.995 else 1 if scaled < 99.95 else 0
    return f"{scaled:,.{digits}f}{_UNITS[unit]}"


def shortened(name: str, width: int) -> str:
    """A name; without its middle if it is longer than ``width``.

    >>> shortened("enrich-customers-by-region", 13)
    'enrich…region'
    """
    if len(name) <= width:
        return name
    head = width // 2
    return f"{name[:head]}…{name[len(name) - (width - head - 1) :]}"


@dataclass(frozen=True)
class Counters:
    """The counters of one component; a value of None means that it has no such counter."""

    name: str
    values: Mapping[str, float | None]


@dataclass(frozen=True)
class Table:
    """A table as text: its header, and a row of cells for each component."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    widths: tuple[int, ...]

    def line(self, cells: Sequence[str]) -> list[str]:
        """Cells padded to the widths of their columns: the first is left-aligned, the others are right-aligned."""
        first, *rest = zip(cells, self.widths, strict=True)
        return [first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in rest)]

    @property
    def width(self) -> int:
        """The width of a line in characters."""
        return sum(self.widths) + len(GAP) * (len(self.widths) - 1)


def fit(components: Sequence[Counters], columns: Sequence[str], width: int) -> Table:
    """The widest table of these columns that fits ``width``; the first column is that of the names.

    >>> table = fit([Counters("lines", {"emitted": 12_345_678, "failed": 0})], ["component", "emitted", "failed"], 30)
    >>> table.columns, table.rows, table.width
    (('component', 'emitted', 'failed'), (('lines', '12,345,678', '0'),), 29)
    >>> fit([Counters("lines", {"emitted": 12_345_678, "failed": 0})], ["component", "emitted", "failed"], 20).rows
    (('lines', '12.3M'),)
    """
    longest = max((len(component.name) for component in components), default=0)
    kept = list(columns)
    quarter, names = min(longest, max(NAME_MIN, width // 4)), min(longest, NAME_MIN)
    for name_width, written in ((longest, exact), (quarter, exact), (quarter, short)):
        table = _table(components, kept, written, name_width)
        if table.width <= width:
            return table
    table = _table(components, kept, short, names)
    if table.width <= width:
        return table
    silent = [column for column in DROPPED if not any(component.values.get(column) for component in components)]
    for column in (*silent, *LEFT_OUT):
        if table.width <= width:
            break
        if column in kept[1:]:
            kept.remove(column)
            table = _table(components, kept, short, names)
    return table


def _table(
    components: Sequence[Counters], columns: Sequence[str], written: Callable[[float], str], name_width: int
) -> Table:
    rows = []
    for component in components:
        values = (component.values.get(column) for column in columns[1:])
        cells = ("" if value is None else written(value) for value in values)
        rows.append((shortened(component.name, name_width), *cells))
    widths = tuple(max(map(len, cells)) for cells in zip(columns, *rows, strict=True))
    return Table(tuple(columns), tuple(rows), widths)


def micro_batches(count: int) -> str:
    """So many micro-batches, in words.

    >>> micro_batches(1), micro_batches(2000)
    ('1 micro-batch', '2,000 micro-batches')
    """
    return f"{count:,} micro-batch{'es' if count != 1 else ''}"


def wrapped(parts: Sequence[str], width: int, gap: str = "   ") -> list[str]:
    """Distribute parts over as many lines as needed; a part is never broken, even if it is longer than a line.

    >>> wrapped(["trees: 2 open", "retries: 7", "executed: 2,500 tuples/s"], 30)
    ['trees: 2 open   retries: 7', 'executed: 2,500 tuples/s']
    >>> wrapped(["read 12%", "level 1 80%", "commit 8%"], 24, ", ")
    ['read 12%, level 1 80%,', 'commit 8%']
    """
    lines: list[str] = []
    end = gap.rstrip()
    for part in parts:
        if lines and len(lines[-1]) + len(gap) + len(part) + len(end) <= width:
            lines[-1] += gap + part
        else:
            if lines:
                lines[-1] += end
            lines.append(part)
    return lines
