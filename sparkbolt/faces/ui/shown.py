"""Shown: formats numbers, times and sizes for a page.

An unknown value is a dash, never 0. A time is in UTC, in an element that has the exact moment, so that a browser can
show its own time too. ``Markup`` from this module contains no value from outside that is not escaped.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from markupsafe import Markup

from sparkbolt.api.metrics import span_text

UNKNOWN = "\N{EN DASH}"
SPACE = "\N{NO-BREAK SPACE}"
SIZE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
BUSY, VERY_BUSY = 0.6, 0.85
"""From which capacity a component is shown as busy, and as too busy."""


def count(value: float | None) -> str:
    """A whole number with its thousands apart.

    >>> count(1234567), count(0), count(None) == UNKNOWN
    ('1,234,567', '0', True)
    """
    return UNKNOWN if value is None else f"{round(value):,}"


def brief(value: float | None) -> str:
    """A number in three digits and a letter, for where there is little room.

    >>> [brief(value).replace(SPACE, " ") for value in (950, 12_345, 1_234_567, 2_500_000_000, 0.25)]
    ['950', '12.3 k', '1.23 M', '2.5 G', '0.25']
    """
    if value is None:
        return UNKNOWN
    for scale, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= scale:
            return f"{value / (1e3 if letter == 'k' else scale):.3g}{SPACE}{letter}"
    return f"{value:,.0f}" if value == round(value) or abs(value) >= 100 else f"{value:.3g}"


def rate(value: float | None) -> str:
    """So many a second.

    >>> rate(1234.5).replace(SPACE, " "), rate(None) == UNKNOWN
    ('1,234 /s', True)
    """
    return UNKNOWN if value is None else f"{brief(value)}{SPACE}/s"


def ms(value: float | None) -> str:
    """A duration, given in milliseconds.

    >>> [ms(value).replace(SPACE, " ") for value in (0.0421, 3.14159, 42.4, 1234, 61_000)]
    ['0.042 ms', '3.14 ms', '42 ms', '1.23 s', '1 min 1 s']
    """
    if value is None:
        return UNKNOWN
    if value < 1:
        return f"{value:.2g}{SPACE}ms"
    if value < 1000:
        return f"{value:.2f}{SPACE}ms" if value < 10 else f"{value:.0f}{SPACE}ms"
    if value < 60_000:
        return f"{value / 1000:.{2 if value < 10_000 else 1}f}{SPACE}s"
    return span_text(value).replace(" ", SPACE)


def share(value: float | None) -> str:
    """A share of 1 in percent.

    >>> share(0.834).replace(SPACE, " "), share(0.0004).replace(SPACE, " "), share(None) == UNKNOWN
    ('83 %', '0 %', True)
    """
    return UNKNOWN if value is None else f"{100 * value:.0f}{SPACE}%"


def size(value: float | None) -> str:
    """A number of bytes.

    >>> [size(value).replace(SPACE, " ") for value in (512, 20_480, 1_500_000_000)]
    ['512 B', '20 KiB', '1.4 GiB']
    """
    if value is None:
        return UNKNOWN
    unit = "B"
    for unit in SIZE_UNITS:
        if abs(value) < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{value:.0f}{SPACE}{unit}" if value >= 10 or unit == "B" else f"{value:.1f}{SPACE}{unit}"


def lag(value: float | None, unit: str) -> str:
    """A lag with its unit, that of its spout's positions.

    >>> lag(20_480, "bytes").replace(SPACE, " "), lag(20_480, "messages").replace(SPACE, " ")
    ('20 KiB', '20,480 messages')
    """
    return size(value) if unit == "bytes" or value is None else f"{count(value)}{SPACE}{unit}".rstrip()


def lags(values: Mapping[str, float]) -> str:
    """The lags of a topology by unit, as one text; those that are 0 are left out beside others.

    >>> lags({"bytes": 20_480, "messages": 3}).replace(SPACE, " "), lags({}) == UNKNOWN
    ('20 KiB + 3 messages', True)
    """
    behind = {unit: value for unit, value in values.items() if value} or dict(list(values.items())[:1])
    return " + ".join(lag(value, unit) for unit, value in sorted(behind.items())) or UNKNOWN


def span(value: float | None) -> str:
    """A longer duration, given in milliseconds.

    >>> span(7_200_000).replace(SPACE, " ")
    '2 h'
    """
    return UNKNOWN if value is None else span_text(value).replace(" ", SPACE)


def utc(time_ms: float | None) -> datetime | None:
    """A moment, or None if there is none, or if it is outside of the calendar."""
    if time_ms is None:
        return None
    try:
        return datetime.fromtimestamp(time_ms / 1000, tz=UTC)
    except (OverflowError, ValueError, OSError):  # a wrong clock may give any number
        return None


def moment(time_ms: float | None, now_ms: float | None = None) -> Markup:
    """A moment as an HTML element: its time, and its day unless that is the day of ``now_ms``.

    >>> print(moment(0))
    <time datetime="1970-01-01T00:00:00.000Z" class="full">1970-01-01 00:00:00 UTC</time>
    >>> print(moment(1000, 2000))
    <time datetime="1970-01-01T00:00:01.000Z" class="clock">00:00:01 UTC</time>
    """
    at, now = utc(time_ms), utc(now_ms)
    if at is None:
        return Markup(UNKNOWN) if time_ms is None else Markup("{} ms").format(f"{time_ms:,.0f}")
    stamp = at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03}Z"
    same_day = now is not None and now.date() == at.date()
    text = at.strftime("%H:%M:%S UTC" if same_day else "%Y-%m-%d %H:%M:%S UTC")
    return Markup('<time datetime="{}" class="{}">{}</time>').format(stamp, "clock" if same_day else "full", text)


def busy(capacity: float | None) -> str:
    """The name of the colour of a capacity: ``idle``, ``some``, ``busy``, ``full``, or ``unknown``.

    >>> [busy(value) for value in (None, 0.05, 0.4, 0.7, 0.97)]
    ['unknown', 'idle', 'some', 'busy', 'full']
    """
    if capacity is None:
        return "unknown"
    return "full" if capacity >= VERY_BUSY else "busy" if capacity >= BUSY else "some" if capacity >= 0.2 else "idle"


def words(name: str) -> str:
    """A setting's name as words.

    >>> words("max_spout_pending")
    'max spout pending'
    """
    return name.replace("_", " ").replace("-", " ")


FILTERS: dict[str, Any] = {
    "count": count,
    "brief": brief,
    "rate": rate,
    "ms": ms,
    "share": share,
    "size": size,
    "lag": lag,
    "lags": lags,
    "span": span,
    "moment": moment,
    "busy": busy,
    "words": words,
}
"""By the names that templates use."""
