"""Pictures of windows for the documentation, drawn from the windows themselves; ``docs.draw`` writes them.

Each picture adds tuples to a kind of window and shows the windows that fire, so it shows only what the code does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from xml.sax.saxutils import escape, quoteattr

import numpy as np

from sparkbolt.api.tuples import Origin
from sparkbolt.windows.arrival import ArrivalWindows, ReleasedWindows
from sparkbolt.windows.content import Content
from sparkbolt.windows.event_time import EventTimeWindows, SessionWindows
from sparkbolt.windows.firing import Fired, Windower
from sparkbolt.windows.kinds import Count
from sparkbolt.windows.tuple_segments import Shelf
from sparkbolt.windows.window import TupleWindow

SECOND = 30.0
"""The width of one second, in pixels."""
LEFT, TOP, ROW, DOT = 28.0, 84.0, 26.0, 5.0
LAST_SECS = 24
_ORIGIN = Origin("readings", 0, "default", ("name",))

STYLE = """\
  svg { color: #1f2937; font-family: ui-sans-serif, system-ui, "Segoe UI", "Helvetica Neue", Arial, sans-serif; }
  .ground { fill: #fbfaf6; }
  text { fill: currentColor; }
  @media (prefers-color-scheme: dark) { svg { color: #e5e7eb; } .ground { fill: #151b23; } }
  .title { font-size: 15px; font-weight: 600; }
  .name { font-size: 12px; text-anchor: middle; }
  .tick { font-size: 10.5px; text-anchor: middle; fill-opacity: .62; }
  .note { font-size: 11px; fill-opacity: .72; }
  .axis { stroke: #8b95a5; stroke-width: 1; }
  .fall { stroke: #8b95a5; stroke-width: 1; stroke-opacity: .28; }
  .bar { fill: #5b7cfa; fill-opacity: .13; stroke: #5b7cfa; stroke-width: 1.2; }
  .tuple, .old { fill: #8b95a5; }
  .new { fill: #0f9f8f; }
  .gone { stroke: #d9534f; stroke-width: 1.6; }
"""


class _NoShelf:
    """Drawings are small: everything stays in memory."""

    def read(self, number: int) -> Content:
        raise KeyError(number)

    def write(self, number: int, data: bytes, content: Content) -> None: ...

    def drop(self, number: int) -> None: ...


@dataclass(frozen=True)
class Kind:
    """A kind of window, and the tuples with which it is drawn."""

    title: str
    make: Callable[[Shelf], Windower]
    tuples: tuple[tuple[float, str], ...]
    """(second, name) in the order of arrival."""
    in_event_time: bool = False


_STEADY = tuple(zip((0, 1, 4, 8, 10, 15, 19), "abcdefg", strict=True))
_EVENTS = tuple(zip((1, 4, 9, 6, 10, 13, 18), "abcdefg", strict=True))
_SPREAD = tuple(zip((1, 3, 5, 11, 13, 20), "abcdef", strict=True))

KINDS: Mapping[str, Kind] = {
    "tumbling-time": Kind(
        "tumbling, 5 s: every tuple is in one window", lambda shelf: ArrivalWindows(shelf, 5000, 5000, 0), _STEADY
    ),
    "tumbling-count": Kind("tumbling, 3 tuples", lambda shelf: ArrivalWindows(shelf, Count(3), Count(3), 0), _STEADY),
    "sliding-time-time": Kind("sliding, 10 s by 5 s", lambda shelf: ArrivalWindows(shelf, 10_000, 5000, 0), _STEADY),
    "sliding-time-count": Kind(
        "sliding, 10 s by 2 tuples", lambda shelf: ArrivalWindows(shelf, 10_000, Count(2), 0), _STEADY
    ),
    "sliding-count-count": Kind(
        "sliding, 4 tuples by 2", lambda shelf: ArrivalWindows(shelf, Count(4), Count(2), 0), _STEADY
    ),
    "sliding-count-time": Kind(
        "sliding, 3 tuples by 5 s", lambda shelf: ArrivalWindows(shelf, Count(3), 5000, 0), _STEADY
    ),
    "every-tuple": Kind(
        "sliding with every tuple, 6 s", lambda shelf: ArrivalWindows(shelf, 6000, Count(1), 0), _STEADY
    ),
    "event-time": Kind(
        "event time, 10 s by 5 s: (end - 10 s, end], c came before d",
        lambda shelf: EventTimeWindows(shelf, 10_000, 5000),
        _EVENTS,
        in_event_time=True,
    ),
    "event-time-left": Kind(
        'event time, 10 s by 5 s, closed="left": [end - 10 s, end)',
        lambda shelf: EventTimeWindows(shelf, 10_000, 5000, closed_left=True),
        _EVENTS,
        in_event_time=True,
    ),
    "event-time-count": Kind(
        "event time, tumbling, 3 tuples in the order in which the watermark passes them",
        lambda shelf: ReleasedWindows(shelf, Count(3), Count(3)),
        _EVENTS,
        in_event_time=True,
    ),
    "session": Kind("sessions, gap 4 s", lambda shelf: SessionWindows(shelf, 4000), _SPREAD),
}


@dataclass(frozen=True)
class _Bar:
    """One window: its start and end, in seconds, and its tuples."""

    start: float
    end: float
    names: tuple[str, ...]
    new: frozenset[str]
    expired: tuple[str, ...]


def _bars(kind: Kind) -> list[_Bar]:
    windower = kind.make(_NoShelf())
    at = {name: second for second, name in kind.tuples}
    found: list[_Bar] = []

    def see(fired: Fired) -> None:
        if fired.events.count:
            window = TupleWindow(windower.log, fired)
            names, new, expired = (
                tuple(tup["name"] for tup in part) for part in (window, window.get_new(), window.get_expired())
            )
            places = [at[name] for name in names]
            timed = fired.start_ms is not None
            start = fired.start_ms / 1000 if fired.start_ms is not None else min(places)
            end = fired.end_ms / 1000 if timed else max(places)
            found.append(_Bar(max(0.0, start), end, names, frozenset(new), expired))

    if kind.in_event_time:
        for second, name in kind.tuples:
            for fired in windower.add(_content(second, name), int(second * 1000)):
                see(fired)
        for fired in windower.watermark(LAST_SECS * 1000):
            see(fired)
        return found
    waiting = list(kind.tuples)
    for second in range(LAST_SECS + 1):
        for fired in windower.clock(second * 1000):
            see(fired)
        while waiting and waiting[0][0] <= second:
            _, name = waiting.pop(0)
            for fired in windower.add(_content(second, name), second * 1000):
                see(fired)
    return found


def _content(second: float, name: str) -> Content:
    return Content((_ORIGIN,), None, [[name]], np.array([int(second * 1000)], dtype=np.int64))


def draw_window(name: str) -> str:
    """The picture of a kind of window, as SVG.

    Raises:
        KeyError: there is no such kind; ``KINDS`` lists the kinds.
    """
    kind = KINDS[name]
    bars = _bars(kind)
    width = 2 * LEFT + LAST_SECS * SECOND
    height = TOP + ROW * len(bars) + 40
    at = {tuple_name: LEFT + second * SECOND for second, tuple_name in kind.tuples}
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
        f'height="{height:g}" role="img" aria-label={quoteattr(kind.title)}>',
        f"<style>\n{STYLE}</style>",
        f'<rect class="ground" width="{width:g}" height="{height:g}" rx="8"/>',
        f'<text class="title" x="{LEFT:g}" y="26">{escape(kind.title)}</text>',
        f'<line class="axis" x1="{LEFT:g}" y1="60" x2="{width - LEFT:g}" y2="60"/>',
    ]
    for second in range(0, LAST_SECS + 1, 5):
        x = LEFT + second * SECOND
        out.append(f'<line class="axis" x1="{x:g}" y1="57" x2="{x:g}" y2="63"/>')
        out.append(f'<text class="tick" x="{x:g}" y="75">{second} s</text>')
    for tuple_name, x in at.items():
        out.append(f'<line class="fall" x1="{x:g}" y1="60" x2="{x:g}" y2="{TOP + ROW * len(bars):g}"/>')
        out.append(f'<circle class="tuple" cx="{x:g}" cy="60" r="{DOT - 1:g}"/>')
        out.append(f'<text class="name" x="{x:g}" y="50">{escape(tuple_name)}</text>')
    for row, bar in enumerate(bars):
        out += _drawn(bar, TOP + ROW * row + ROW / 2, at)
    foot = TOP + ROW * len(bars) + 22
    out += [
        f'<circle class="new" cx="{LEFT + 4:g}" cy="{foot - 4:g}" r="{DOT:g}"/>',
        f'<text class="note" x="{LEFT + 16:g}" y="{foot:g}">new</text>',
        f'<circle class="old" cx="{LEFT + 64:g}" cy="{foot - 4:g}" r="{DOT:g}"/>',
        f'<text class="note" x="{LEFT + 76:g}" y="{foot:g}">was in the last window</text>',
        *_cross(LEFT + 224, foot - 4),
        f'<text class="note" x="{LEFT + 236:g}" y="{foot:g}">expired since the last window</text>',
        "</svg>",
    ]
    return "\n".join(out) + "\n"


def _drawn(bar: _Bar, y: float, at: Mapping[str, float]) -> list[str]:
    x, end = LEFT + bar.start * SECOND - 9, LEFT + bar.end * SECOND + 9
    out = [f'<rect class="bar" x="{x:g}" y="{y - 9:g}" width="{end - x:g}" height="18" rx="9"/>']
    for name in bar.names:
        word = "new" if name in bar.new else "old"
        out.append(f'<circle class="{word}" cx="{at[name]:g}" cy="{y:g}" r="{DOT:g}"/>')
    for name in bar.expired:
        out += _cross(at[name], y)
    return out


def _cross(x: float, y: float) -> list[str]:
    return [
        f'<path class="gone" d="M{x - 4:g},{y - 4:g} L{x + 4:g},{y + 4:g} M{x - 4:g},{y + 4:g} L{x + 4:g},{y - 4:g}"/>'
    ]
