"""Interval arithmetic against Python's sets."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st

from sparkbolt.base.intervals import (
    Interval,
    Intervals,
    add,
    clip,
    first_outside,
    from_inclusive,
    gaps,
    size,
    subtract,
    to_inclusive,
    union,
    union_of_columns,
)

ANY = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 8)).map(lambda pair: (pair[0], sum(pair))), max_size=10)
"""Intervals in any order, which may overlap."""
ASCENDING = st.lists(st.tuples(st.integers(0, 6), st.integers(1, 6)), max_size=10).map(
    lambda steps: [(start := sum(map(sum, steps[:at])) + gap, start + length) for at, (gap, length) in enumerate(steps)]
)
"""Intervals that ascend, and may touch."""


def members(intervals: Iterable[Interval]) -> set[int]:
    return {number for start, end in intervals for number in range(start, end)}


def in_order(intervals: Intervals) -> bool:
    return all(start < end for start, end in intervals) and all(
        end < start for (_, end), (start, _) in pairwise(intervals)
    )


def columns(intervals: Intervals) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    pairs = np.array(intervals, dtype=np.int64).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]


@given(ANY, ANY)
def test_a_union_is_sorted_and_has_the_members_of_both_sides(one: list[Interval], other: list[Interval]) -> None:
    found = union(one, other)
    assert members(found) == members(one) | members(other)
    assert in_order(found)
    assert union_of_columns(*columns([*one, *other])) == found


@given(ANY, st.lists(st.integers(-2, 50)))
def test_added_numbers_join_adjacent_intervals(one: list[Interval], numbers: list[int]) -> None:
    starts, ends = (list(column) for column in zip(*union(one), strict=True)) if one else ([], [])
    known = members(one)
    for number in numbers:
        assert add(starts, ends, number) == (number not in known)
        known.add(number)
        found = list(zip(starts, ends, strict=True))
        assert members(found) == known
        assert in_order(found)


@given(ASCENDING, ASCENDING)
def test_subtraction_removes_exactly_the_given_members(one: list[Interval], gone: list[Interval]) -> None:
    left = subtract(one, gone)
    assert members(left) == members(one) - members(gone)
    assert left == sorted(left)
    assert in_order(subtract(union(one), gone))


@given(ASCENDING, st.none() | st.integers(-1, 60), st.none() | st.integers(-1, 60))
def test_clipping_keeps_what_lies_within(one: list[Interval], start: int | None, end: int | None) -> None:
    low, high = -1 if start is None else start, 1000 if end is None else end
    assert members(clip(one, start, end)) == {number for number in members(one) if low <= number < high}
    assert all(first < stop for first, stop in clip(one, start, end))


@given(st.integers(-1, 60), ASCENDING)
def test_the_first_number_outside_is_the_first_that_is_in_none(position: int, one: list[Interval]) -> None:
    inside = members(one)
    found = position
    while found in inside:
        found += 1
    assert first_outside(position, one) == found


@given(ANY, st.integers(0, 80))
def test_gaps_are_the_ranges_between_intervals(one: list[Interval], end: int) -> None:
    ascending = sorted(one)
    found = gaps(*columns(ascending), end, limit=99)
    inside = members(one)
    reach = max([end, *(stop for _, stop in one)])
    first = min(inside, default=reach)
    assert members(found) == set(range(first, reach)) - inside
    assert in_order(found)
    assert gaps(*columns(ascending), end, limit=1) == found[:1]


@given(ANY)
def test_the_size_is_the_number_of_members(one: list[Interval]) -> None:
    assert size(union(one)) == len(members(one))


@given(ASCENDING)
def test_a_file_with_inclusive_ends_restores_the_same_intervals(one: list[Interval]) -> None:
    assert from_inclusive(to_inclusive(one)) == one
    assert {number for first, last in to_inclusive(one) for number in range(first, last + 1)} == members(one)
