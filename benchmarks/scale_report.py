"""What ``scale`` has measured, as a picture and as tables.

How do the figures of a run become what docs/benchmarks.md shows of them?

It is apart from ``scale``, because it measures nothing, and needs matplotlib.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture
from matplotlib.ticker import NullLocator

from benchmarks.figures import Figure, scaled

SPARK = ", Spark"
"""How the names of figures end that are measured on Spark."""
PICTURE, TABLES = "scale.svg", "scale.md"
COLUMNS, PANEL_INCHES = 3, (4.4, 3.5)
HALF = 0.5
"""A cost that grows more slowly is not divided among those it is for."""
HEAD = "| by how many | cost | of few | of many | of one | growth |"
STYLE = {"svg.fonttype": "none", "font.size": 8, "font.family": "sans-serif", "svg.hashsalt": "scale"}


@dataclass
class Series:
    """One cost of one axis, at all sizes."""

    axis: str
    cost: str
    unit: str
    on_spark: bool
    at: dict[int, float] = field(default_factory=dict)
    """By size."""
    growth: float = math.nan
    aim: float = math.nan
    """At most what its growth should be."""

    @property
    def verdict(self) -> str:
        """Its growth, for people."""
        return f"{self.growth:.2f}" + (", above the aim" if self.growth > self.aim else "")


def series_of(figures: Iterable[Figure]) -> list[Series]:
    """The costs among the figures, in their order; figures of another kind are left out.

    >>> cost, growth = ("a poll, 1,000 sources", (2.0,), "s"), ("a poll, growth by sources", (1.0,), "")
    >>> found = series_of([Figure("scale", *cost), Figure("scale", *growth)])
    >>> [(series.axis, series.cost, series.at, series.growth) for series in found]
    [('sources', 'a poll', {1000: 2.0}, 1.0)]
    """
    found: dict[tuple[str, str, bool], Series] = {}
    for figure in figures:
        on_spark = figure.name.endswith(SPARK)
        name = figure.name.removesuffix(SPARK)
        if match := re.fullmatch(r"(.+), growth by (.+)", name):
            cost, axis = match.groups()
            series = found[axis, cost, on_spark]
            series.growth = figure.value
            series.aim = figure.aim.limit if figure.aim is not None else math.inf
        elif match := re.fullmatch(r"(.+), ([\d,]+) (.+)", name):
            cost, size, axis = match.groups()
            series = found.setdefault((axis, cost, on_spark), Series(axis, cost, figure.unit, on_spark))
            series.at[int(size.replace(",", ""))] = figure.value
    return list(found.values())


def shown(value: float, unit: str) -> str:
    """A cost for people, in a unit that suits it.

    >>> shown(5.8, "s"), shown(0.0421, "s"), shown(0.00005, "s"), shown(47e6, "bytes"), shown(84_600, "bytes")
    ('5.8 s', '42.1 ms', '50 us', '47 MB', '84.6 KB')
    """
    if unit == "s":
        return scaled(*((value, "s") if value >= 1 else (value * 1e3, "ms") if value >= 1e-3 else (value * 1e6, "us")))
    if unit == "bytes" and value >= 1e3:
        return f"{value / 1e6:.3g} MB" if value >= 1e6 else f"{value / 1e3:.3g} KB"
    return scaled(value, unit)


def tables(series: Sequence[Series]) -> str:
    """Markdown: a row a cost, what needs no Spark first."""
    lines = []
    for on_spark in (False, True):
        lines += [
            "| by how many | cost | of few | of many | of one | growth |",
            "| --- | --- | --- | --- | --- | --- |",
        ]
        for one in series:
            if one.on_spark == on_spark:
                few, many = min(one.at), max(one.at)
                ends = [f"{size:,}: {shown(one.at[size], one.unit)}" for size in (few, many)]
                of_one = "" if on_spark or one.growth < HALF else shown(one.at[many] / many, one.unit)
                lines.append(f"| {one.axis} | {one.cost} | {ends[0]} | {ends[1]} | {of_one} | {one.verdict} |")
        lines.append("")
    return "\n".join(lines)


def draw(series: Sequence[Series], path: Path) -> None:
    """Draw a panel for each axis, both scales logarithmic; a grey line in each shows what is linear."""
    panels: dict[tuple[str, bool, str], list[Series]] = {}
    for one in series:
        panels.setdefault((one.axis, one.on_spark, one.unit), []).append(one)
    rows = -(-len(panels) // COLUMNS)
    with mpl.rc_context(STYLE):
        picture = Picture(figsize=(COLUMNS * PANEL_INCHES[0], rows * PANEL_INCHES[1]), layout="constrained")
        places = list(picture.subplots(rows, COLUMNS, squeeze=False).flat)
        for ((axis, on_spark, unit), costs), place in zip(panels.items(), places, strict=False):
            _panel(place, costs)
            where = " (on Spark, by the clock)" if on_spark else ""
            place.set(title=f"by {axis}{where}", xlabel=axis, ylabel={"s": "seconds"}.get(unit, unit))
        for place in places[len(panels) :]:
            place.set_axis_off()
        picture.savefig(path, metadata={"Date": None})


def _panel(place: Axes, costs: Sequence[Series]) -> None:
    place.set(xscale="log", yscale="log")
    for one in costs:
        label = f"{one.cost} ({one.growth:.2f})"
        place.plot(list(one.at), list(one.at.values()), marker="o", markersize=3, label=label)
    sizes = sorted({size for one in costs for size in one.at})
    low = min(min(one.at.values()) for one in costs)
    place.plot([sizes[0], sizes[-1]], [low, low * sizes[-1] / sizes[0]], color="0.75", linestyle="--", zorder=0)
    place.xaxis.set_minor_locator(NullLocator())
    place.yaxis.set_minor_locator(NullLocator())
    place.grid(visible=True, color="0.92")
    place.legend(fontsize=6.5, frameon=False)


def report(figures: Iterable[Figure], folder: Path) -> None:
    """Write the picture and the tables of a run into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    series = series_of(figures)
    draw(series, folder / PICTURE)
    (folder / TABLES).write_text(tables(series))
