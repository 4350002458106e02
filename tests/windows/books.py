"""The books of the windows: what each shape must have shown, recomputed from all lines.

Rule: everything is computed anew from the lines and from when they came; nothing of ``sparkbolt.windows`` is used.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from sparkbolt import Count
from tests.windows.shapes import Shape


@dataclass(frozen=True)
class Line:
    """A line, and when it came."""

    n: int
    key: str
    at: int
    came: int
    micro_batch: int


@dataclass(frozen=True)
class Window:
    """What must be shown."""

    end: int
    lines: tuple[Line, ...]

    @property
    def numbers(self) -> list[int]:
        return [line.n for line in self.lines]


@dataclass
class Found:
    """What is not as it must be."""

    wrong: list[str] = field(default_factory=list)
    lacking: list[str] = field(default_factory=list)
    """What is not there, and may still come."""
    shown: int = 0
    """How many windows there are, each counted once."""
    windows: list[Window] = field(default_factory=list)
    """Those that were shown as they must be."""


def rows_of(directory: Path) -> list[dict[str, Any]]:
    """The rows of all part files."""
    rows: list[dict[str, Any]] = []
    for file in sorted(directory.glob("*.jsonl")):
        rows += [json.loads(line) for line in file.read_text().splitlines()]
    return rows


def numbers_of(ranges: Iterable[Sequence[int]]) -> list[int]:
    """The numbers of some ranges."""
    return [number for first, last in ranges for number in range(first, last + 1)]


def check(directory: Path, shapes: Iterable[Shape], *, exact: bool) -> Found:
    """As ``check_rows``, with what was written to a directory."""
    return check_rows(rows_of(directory / "arrivals"), rows_of(directory / "windows"), shapes, exact=exact)


def check_rows(
    arrivals: Iterable[dict[str, Any]], windows: Iterable[dict[str, Any]], shapes: Iterable[Shape], *, exact: bool
) -> Found:
    """Compare what was shown with what must have been.

    Args:
        arrivals: what ``Arrivals`` wrote.
        windows: what ``Tally`` wrote.
        shapes: those of the topology.
        exact: whether nothing was given again, so that counts behind the windows are exact.
    """
    found = Found()
    lines = [Line(**row) for row in arrivals]
    twice = [n for n, times in Counter(line.n for line in lines).items() if times > 1]
    if twice:
        found.wrong.append(f"lines {twice[:5]} came more than once")
        return found
    lines.sort(key=lambda line: line.n)
    shown: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in windows:
        shown[row["shape"]].append(row)
    for shape in shapes:
        _check_shape(shape, lines, shown[shape.name], exact, found)
    return found


def _check_shape(shape: Shape, lines: list[Line], rows: list[dict[str, Any]], exact: bool, found: Found) -> None:
    name = shape.name
    by_task: dict[int, dict[int, dict[str, Any]]] = defaultdict(dict)
    for row in rows:
        same = {key: value for key, value in row.items() if key not in ("count", "tuples")}
        before = by_task[row["task"]].setdefault(row["number"], same)
        if before != same:
            found.wrong.append(f"{name}: window {row['number']} of task {row['task']} was shown as {before} and {same}")
    distinct = sum(map(len, by_task.values()))
    found.shown += distinct
    counts = Counter(row["count"] for row in rows)
    if counts != Counter(range(1, len(rows) + 1)):
        found.wrong.append(f"{name}: {len(rows)} windows were counted as {sorted(counts.elements())[-5:]}")
    if exact and len(rows) != distinct:
        found.wrong.append(f"{name}: {len(rows)} windows were counted, though there are {distinct}")
    if exact and rows:
        tuples = max(row["tuples"] for row in rows)
        true = sum(len(numbers_of(row["of"])) for task in by_task.values() for row in task.values())
        if tuples != true:
            found.wrong.append(f"{name}: {tuples} tuples were counted in windows, though there are {true}")
    if not shape.keyed:
        by_task.setdefault(0, {})
    elif not by_task:
        found.lacking.append(f"{name}: nothing was shown")
    unseen = {line.key for line in lines} - {row["key"] for row in rows}
    for task, numbered in sorted(by_task.items()):
        if sorted(numbered) != list(range(1, len(numbered) + 1)):
            found.lacking.append(f"{name}: task {task} has shown {len(numbered)} windows, up to {max(numbered)}")
            continue
        own = [numbered[number] for number in sorted(numbered)]
        keys = {row["key"] for row in own} if shape.keyed else {None}
        if shape.keyed and len(by_task) == 1:
            keys |= unseen
        of_task = [line for line in lines if line.key in keys] if shape.keyed else lines
        for key in sorted(keys, key=str):
            chosen = [line for line in of_task if line.key == key] if shape.keyed else of_task
            where = f"{name}, key {key}" if shape.keyed else name
            rows_of_key = [row for row in own if row["key"] == key]
            _check_windows(where, shape, chosen, (_mark(shape, of_task), _mark(shape, lines)), rows_of_key, found)


def _mark(shape: Shape, lines: Sequence[Line]) -> int:
    """The watermark that follows from some lines.

    That of a task is at least the one of its own lines, and at most the one of all lines: tasks tell each other their
    newest times, and a task hears of the others' in the micro-batches in which it runs.
    """
    return max((line.at for line in lines), default=0) - (shape.lag or 0)


def _check_windows(
    where: str, shape: Shape, lines: list[Line], marks: tuple[int, int], rows: list[dict[str, Any]], found: Found
) -> None:
    """Compare the windows of one key, or of a task without keys, with what they must be.

    The last watermark of the task is between the two ``marks``.
    """
    least_mark, mark = marks
    wrong: list[str] = []
    if shape.in_event_time and shape.gap is None and isinstance(shape.slide or Count(1), Count):
        entered = {line.n: line for line in lines if line.at <= mark}
        order = _order(entered, rows, wrong)
        expected = list(_by_count(shape, order, in_event_time=True))
        least = sum(line.at <= least_mark for line in lines) // _tuples(shape.slide)
    elif shape.in_event_time:
        expected = list(_in_event_time(shape, lines, mark))
        least = sum(window.end <= least_mark for window in expected)
    else:
        expected = list(_on_arrival(shape, lines, rows))
        new_at = [place for place, window in enumerate(expected) if _new(expected, place)]
        # The last tuples are shown again and again, for as long as the topology runs.
        repeats = isinstance(shape.length, Count) and isinstance(shape.slide, int)
        least = new_at[-1] + 1 if repeats and new_at else len(expected)
    for place, row in enumerate(rows[: len(expected)]):
        window, new = expected[place], _new(expected, place)
        if (row["end"], numbers_of(row["of"])) != (window.end, window.numbers):
            wrong.append(f"{where}: window {place + 1} is {row}, expected {window.end} {window.numbers}")
        elif numbers_of(row["new"]) != new:
            wrong.append(f"{where}: of window {place + 1} {row['new']} is new, expected {new}")
        elif row["sum"] not in (None, sum(window.numbers)):
            wrong.append(f"{where}: window {place + 1} has the sum {row['sum']}, expected {sum(window.numbers)}")
    if len(rows) > len(expected):
        wrong.append(f"{where}: there are {len(rows)} windows, expected {len(expected)}; the last is {rows[-1]}")
    if len(rows) < least:
        found.lacking.append(f"{where}: there are {len(rows)} windows, expected {least}")
    found.wrong += wrong[:2]
    found.windows += [] if wrong else expected[: len(rows)]


def _new(expected: Sequence[Window], place: int) -> list[int]:
    before = set(expected[place - 1].numbers) if place else set()
    return [number for number in expected[place].numbers if number not in before]


def _tuples(slide: Count | int | None) -> int:
    assert not isinstance(slide, int)
    return 1 if slide is None else slide.tuples


def _by_count(shape: Shape, lines: Sequence[Line], *, in_event_time: bool) -> Iterator[Window]:
    """A window for every so many lines, in the order of ``lines``."""
    every, end = _tuples(shape.slide), -1
    times = [line.at if in_event_time else line.came for line in lines]
    for stop in range(1, len(lines) + 1):
        end = max(end, times[stop - 1])
        if stop % every:
            continue
        if isinstance(shape.length, Count):
            yield Window(end, tuple(lines[:stop][-shape.length.tuples :]))
        else:
            assert shape.length is not None
            inside = zip(lines[:stop], times, strict=False)
            yield Window(end, tuple(line for line, time in inside if time > end - shape.length))


def _on_arrival(shape: Shape, lines: Sequence[Line], rows: Sequence[dict[str, Any]]) -> Iterator[Window]:
    if shape.gap is not None:
        yield from _sessions(shape.gap, [(line.came, line) for line in lines])
    elif not isinstance(shape.slide, int):
        yield from _by_count(shape, lines, in_event_time=False)
    elif rows and lines:
        # When a task began is not known; its first window tells when its timers are.
        slide, phase = shape.slide, rows[0]["end"] + 1
        last = max(rows[-1]["end"] + 1, lines[-1].came + slide)
        if isinstance(shape.length, int):
            last = lines[-1].came + shape.length
        for timer in range(phase - (phase - lines[0].came) // slide * slide, last + 1, slide):
            if isinstance(shape.length, Count):
                inside = [line for line in lines if line.came < timer][-shape.length.tuples :]
            else:
                assert shape.length is not None
                inside = [line for line in lines if timer - shape.length <= line.came < timer]
            if inside:
                yield Window(timer - 1, tuple(inside))
    elif lines and shape.overlaps:
        yield Window(-1, tuple(lines))  # something must be there


def _in_event_time(shape: Shape, lines: Sequence[Line], mark: int) -> Iterator[Window]:
    if shape.gap is not None:
        found = _sessions(shape.gap, [(line.at, line) for line in lines])
        yield from sorted((one for one in found if one.end <= mark), key=lambda one: one.end)
        return
    slide, length = shape.slide, shape.length
    assert isinstance(slide, int)
    first = min((line.at for line in lines), default=mark + 1)
    edge = 1 if shape.closed_left else 0
    order = sorted(lines, key=lambda line: (-(-(line.at + edge) // slide), line.n))
    for end in range(-(-(first + edge) // slide) * slide, mark + 1, slide):
        last = end - edge  # the last millisecond that is in the window
        if isinstance(length, Count):
            inside = [line for line in order if line.at <= last][-length.tuples :]
        else:
            assert length is not None
            inside = [line for line in lines if last - length < line.at <= last]
        if inside:
            yield Window(end, tuple(inside))


def _sessions(gap: int, timed: Sequence[tuple[int, Line]]) -> Iterator[Window]:
    stretch: list[tuple[int, Line]] = []
    for time, line in [*sorted(timed, key=lambda one: one[0]), (1 << 62, None)]:
        if stretch and time - stretch[-1][0] >= gap:
            yield Window(stretch[-1][0] + gap, tuple(sorted((one for _, one in stretch), key=lambda one: one.n)))
            stretch = []
        if line is not None:
            stretch.append((time, line))


def _order(entered: dict[int, Line], rows: Sequence[dict[str, Any]], wrong: list[str]) -> list[Line]:
    """The order in which lines entered their windows: as the watermark passed them, those passed at once as they came.

    A line may be before one that came earlier only if it is older.
    """
    numbers = [number for row in rows for number in numbers_of(row["new"])]
    if len(numbers) != len(set(numbers)) or not set(numbers) <= set(entered):
        wrong.append(f"new in windows are {numbers}, of which some are there twice or too early")
        return []
    order = [entered[number] for number in numbers]
    places = [*order, *(line for n, line in entered.items() if n not in set(numbers))]
    arrival, times = np.array([line.n for line in places]), np.array([line.at for line in places])
    for place, line in enumerate(places):
        passed = (arrival[:place] > line.n) & (times[:place] >= line.at)
        if passed.any():
            wrong.append(f"line {line.n} entered behind {arrival[:place][passed][:5].tolist()}, which came later")
            return []
    return order
