"""Durations: short names for ``datetime.timedelta``, and the text of one."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from sparkbolt.api.arguments import Check, checked, is_number

NUMBER = Check("a number", lambda value: is_number(value) and abs(value) < 1e15)
_UNITS = ("days", "hours", "minutes", "seconds", "milliseconds")


@checked
def days(number: Annotated[float, NUMBER]) -> timedelta:
    """The duration of some days, each of 24 hours.

    >>> days(2) == timedelta(hours=48)
    True
    """
    return timedelta(days=number)


@checked
def hours(number: Annotated[float, NUMBER]) -> timedelta:
    """The duration of some hours.

    >>> hours(1.5)
    datetime.timedelta(seconds=5400)
    """
    return timedelta(hours=number)


@checked
def minutes(number: Annotated[float, NUMBER]) -> timedelta:
    """The duration of some minutes.

    >>> minutes(1) == seconds(60)
    True
    """
    return timedelta(minutes=number)


@checked
def seconds(number: Annotated[float, NUMBER]) -> timedelta:
    """The duration of some seconds, which may have a fraction.

    >>> seconds(0.5) == milliseconds(500)
    True
    """
    return timedelta(seconds=number)


@checked
def milliseconds(number: Annotated[float, NUMBER]) -> timedelta:
    """The duration of some milliseconds.

    >>> milliseconds(1500)
    datetime.timedelta(seconds=1, microseconds=500000)
    """
    return timedelta(milliseconds=number)


def in_largest_unit(duration: timedelta) -> tuple[str, int] | None:
    """The name of the largest unit of which a duration is a whole number, and that number; None if there is none.

    >>> in_largest_unit(seconds(90)), in_largest_unit(hours(48)), in_largest_unit(timedelta(microseconds=1))
    (('seconds', 90), ('days', 2), None)
    """
    if not duration:
        return "seconds", 0
    for name in _UNITS:
        unit = timedelta(**{name: 1})
        if duration % unit == timedelta(0):
            return name, duration // unit
    return None


def duration_text(duration: timedelta) -> str:
    """A duration as an expression of Python.

    >>> duration_text(timedelta(minutes=30)), duration_text(timedelta(microseconds=1500))
    ('minutes(30)', 'timedelta(microseconds=1500)')
    """
    whole = in_largest_unit(duration)
    if whole is None:
        return f"timedelta(microseconds={duration // timedelta(microseconds=1)})"
    name, number = whole
    return f"{name}({number})"
