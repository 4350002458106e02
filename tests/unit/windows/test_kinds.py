"""Every kind of window, built in or made of policies, against a model that looks at all tuples each time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkbolt.api.tuples import Origin
from sparkbolt.windows import (
    Action,
    CountEvictionPolicy,
    CountTriggerPolicy,
    Event,
    EvictionPolicy,
    TimeEvictionPolicy,
    TimeTriggerPolicy,
    WatermarkCountEvictionPolicy,
    WatermarkCountTriggerPolicy,
    WatermarkTimeEvictionPolicy,
    WatermarkTimeTriggerPolicy,
    tuple_log,
)
from sparkbolt.windows.arrival import ArrivalWindows, ReleasedWindows
from sparkbolt.windows.by_policy import PolicyWindows
from sparkbolt.windows.content import Content, decode
from sparkbolt.windows.event_time import EventTimeWindows, SessionWindows
from sparkbolt.windows.firing import Windower
from sparkbolt.windows.grid import Extent
from sparkbolt.windows.kinds import Count
from sparkbolt.windows.window import TupleWindow, WindowTuples

Op: TypeAlias = tuple[str, Any]
"""("add", times) | ("mark", watermark) | ("clock", now) | ("reload", None)."""
Seen: TypeAlias = tuple[int, list[int], list[int], list[int]]
"""(end, ids, new, expired)."""
Model: TypeAlias = Callable[[list[Op]], list[Seen]]
ORIGIN = Origin("spout", 0, "default", ("id",))


@pytest.fixture(autouse=True, scope="module")
def small_segments() -> Iterator[None]:
    """So that few tuples are many segments, inline, on the shelf and joined."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuple_log, "INLINE_ROWS", 3)
        patch.setattr(tuple_log, "MERGE_ROWS", 5)
        yield


class DictShelf:
    def __init__(self) -> None:
        self.kept: dict[int, bytes] = {}

    def read(self, number: int) -> Content:
        return decode(self.kept[number])

    def write(self, number: int, data: bytes, content: Content) -> None:
        assert number not in self.kept
        self.kept[number] = data

    def drop(self, number: int) -> None:
        del self.kept[number]


def content_of(first: int, times: list[int]) -> Content:
    ids = list(range(first, first + len(times)))
    return Content((ORIGIN,), None, [ids], np.array(times, dtype=np.int64))


def windows_of(make: Callable[[Any], Windower], ops: list[Op]) -> list[Seen]:
    """What a kind of window shows; it is written and read again at each "reload"."""
    shelf = DictShelf()
    windower = make(shelf)
    seen: list[Seen] = []
    gone: set[int] = set()
    added, now = 0, 0

    def expire(selection: Any) -> None:
        """What expires does so once."""
        ids = {tup["id"] for tup in WindowTuples(windower.log, selection)}
        assert len(ids) == selection.count
        assert not ids & gone
        gone.update(ids)

    def show(fired: Any) -> None:
        for one in fired:
            expire(one.expiring)
            if one.events.count:
                window = TupleWindow(windower.log, one)
                parts = window.get(), window.get_new(), window.get_expired()
                assert [len(part) for part in parts] == [len(list(part)) for part in parts]
                assert window.column("id").to_pylist() == [tup["id"] for tup in window]
                assert not gone & {tup["id"] for tup in window}
                seen.append((one.end_ms, *([tup["id"] for tup in part] for part in parts)))

    for what, value in ops:
        if what == "add":
            show(windower.add(content_of(added, value), value[0]))
            added += len(value)
            now = max(now, value[-1])
        elif what == "mark":
            show(windower.watermark(value))
        elif what == "clock":
            show(windower.clock(value))
        else:
            state = windower.save()
            windower = make(shelf)
            windower.load(state)
            windower.release(2)
    waiting = [tup["id"] for log_, held in windower.everything() for tup in WindowTuples(log_, held)]
    assert sorted([*gone, *waiting]) == list(range(added)), "each tuple has expired or waits"
    return seen


# ---- the models


class Shown:
    """Of each window in turn: what is new in it, and what left since the last one that had tuples."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self.previous: list[int] = []

    def window(self, end: int, inside: list[int]) -> None:
        if inside:
            new = [one for one in inside if one not in self.previous]
            expired = [one for one in self.previous if one not in inside]
            self.seen.append((end, inside, new, expired))
            self.previous = inside


def last_of(passed: list[tuple[int, int]], length: Extent, reference: int) -> list[int]:
    if isinstance(length, Count):
        return [one for one, _ in passed[-length.tuples :]]
    return [one for one, time in passed if reference - length < time <= reference]


def by_arrival(length: Extent, slide: Extent) -> Model:
    def model(ops: list[Op]) -> list[Seen]:
        shown = Shown()
        all_: list[tuple[int, int]] = []
        next_end = slide
        for what, value in ops:
            if what == "add":
                for time in value:
                    all_.append((len(all_), time))
                    if isinstance(slide, Count) and len(all_) % slide.tuples == 0:
                        shown.window(time, last_of(all_, length, time))
            if what == "clock" and not isinstance(slide, Count):
                while next_end <= value:
                    shown.window(next_end - 1, last_of(all_, length, next_end - 1))
                    next_end += slide
        return shown.seen

    return model


def by_time(length: int, slide: int, edge: int = 0) -> Model:
    """Windows from ``end - length`` to ``end``: with ``edge`` 0 they have their end, with 1 their start."""

    def model(ops: list[Op]) -> list[Seen]:
        shown, end = Shown(), 0
        all_: list[tuple[int, int]] = []
        for what, value in ops:
            if what == "add":
                all_ += [(len(all_) + i, time) for i, time in enumerate(value)]
            for at in range(end, value + 1, slide) if what == "mark" else ():
                last = at - edge
                inside = [one for one, time in all_ if last - length < time <= last]
                shown.window(at, inside)
                end = at + slide if inside else end
        return shown.seen

    return model


def passed_by_watermark(length: Extent, slide: Extent, edge: int = 0) -> Model:
    """Event time with a count: a tuple enters when the watermark passes it."""

    def model(ops: list[Op]) -> list[Seen]:
        shown, end, newest, added = Shown(), 0, -1, 0
        waiting: list[tuple[int, int]] = []
        passed: list[tuple[int, int]] = []
        for what, value in ops:
            if what == "add":
                waiting += [(added + i, time) for i, time in enumerate(value)]
                added += len(value)
            elif what == "mark" and isinstance(slide, Count):
                now, waiting = split(waiting, value)
                for one, time in now:
                    passed.append((one, time))
                    newest = max(newest, time)
                    if len(passed) % slide.tuples == 0:
                        shown.window(newest, last_of(passed, length, newest))
            for at in range(end, value + 1, slide) if what == "mark" and isinstance(slide, int) else ():
                now, waiting = split(waiting, at - edge)
                passed += now
                shown.window(at, last_of(passed, length, at))
                end = at + slide if passed else end
        return shown.seen

    def split(events: Any, upto: int) -> Any:
        return [e for e in events if e[1] <= upto], [e for e in events if e[1] > upto]

    return model


def sessions(gap: int) -> Model:
    def model(ops: list[Op]) -> list[Seen]:
        shown = Shown()
        open_: list[tuple[int, int]] = []
        added = 0
        for what, value in ops:
            if what == "add":
                open_ += [(added + i, time) for i, time in enumerate(value)]
                added += len(value)
            if what in ("mark", "clock"):
                by_times: list[list[tuple[int, int]]] = []
                for one in sorted(open_, key=lambda e: e[1]):
                    if by_times and one[1] - by_times[-1][-1][1] < gap:
                        by_times[-1].append(one)
                    else:
                        by_times.append([one])
                for session in by_times:
                    if session[-1][1] + gap <= value:
                        ids = sorted(one for one, _ in session)
                        shown.window(session[-1][1] + gap, ids)
                        open_ = [one for one in open_ if one not in session]
        return shown.seen

    return model


# ---- what comes


@st.composite
def arrivals(draw: st.DrawFn) -> list[Op]:
    """Tuples with their times of arrival, the clock before each of them, and reloads."""
    ops: list[Op] = []
    now = 0
    for _ in range(draw(st.integers(1, 12))):
        now += draw(st.integers(0, 7))
        ops.append(("clock", now))
        if draw(st.booleans()):
            ops.append(("add", [now] * draw(st.integers(1, 7))))
        if draw(st.booleans()):
            ops.append(("reload", None))
    return [*ops, ("clock", now + 30)]


@st.composite
def event_times(draw: st.DrawFn, in_order: bool = False) -> list[Op]:
    """Tuples out of order, none of them late, watermarks that rise, and reloads."""
    ops: list[Op] = []
    mark = newest = 0
    for _ in range(draw(st.integers(1, 10))):
        kind = draw(st.sampled_from(["add", "add", "mark", "reload"]))
        if kind == "add":
            times = draw(st.lists(st.integers(0, 25), min_size=1, max_size=7))
            if in_order:
                times = [newest := newest + 1 + time % 5 for time in times]
                ops.append(("add", times))
            else:
                ops.append(("add", [mark + time for time in times]))
        elif kind == "mark":
            mark += draw(st.integers(1, 15))
            ops.append(("mark", mark))
        else:
            ops.append(("reload", None))
    return [*ops, ("mark", max(mark, newest) + 60)]


counts = st.builds(Count, st.integers(1, 6))
spans = st.integers(1, 12)
extents = st.one_of(counts, spans)


@given(extents, extents, arrivals())
def test_windows_by_arrival_equal_those_of_the_model(length: Extent, slide: Extent, ops: list[Op]) -> None:
    made = windows_of(lambda shelf: ArrivalWindows(shelf, length, slide, 0), ops)
    assert made == by_arrival(length, slide)(ops)


@given(extents, extents, arrivals())
def test_storms_policies_give_the_same_windows_by_arrival(length: Extent, slide: Extent, ops: list[Op]) -> None:
    if isinstance(length, int) and isinstance(slide, int):
        length = max(length, slide)  # the first window of Storm's timer takes what is older, too
    eviction = CountEvictionPolicy(length.tuples) if isinstance(length, Count) else TimeEvictionPolicy(length)
    trigger = CountTriggerPolicy(slide.tuples) if isinstance(slide, Count) else TimeTriggerPolicy(slide)
    made = windows_of(lambda shelf: PolicyWindows(shelf, eviction, trigger, 0, in_event_time=False), ops)
    assert made == by_arrival(length, slide)(ops)


@given(spans, spans, event_times(), st.booleans())
def test_windows_in_event_time_equal_those_of_the_model(
    length: int, slide: int, ops: list[Op], closed_left: bool
) -> None:
    made = windows_of(lambda shelf: EventTimeWindows(shelf, length, slide, closed_left=closed_left), ops)
    assert made == by_time(length, slide, edge=int(closed_left))(ops)


@given(spans, spans, event_times())
def test_storms_policies_give_the_same_windows_in_event_time(length: int, slide: int, ops: list[Op]) -> None:
    eviction, trigger = WatermarkTimeEvictionPolicy(length), WatermarkTimeTriggerPolicy(slide)
    made = windows_of(lambda shelf: PolicyWindows(shelf, eviction, trigger, 0, in_event_time=True), ops)
    assert made == by_time(length, slide)(ops)


@given(st.one_of(st.tuples(counts, extents), st.tuples(spans, counts)), event_times(), st.booleans())
def test_windows_with_a_count_in_event_time_equal_those_of_the_model(
    shape: tuple[Extent, Extent], ops: list[Op], closed_left: bool
) -> None:
    made = windows_of(lambda shelf: ReleasedWindows(shelf, *shape, closed_left=closed_left), ops)
    assert made == passed_by_watermark(*shape, edge=int(closed_left))(ops)


@given(st.one_of(st.tuples(counts, extents), st.tuples(spans, counts)), event_times(in_order=True))
def test_storms_policies_give_the_same_if_tuples_arrive_in_order(shape: tuple[Extent, Extent], ops: list[Op]) -> None:
    length, slide = shape
    eviction = (
        WatermarkCountEvictionPolicy(length.tuples)
        if isinstance(length, Count)
        else WatermarkTimeEvictionPolicy(length)
    )
    trigger = (
        WatermarkCountTriggerPolicy(slide.tuples) if isinstance(slide, Count) else WatermarkTimeTriggerPolicy(slide)
    )
    made = windows_of(lambda shelf: PolicyWindows(shelf, eviction, trigger, 0, in_event_time=True), ops)
    assert made == passed_by_watermark(*shape)(ops)


@given(spans, event_times())
def test_sessions_equal_those_of_the_model(gap: int, ops: list[Op]) -> None:
    assert windows_of(lambda shelf: SessionWindows(shelf, gap), ops) == sessions(gap)(ops)


class Third(EvictionPolicy):
    """Passes over tuples that it has shown, and shows them again later."""

    def evict(self, event: Event) -> Action:
        assert self.context is not None
        age = self.context.reference_ms - event.timestamp_ms
        return Action.EXPIRE if age > 20 else Action.PROCESS if (event.timestamp_ms + age // 5) % 3 else Action.KEEP


KINDS: dict[str, Callable[[Any, Extent, Extent, int], Windower]] = {
    "arrival": lambda shelf, length, slide, _: ArrivalWindows(shelf, length, slide, 0),
    "event time": lambda shelf, _, slide, span: EventTimeWindows(shelf, span, slide if isinstance(slide, int) else 4),
    "length of a count": lambda shelf, _, slide, span: ReleasedWindows(shelf, Count(span), slide),
    "slide of a count": lambda shelf, length, _, span: ReleasedWindows(shelf, length, Count(span)),
    "sessions": lambda shelf, length, slide, span: SessionWindows(shelf, span),
    "policies": lambda shelf, length, slide, span: PolicyWindows(
        shelf, Third(), WatermarkTimeTriggerPolicy(span), 0, in_event_time=True
    ),
    "policies, by count": lambda shelf, length, slide, span: PolicyWindows(
        shelf, Third(), CountTriggerPolicy(span), 0, in_event_time=False
    ),
}


@given(st.sampled_from(list(KINDS)), extents, extents, spans, st.data())
def test_a_running_value_that_adds_new_tuples_and_subtracts_expired_ones_equals_the_window(
    kind: str, length: Extent, slide: Extent, span: int, data: st.DataObject
) -> None:
    ops = data.draw(arrivals() if kind in ("arrival", "policies, by count") else event_times())
    running: list[int] = []
    for _, ids, new, expired in windows_of(lambda shelf: KINDS[kind](shelf, length, slide, span), ops):
        for one in expired:
            running.remove(one)
        running += new
        assert sorted(running) == sorted(ids)


@pytest.mark.parametrize(
    "make",
    [
        lambda shelf: ArrivalWindows(shelf, Count(4), Count(4), 0),
        lambda shelf: ArrivalWindows(shelf, 4, 100, 0),
        lambda shelf: EventTimeWindows(shelf, 4, 100),
        lambda shelf: ReleasedWindows(shelf, Count(4), 100),
        lambda shelf: ReleasedWindows(shelf, 4, Count(4)),
        lambda shelf: SessionWindows(shelf, 5),
    ],
)
def test_an_expired_segment_is_removed_from_the_shelf(make: Callable[[Any], Windower]) -> None:
    shelf = DictShelf()
    windower = make(shelf)
    for first in range(0, 400, 10):
        list(windower.add(content_of(first, [first] * 10), first))
        list(windower.watermark(first))
        list(windower.clock(first))
        windower.save()
    assert len(shelf.kept) <= 13
    assert windower.held <= 114
