"""Lags as text, with their units: for ``list``, ``stats``, verdicts and the pages."""

from __future__ import annotations

from collections.abc import Mapping

from sparkbolt.api.progress import duration

BYTES = "bytes"


def bytes_text(count: float) -> str:
    """A size in bytes.

    >>> [bytes_text(count) for count in (0, 999, 20_480, 31 << 20, 1_400 << 20)]
    ['0 B', '999 B', '20 KB', '31 MB', '1.4 GB']
    """
    for unit, power in (("GB", 30), ("MB", 20), ("KB", 10)):
        scaled = count / (1 << power)
        if scaled >= 1000 / 1024:
            return f"{scaled:.1f} {unit}" if scaled < 10 else f"{scaled:,.0f} {unit}"
    return f"{count:.0f} B"


def lag_text(lag: int, unit: str, secs: float | None = None) -> str:
    """A lag with its unit, and the age of its oldest record, if that is known.

    >>> lag_text(1_204, "messages"), lag_text(5_400_000, "bytes", 95.2), lag_text(0, "bytes", None)
    ('1,204 messages', '5.1 MB, 1 min 35 s', '0 B')
    """
    size = bytes_text(lag) if unit == BYTES else f"{lag:,} {unit}".rstrip()
    return size if secs is None or not lag else f"{size}, {duration(secs)}"


def lags_text(lags: Mapping[str, int]) -> str | None:
    """The lags of a topology by unit; those that are 0 are left out beside others. None if no spout reports a lag.

    >>> lags_text({"bytes": 5_400_000, "messages": 12}), lags_text({"bytes": 0, "messages": 12}), lags_text({})
    ('5.1 MB + 12 messages', '12 messages', None)
    >>> lags_text({"messages": 0, "bytes": 0})
    '0 B'
    """
    if not lags:
        return None
    behind = {unit: lag for unit, lag in lags.items() if lag} or dict([min(lags.items())])
    return " + ".join(lag_text(lag, unit) for unit, lag in sorted(behind.items()))
