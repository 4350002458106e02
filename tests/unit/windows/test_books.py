"""Every kind of window against a model that recomputes it from all lines, and books that see what is wrong."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from sparkbolt import Config, WindowedBolt
from sparkbolt.spouts import TextSpout
from sparkbolt.testing import START, TopologyTestDriver
from tests.windows.books import Found, check, check_rows, rows_of
from tests.windows.shapes import Feed, Shape, shapes, topology_of

pytestmark = pytest.mark.slow

UNIT_MS = 100
SHAPES = shapes(UNIT_MS)


def run(
    directory: Path,
    seed: int,
    lines: int = 150,
    shapes: Sequence[Shape] = tuple(SHAPES.values()),
    restarts: float = 0.3,
) -> dict[str, set[int]]:
    """Feed lines at random times; now and then the driver is killed when all that was fed is processed.

    Returns:
        The lines that were late, by shape.
    """
    chance, feed = random.Random(seed), Feed(seed, UNIT_MS)
    topology = topology_of(shapes, TextSpout(str(directory / "text")), str(directory), Config(message_timeout_secs=900))
    left = lines
    with TopologyTestDriver(topology) as driver:
        driver.advance(timedelta(milliseconds=130))  # nothing comes yet
        while left:
            count = min(left, chance.choice((1, 3, 10, 60)))
            for line in feed.lines(count):
                driver.feed("lines", {"line": line}, message_id=line)
            left -= count
            driver.run_until_idle()
            driver.advance(timedelta(milliseconds=chance.choice((0, 30, 170, 400, 1500))))
            if chance.random() < restarts:
                driver.restart()
        driver.advance(timedelta(seconds=5))
        assert driver.failed("lines") == []
        assert [str(error) for error in driver.errors()] == []
        late: dict[str, set[int]] = {}
        for place, shape in enumerate(shapes):
            told = driver.emitted(f"w{place}", "late") if isinstance(shape, WithLate) else []
            late[shape.name] = {one["n"] for [one] in told}
            assert driver.metrics().of(f"w{place}").late_tuples == len(told)
        for folder in ("arrivals", "windows"):
            shutil.copytree(driver.output_path(directory / folder), directory / folder)
    return late


def found_in(directory: Path) -> Found:
    return check(directory, SHAPES.values(), exact=True)


@pytest.mark.parametrize("seed", range(2))
def test_every_kind_of_window_equals_a_model_over_all_lines_despite_restarts(tmp_path: Path, seed: int) -> None:
    run(tmp_path, seed)
    found = found_in(tmp_path)
    assert (found.wrong, found.lacking) == ([], [])
    assert found.shown > 1000
    timed = {name: one.slide for name, one in SHAPES.items() if isinstance(one.slide, int) and not one.in_event_time}
    shown = rows_of(tmp_path / "windows")
    start_ms = int(START.timestamp() * 1000)
    off = [row for row in shown if row["shape"] in timed and (row["end"] + 1 - start_ms) % timed[row["shape"]]]
    assert off == [], "timers run from the start of the topology"


class WithLate(Shape):
    """Late lines go to a stream; there are some, since the lag is short."""

    def bolt(self) -> WindowedBolt:
        return super().bolt().with_late_tuple_stream("late")


class Acking(Shape):
    """Lines stay open until they expire."""

    def bolt(self) -> WindowedBolt:
        return super().bolt().with_ack_on_expiry()


class Small(Shape):
    """Hardly anything stays in memory."""

    def bolt(self) -> WindowedBolt:
        return super().bolt().with_max_events_in_memory(3)


def test_windows_contain_exactly_the_tuples_that_are_not_late(tmp_path: Path) -> None:
    shapes = [WithLate(**{**vars(shape), "lag": UNIT_MS}) for shape in SHAPES.values() if shape.in_event_time]
    late = run(tmp_path, 3, shapes=shapes)
    assert all(late.values())
    arrivals, windows = rows_of(tmp_path / "arrivals"), rows_of(tmp_path / "windows")
    for shape in shapes:
        in_time = [row for row in arrivals if row["n"] not in late[shape.name]]
        own = [row for row in windows if row["shape"] == shape.name]
        found = check_rows(in_time, own, [shape], exact=True)
        assert (found.wrong, found.lacking) == ([], [])


@pytest.mark.parametrize(("kind", "restarts"), [(Acking, 0), (Small, 0.3)])
def test_windows_are_the_same_for_every_way_to_ack_and_every_placement(
    tmp_path: Path, kind: type[Shape], restarts: float
) -> None:
    run(tmp_path, 4, lines=100, shapes=[kind(**vars(shape)) for shape in SHAPES.values()], restarts=restarts)
    found = found_in(tmp_path)
    assert (found.wrong, found.lacking) == ([], [])


def test_books_detect_a_window_that_misses_a_tuple_has_one_twice_or_was_never_shown(tmp_path: Path) -> None:
    run(tmp_path, seed=1, lines=60)
    file = max((tmp_path / "windows").glob("*.jsonl"), key=lambda path: path.stat().st_size)
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    place = next(place for place, row in enumerate(rows) if row["of"][0][0] < row["of"][-1][1])
    [first, last], *rest = (row := rows[place])["of"]

    def wrong_with(**changed: object) -> str:
        written = [*rows[:place], {**row, **changed}, *rows[place + 1 :]]
        file.write_text("".join(json.dumps(one) + "\n" for one in written))
        found = found_in(tmp_path)
        return "; ".join(found.wrong)

    assert found_in(tmp_path).wrong == []
    assert "expected" in wrong_with(of=[[first + 1, last], *rest] if first < last else rest)
    assert "expected" in wrong_with(of=[[first, last], [first, last], *rest])
    assert "were counted as" in wrong_with(count=row["count"] + 1)
    file.write_text("".join(json.dumps(one) + "\n" for one in rows[:place] + rows[place + 1 :]))
    assert found_in(tmp_path).lacking
    file.write_text("".join(json.dumps(one) + "\n" for one in [*rows, {**row, "count": 10_000}]))
    assert found_in(tmp_path).wrong


def test_books_expect_windows_that_the_newest_time_of_another_task_closes() -> None:
    shape = Shape("by key", length=4, slide=4, lag=0, keyed=True)
    arrivals = [
        {"n": n, "key": key, "at": at, "came": 0, "micro_batch": 0}
        for n, (key, at) in enumerate([("a", 1), ("a", 5), ("b", 1), ("b", 9)])
    ]

    def shown(task: int, number: int, end: int, n: int) -> dict[str, object]:
        key, once = "ab"[task], [[n, n]]
        at = {"shape": shape.name, "task": task, "number": number, "key": key, "end": end}
        return {**at, "of": once, "new": once, "sum": None}

    def found_of(*rows: dict[str, object]) -> tuple[bool, bool]:
        windows = [{**row, "count": place, "tuples": place} for place, row in enumerate(rows, 1)]
        found = check_rows(arrivals, windows, [shape], exact=True)
        return found.wrong == [], found.lacking == []

    first, of_b, second = shown(0, 1, 4, 0), shown(1, 1, 4, 2), shown(0, 2, 8, 1)
    assert found_of(first, of_b) == (True, True), "task 0 has not run since line 3 came to task 1"
    assert found_of(first, of_b, second) == (True, True), "it has run, and heard of line 3"
    assert found_of(first, of_b, shown(0, 2, 8, 0)) == (False, True)
    assert found_of(of_b, second) == (True, False)
