"""Charts: series over time as SVG, drawn by the server.

A chart is legible without JavaScript. A period in which the topology did not run is a gap, not a line. Colours are
classes and not inline styles, so that pages keep a strict Content-Security-Policy.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Literal

from markupsafe import Markup, escape

from sparkbolt.control.documents import EventDocument
from sparkbolt.faces.ui import shown

WIDTH, HEIGHT = 420.0, 176.0
RIGHT, TOP, BOTTOM = 20.0, 14.0, 24.0
LEFT_MIN, TICK_EM = 34.0, 6.6
"""The room for the labels of an axis: at least, and for each character."""
GAP_STEPS, GAP_MS_MIN = 2.5, 60_000
"""From how many steps, and milliseconds, without a point a line is interrupted; long micro-batches leave some out."""
POINTS_MAX = 120
"""A longer series is thinned out to so many points, or half as many bars: more would not be distinguishable."""
STEPS_SECS = (60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400, 172_800, 432_000, 604_800)
LOUD = frozenset({"failed", "restarted", "killed", "outage"})
"""The kinds of events that are drawn in the colour of trouble."""

Unit = Literal["rate", "count", "ms", "size", "share"]
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
    unit: Unit
    times_ms: Sequence[int]
    lines: Sequence[Line]
    events: Sequence[EventDocument] = ()
    bars: bool = False
    """Whether values are drawn as bars: for counts of rare things."""
    step_secs: float = 10
    """The time from one point to the next while the topology runs."""
    all_zero: str = ""
    """The sentence that replaces a chart whose values are all 0."""

    def __html__(self) -> str:
        """The chart as HTML: a figure."""
        return drawn(self)


def tick_text(value: float, unit: str, most: float) -> str:
    """A round number at an axis that ends at ``most``: all of its digits, in the unit of ``most``.

    >>> [tick_text(value, "ms", 40_000).replace(shown.SPACE, " ") for value in (0, 20_000, 40_000)]
    ['0', '20 s', '40 s']
    >>> [tick_text(*each).replace(shown.SPACE, " ") for each in ((0.125, "share", 0.25), (5 << 29, "size", 5 << 30))]
    ['12.5 %', '2.5 GiB']
    """
    if value == 0:
        return "0"
    if unit == "ms":
        return f"{value / 1000:g}{shown.SPACE}s" if most >= 1000 else f"{value:g}{shown.SPACE}ms"
    if unit == "size":
        power = _power_of(most)
        return f"{value / 1024**power:g}{shown.SPACE}{shown.SIZE_UNITS[power]}"
    return f"{100 * value:g}{shown.SPACE}%" if unit == "share" else UNITS[unit](value)


def _power_of(size: float) -> int:
    """The power of 1024 of the unit in which a size is written."""
    return min(len(shown.SIZE_UNITS) - 1, int(math.log(size, 1024))) if size > 1 else 0


def ticks_of(highest: float, unit: str) -> list[float]:
    """The ticks of an axis; of counts, whole numbers; of sizes, round numbers of their binary unit.

    >>> ticks_of(1, "count"), ticks_of(7, "count")
    ([0.0, 1.0], [0.0, 5.0, 10.0])
    """
    scale = 1024.0 ** _power_of(highest) if unit == "size" else 1.0
    return [tick * scale for tick in nice_ticks(highest / scale, is_whole=unit == "count")]


def nice_ticks(highest: float, wanted: int = 3, *, is_whole: bool = False) -> list[float]:
    """Round numbers from 0 to at least ``highest``; whole numbers if ``is_whole``.

    >>> nice_ticks(87), nice_ticks(0), nice_ticks(1.3)
    ([0.0, 50.0, 100.0], [0.0, 1.0], [0.0, 0.5, 1.0, 1.5])
    """
    if not highest > 0 or not math.isfinite(highest):
        return [0.0, 1.0]
    raw = max(highest / wanted, 1.0 if is_whole else 0.0)
    scale = 10.0 ** math.floor(math.log10(raw))
    factors = (1, 2, 5, 10) if is_whole and scale == 1 else (1, 2, 2.5, 5, 10)
    step = next(factor * scale for factor in factors if factor * scale >= raw * 0.999)
    return [round(step * number, 12) for number in range(math.ceil(highest / step - 1e-9) + 1)]


def time_ticks(first_ms: int, last_ms: int, wanted: int = 5) -> list[int]:
    """Round moments between two, in milliseconds.

    >>> time_ticks(0, 3_600_000)
    [0, 900000, 1800000, 2700000, 3600000]
    """
    secs = max(1, (last_ms - first_ms) // 1000)
    step = 1000 * next((step for step in STEPS_SECS if secs / step <= wanted), STEPS_SECS[-1])
    return list(range(-(-first_ms // step) * step, last_ms + 1, step))


def thinned(chart: Chart) -> Chart:
    """The chart with at most ``POINTS_MAX`` points, and with a point without values in each gap."""
    every = max(1, -(-len(chart.times_ms) // (POINTS_MAX // 2 if chart.bars else POINTS_MAX)))
    gap_ms = max(GAP_STEPS * 1000 * chart.step_secs, GAP_MS_MIN)
    pieces: list[range] = []
    start = 0
    for at, time_ms in enumerate(chart.times_ms):
        is_gap = at > start and time_ms - chart.times_ms[at - 1] > gap_ms
        if at > start and (is_gap or at - start == every):
            pieces.append(range(start, at))
            start = at
        if is_gap:
            pieces.append(range(at, at))
    pieces.append(range(start, len(chart.times_ms)))

    def together(line: Line, piece: range) -> float | None:
        known = [value for at in piece if (value := line.values[at]) is not None]
        return None if not known else max(known) if line.peaks else sum(known) if chart.bars else fmean(known)

    times = [
        chart.times_ms[piece.start] if piece else (chart.times_ms[piece.start - 1] + chart.times_ms[piece.start]) // 2
        for piece in pieces
    ]
    lines = [replace(one, values=[together(one, piece) for piece in pieces]) for one in chart.lines]
    return replace(chart, times_ms=times, lines=lines)


def drawn(chart: Chart) -> str:
    """The chart as HTML: a figure with its title, legend and SVG."""
    known = [value for line in chart.lines for value in line.values if value is not None]
    title = escape(chart.title)
    is_all_zero = bool(chart.all_zero) and not any(known)
    if not known or len(chart.times_ms) < 2 or is_all_zero:
        sentence = chart.all_zero if known and is_all_zero else "There are no measurements in this time range."
        return f'<figure class="chart"><figcaption>{title}</figcaption><p class="empty">{escape(sentence)}</p></figure>'
    chart = thinned(chart)
    known = [value for line in chart.lines for value in line.values if value is not None]
    ticks = ticks_of(max(known), chart.unit)
    labels = [tick_text(tick, chart.unit, ticks[-1]) for tick in ticks]
    left = max(LEFT_MIN, 10 + TICK_EM * max(map(len, labels)))
    frame = _Frame(left, chart.times_ms[0], chart.times_ms[-1], ticks)
    told = UNITS[chart.unit]
    parts = [_grid(frame, labels)]
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
        json.dumps(
            {"unit": chart.unit, "left": left, "times": list(chart.times_ms), "lines": values}, separators=(",", ":")
        )
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

    left: float
    first_ms: int
    last_ms: int
    ticks: list[float]

    def x(self, time_ms: float) -> float:
        return self.left + (WIDTH - self.left - RIGHT) * (time_ms - self.first_ms) / max(
            1, self.last_ms - self.first_ms
        )

    def y(self, value: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / self.ticks[-1]


def _grid(frame: _Frame, labels: Sequence[str]) -> str:
    parts = []
    for tick, label in zip(frame.ticks, labels, strict=True):
        y = frame.y(tick)
        parts.append(f'<path class="grid" d="M{frame.left:.1f},{y:.1f}H{WIDTH - RIGHT}"/>')
        parts.append(
            f'<text class="tick" x="{frame.left - 6:.1f}" y="{y + 3.5:.1f}" text-anchor="end">{escape(label)}</text>'
        )
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
        d += f"{'M' if down else 'L'}{frame.x(time_ms):.1f},{frame.y(value):.1f}" + ("h0" if down else "")
        down = False
    return f'<path class="line line-{line.colour}" d="{d}"/>'


def _bars(chart: Chart, line: Line, frame: _Frame, number: int) -> str:
    """The bars of one line, beside those of the others."""
    width = max(1.0, ((WIDTH - frame.left - RIGHT) / len(chart.times_ms) - 0.6) / len(chart.lines))
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
