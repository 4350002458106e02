"""Formats numbers, times, sizes and sentences for the command line."""

from __future__ import annotations

import textwrap
from collections.abc import Container, Iterable, Mapping, Sequence

from sparkbolt.api.progress import duration
from sparkbolt.api.runtime_bolts import LATE_FIELD

_UNITS = ("", "k", "M", "B", "T")


def exact(number: float) -> str:
    """A number with all its digits.

    >>> exact(12_345_678)
    '12,345,678'
    """
    return f"{number:,.0f}"


def late_text(late: int, streams: Mapping[str, Sequence[str]], subscribed: Container[str]) -> str:
    """What became of the late tuples of a windowed bolt, and a remedy if they are lost to the topology.

    Args:
        late: how many there were.
        streams: the fields of the bolt's streams.
        subscribed: which of these streams a bolt subscribes to.

    >>> late_text(1, {"default": ["total"]}, ["default"])
    '1 late tuple was older than the watermark and in no window: raise the lag, or set late to have it in a stream'
    >>> late_text(2, {"default": ["total"], "late": ["late_tuple"]}, ["late"])
    "2 late tuples were older than the watermark and went to stream 'late'"
    """
    were, them = ("tuples were", "them") if late != 1 else ("tuple was", "it")
    for stream, fields in streams.items():
        if list(fields) == [LATE_FIELD]:
            if stream in subscribed:
                return f"{late:,} late {were} older than the watermark and went to stream {stream!r}"
            return (
                f"{late:,} late {were} older than the watermark and went to stream {stream!r}, to which no bolt "
                "subscribes: raise the lag, or subscribe to it"
            )
    return (
        f"{late:,} late {were} older than the watermark and in no window: raise the lag, or set late to "
        f"have {them} in a stream"
    )


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


def micro_batches(count: int) -> str:
    """A number of micro-batches.

    >>> micro_batches(1), micro_batches(2000)
    ('1 micro-batch', '2,000 micro-batches')
    """
    return f"{count:,} micro-batch{'es' if count != 1 else ''}"


def plain(text: str) -> str:
    r"""A text in which control characters are visible, so that a terminal does not obey them; line feeds and tabs stay.

    >>> plain("a\x1b[2J\tb\r")
    'a\\x1b[2J\tb\\r'
    """
    return "".join(
        one if one.isprintable() or one in "\n\t" else one.encode("unicode_escape").decode("ascii") for one in text
    )


def wrapped(parts: Sequence[str], width: int, gap: str = "   ") -> list[str]:
    """Distribute parts over as many lines as needed; a part is never broken, even if it is longer than a line.

    >>> wrapped(["trees: 2 open", "retries: 7", "executed: 2,500 tuples/s"], 30)
    ['trees: 2 open   retries: 7', 'executed: 2,500 tuples/s']
    >>> wrapped(["read 12%", "level 1 80%", "commit 8%"], 24, ", ")
    ['read 12%, level 1 80%,', 'commit 8%']
    """
    joined = gap.join(part.replace(" ", "\0") for part in parts)
    lines = textwrap.wrap(joined, width, break_long_words=False, break_on_hyphens=False)
    return [line.replace("\0", " ") for line in lines]


def sentence(text: str, width: int) -> list[str]:
    """A sentence over as many lines as it needs."""
    return wrapped(plain(text).split(), width, " ")


def show(lines: Iterable[str]) -> None:
    """Print lines, if there are any, such that none commands the terminal."""
    if text := "\n".join(lines):
        print(plain(text), flush=True)
