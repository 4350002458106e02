"""Charts: series over time as SVG, drawn by the server.

A chart is legible without JavaScript. A period without measurements is a gap, not a line down to 0. Colours are classes
and not inline styles, so that pages keep a strict Content-Security-Policy.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from markupsafe import Markup, escape

from sparkbolt.control.documents import EventDocument
from sparkbolt.faces.ui import shown

WIDTH, HEIGHT = 420.0, 176.0
LEFT, RIGHT, TOP, BOTTOM = 50.0, 10.0, 14.0, 24.0
POINTS_MAX = 120
"""A longer series is thinned out to so many points, or half as many bars: more would not be distinguishable."""
STEPS_SECS = (60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400, 172_800, 432_000, 604_800)
LOUD = frozenset({"failed", "restarted", "killed", "outage"})
"""The kinds of events that are drawn in the colour of trouble."""

UNITS: dict[str, Callable[[float], str]] = {
    "rate": shown.rate,
    "count": shown.brief,
    "ms": shown.ms,
    "size": shown.size,
    "share": shown.share,
}


@dataclass(frozen=True)
class Line:
    """One line of a chart."""

    name: str
    colour: str
    """The class of its colour: ``a`` to ``d``, or ``bad``."""
    values: Sequence[float | None]
    peaks: bool = False
    """Whether a thinned out series shows the highest of the values that fall together, not their mean."""


@dataclass(frozen=True)
class Chart:
    """The contents of a chart."""

    title: str
    unit: Literal["rate", "count", "ms", "size", "share"]
    times_ms: Sequence[int]
    lines: Sequence[Line]
    events: Sequence[EventDocument] = ()
    bars: bool = False
    """Whether values are drawn as bars: for counts of rare things."""

    def __html__(self) -> str:
        """The chart as HTML: a figure."""
        return drawn(self)


def tick_text(value: float, unit: str) -> str:
    """A round number at an axis: as short as it can be.

    >>> tick_text(40_000, "ms").replace(shown.SPACE, " "), tick_text(1_500, "ms").replace(shown.SPACE, " ")
    ('40 s', '1.5 s')
    """
    if value == 0:
        return "0"
    if unit == "ms":
        return f"{value / 1000:g}{shown.SPACE}s" if value >= 1000 else f"{value:g}{shown.SPACE}ms"
    return UNITS[unit](value)


def ticks_of(highest: float, unit: str) -> list[float]:
    """The ticks of an axis; of sizes, in round numbers of their binary unit."""
    scale = 1024.0 ** min(4, int(math.log(highest, 1024))) if unit == "size" and highest > 1 else 1.0
    return [tick * scale for tick in nice_ticks(highest / scale)]


def nice_ticks(highest: float, wanted: int = 3) -> list[float]:
    """Round numbers from 0 to at least ``highest``.

    >>> nice_ticks(87), nice_ticks(0), nice_ticks(1.3)
    ([0.0, 50.0, 100.0], [0.0, 1.0], [0.0, 0.5, 1.0, 1.5])
    """
    if not highest > 0 or not math.isfinite(highest):
        return [0.0, 1.0]
    raw = highest / wanted
    scale = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * scale for factor in (1, 2, 2.5, 5, 10) if factor * scale >= raw * 0.999)
    return [round(step * number, 12) for number in range(math.ceil(highest / step - 1e-9) + 1)]


def time_ticks(first_ms: int, last_ms: int, wanted: int = 4) -> list[int]:
    """Round moments between two, in milliseconds.

    >>> time_ticks(0, 3_600_000)
    [0, 900000, 1800000, 2700000, 3600000]
    """
    secs = max(1, (last_ms - first_ms) // 1000)
    step = 1000 * next((step for step in STEPS_SECS if secs / step <= wanted), STEPS_SECS[-1])
    return list(range(-(-first_ms // step) * step, last_ms + 1, step))


def thinned(chart: Chart) -> Chart:
    """The chart with at most ``POINTS_MAX`` points."""
    every = -(-len(chart.times_ms) // (POINTS_MAX // 2 if chart.bars else POINTS_MAX))
    if every <= 1:
        return chart
    starts = range(0, len(chart.times_ms), every)

    def together(line: Line, start: int) -> float | None:
        known = [value for value in line.values[start : start + every] if value is not None]
        return None if not known else max(known) if line.peaks else sum(known) if chart.bars else fmean(known)

    lines = [Line(one.name, one.colour, [together(one, start) for start in starts], one.peaks) for one in chart.lines]
    times = [chart.times_ms[start] for start in starts]
    return Chart(chart.title, chart.unit, times, lines, chart.events, chart.bars)


def drawn(chart: Chart) -> str:
    """The chart as HTML: a figure with its title, legend and SVG."""
    chart = thinned(chart)
    known = [value for line in chart.lines for value in line.values if value is not None]
    title = escape(chart.title)
    if not known or len(chart.times_ms) < 2:
        return (
            f'<figure class="chart"><figcaption>{title}</figcaption>'
            '<p class="empty">There are no measurements in this time range.</p></figure>'
        )
    frame = _Frame(chart.times_ms[0], chart.times_ms[-1], ticks_of(max(known), chart.unit))
    told = UNITS[chart.unit]
    parts = [_grid(frame, chart.unit)]
    parts += [
        _bars(chart, line, frame, number) if chart.bars else _line(chart, line, frame)
        for number, line in enumerate(chart.lines)
    ]
    parts += [_event(event, frame) for event in chart.events if frame.first_ms <= event["time_ms"] <= frame.last_ms]
    newest = [(line, next((v for v in reversed(line.values) if v is not None), None)) for line in chart.lines]
    legend = "".join(
        f'<span class="key"><i class="swatch line-{line.colour}"></i>{escape(line.name)} '
        f"<b>{escape(told(value)) if value is not None else shown.UNKNOWN}</b></span>"
        for line, value in newest
    )
    values = [
        {"name": line.name, "values": [None if v is None else float(f"{v:.4g}") for v in line.values]}
        for line in chart.lines
    ]
    data = escape(
        json.dumps({"unit": chart.unit, "times": list(chart.times_ms), "lines": values}, separators=(",", ":"))
    )
    return (
        f'<figure class="chart" data-chart="{data}">'
        f'<figcaption>{title}<span class="legend">{legend}</span></figcaption>'
        f'<svg viewBox="0 0 {WIDTH:.0f} {HEIGHT:.0f}" role="img" aria-label="{title} over time">{"".join(parts)}</svg>'
        '<p class="readout" aria-live="polite"></p></figure>'
    )


@dataclass(frozen=True)
class _Frame:
    """The area of a chart, and the values at its edges."""

    first_ms: int
    last_ms: int
    ticks: list[float]

    def x(self, time_ms: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (time_ms - self.first_ms) / max(1, self.last_ms - self.first_ms)

    def y(self, value: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / self.ticks[-1]


def _grid(frame: _Frame, unit: str) -> str:
    parts = []
    for tick in frame.ticks:
        y, label = frame.y(tick), escape(tick_text(tick, unit))
        parts.append(f'<path class="grid" d="M{LEFT},{y:.1f}H{WIDTH - RIGHT}"/>')
        parts.append(f'<text class="tick" x="{LEFT - 6}" y="{y + 3.5:.1f}" text-anchor="end">{label}</text>')
    long = frame.last_ms - frame.first_ms > 36 * 3_600_000
    for time_ms in time_ticks(frame.first_ms, frame.last_ms):
        at = shown.utc(time_ms)
        text = "" if at is None else at.strftime("%d %b" if long else "%H:%M")
        kind = "day" if long else "minute"
        parts.append(
            f'<text class="tick" x="{frame.x(time_ms):.1f}" y="{HEIGHT - 6}" text-anchor="middle" '
            f'data-time="{time_ms}" data-as="{kind}">{text}</text>'
        )
    return "".join(parts)


def _line(chart: Chart, line: Line, frame: _Frame) -> str:
    d, down = "", True
    for time_ms, value in zip(chart.times_ms, line.values, strict=True):
        if value is None:
            down = True
            continue
        d += f"{'M' if down else 'L'}{frame.x(time_ms):.1f},{frame.y(value):.1f}"
        down = False
    return f'<path class="line line-{line.colour}" d="{d}"/>'


def _bars(chart: Chart, line: Line, frame: _Frame, number: int) -> str:
    """The bars of one line, beside those of the others."""
    width = max(1.0, ((WIDTH - LEFT - RIGHT) / len(chart.times_ms) - 0.6) / len(chart.lines))
    base, aside = frame.y(0), width * (number - (len(chart.lines) - 1) / 2)
    d = "".join(
        f"M{frame.x(time_ms) + aside:.1f},{base:.1f}V{frame.y(value):.1f}"
        for time_ms, value in zip(chart.times_ms, line.values, strict=True)
        if value
    )
    return f'<path class="bars line-{line.colour}" stroke-width="{width:.1f}" d="{d}"/>'


def _event(event: EventDocument, frame: _Frame) -> str:
    x = frame.x(event["time_ms"])
    kind = "loud" if event["kind"] in LOUD else "quiet"
    at = shown.utc(event["time_ms"])
    when = "" if at is None else at.strftime("%H:%M:%S UTC ")
    return (
        f'<g class="event {kind}"><title>{escape(when)}{escape(event["kind"])}: {escape(event["text"])}</title>'
        f'<path d="M{x:.1f},{TOP - 4}V{HEIGHT - BOTTOM}"/>'
        f'<path class="flag" d="M{x:.1f},{TOP - 10}l4.5,0l-4.5,8l-4.5,-8Z"/></g>'
    )


def bar(value: float | None, most: float, name: str = "") -> Markup:
    """A bar in a table: a share of the largest value."""
    part = 0.0 if not value or most <= 0 else max(0.0, min(100.0, 100 * value / most))
    return Markup(
        '<svg class="bar {}" width="100%" height="8" aria-hidden="true"><rect class="track" width="100%" height="8"/>'
        '<rect class="fill" width="{}%" height="8"/></svg>'
    ).format(name, f"{part:.1f}")
