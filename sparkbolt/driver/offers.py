"""Offers: the ranges that a spout offers for the next read, as its ``next_ranges`` returned them.

An invalid offer is refused, with the name of the spout, before anything is taken from it. A spout must never offer a
planned position again, because its record would be processed as another message.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from operator import index
from typing import Any

from sparkbolt.api.ranges import Range
from sparkbolt.base.exceptions import printed
from sparkbolt.errors import EmitError


def checked(component: str, given: Any, progress: Mapping[str, int], tasks: int) -> list[Range]:
    """The checked ranges of an offer, with their numbers as ``int``.

    Args:
        component: the spout's id.
        given: the return value of its ``next_ranges``.
        progress: source to end of the planned positions: the argument of ``next_ranges``.
        tasks: the number of the spout's tasks.

    Raises:
        EmitError: these are not ranges, a task does not exist, or positions repeat or go backwards.

    >>> checked("lines", [Range(0, "a", 5, 9), Range(0, "a", 8, 12)], {"a": 5}, 1)
    Traceback (most recent call last):
    sparkbolt.errors.EmitError: next_ranges of spout 'lines' gave Range(task=0, source='a', start=8, end=12), but ...
    """
    what = f"next_ranges of spout {component!r} gave"
    if given is None or isinstance(given, str | bytes | Range) or not hasattr(given, "__iter__"):
        raise EmitError(f"{what} {printed(given)}: expected a list of Range, an empty one if there is nothing to read")
    planned, ranges = dict[str, int](), []
    for one in given:
        if not isinstance(one, Range):
            raise EmitError(f"{what} {printed(one)} among its ranges: expected Range(task, source, start, end)")
        try:
            range_ = replace(one, task=index(one.task), start=index(one.start), end=index(one.end))
        except TypeError:
            raise EmitError(f"{what} {printed(one)}: task, start and end are whole numbers") from None
        if not isinstance(range_.source, str):
            raise EmitError(f"{what} {printed(one)}: a source is a str")
        if not 0 <= range_.task < tasks:
            raise EmitError(f"{what} {printed(one)}: it has {tasks} task(s), counted from 0")
        least = planned.get(range_.source, progress.get(range_.source, 0))
        if range_.start < least:
            raise EmitError(
                f"{what} {printed(one)}, but positions of {range_.source!r} are planned up to {least} already: a range "
                "starts there, or later, and ranges of one source rise"
            )
        planned[range_.source] = range_.end
        ranges.append(range_)
    return ranges
