"""The lag of followed files: the bytes that are not finished, and how long ago the oldest of them was written."""

from __future__ import annotations

import gzip
import os
import time
from pathlib import Path

import pytest

from sparkbolt.api.reports import SourceView
from sparkbolt.base.intervals import Interval
from sparkbolt.connectors.files.write_times import STEPS_MAX, WriteTimes
from tests.unit.connectors.files.tails import Tail, append, rotate


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 10_000.0)


def write(path: Path, *lines: str, at: float) -> None:
    append(path, *lines)
    os.utime(path, (at, at))


def finish(tail: Tail, position: int, *done: Interval) -> None:
    """The driver reports that the one file is planned as far as it is, and finished up to here."""
    [source] = [source for source in tail.progress if "-0-" not in source]
    view = SourceView(tail.progress[source], position, 0, 0, 0, lambda limit: list(done)[:limit])
    tail.spout.on_sources_changed({source: view})


def lag_of(tail: Tail) -> list[tuple[int, float]]:
    """Of each file in the order of their names."""
    lags = tail.spout.lag()
    return [(lags[source], tail.spout.lag_secs()[source]) for source in sorted(lags)]


def test_the_lag_of_a_file_is_in_bytes_and_counts_lines_that_are_read_and_not_finished(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    write(log, "one", "two", at=9_000.0)
    tail = Tail(log)
    assert tail.spout.lag() == {}, "nothing is known before the first plan"
    tail.read()
    assert lag_of(tail) == [(8, 1_000.0)]
    finish(tail, 4)
    assert lag_of(tail) == [(4, 1_000.0)]
    finish(tail, 8)
    assert lag_of(tail) == [(0, 0.0)]


def test_lines_beyond_an_unfinished_one_do_not_count_if_they_are_finished(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    write(log, "one", "two", "three", at=9_000.0)
    tail = Tail(log)
    tail.read()
    finish(tail, 0, (4, 14))
    assert lag_of(tail) == [(4, 1_000.0)]


def test_the_seconds_are_those_of_the_oldest_unfinished_byte_and_not_of_the_file(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    write(log, "one", at=9_000.0)
    tail = Tail(log)
    tail.read()
    write(log, "two", at=9_900.0)
    tail.read()
    write(log, "three", at=9_990.0)
    tail.read()
    assert lag_of(tail) == [(14, 1_000.0)]
    finish(tail, 4)
    assert lag_of(tail) == [(10, 100.0)]
    finish(tail, 8)
    assert lag_of(tail) == [(6, 10.0)]


def test_the_lag_grows_while_nothing_is_planned_and_counts_new_and_rotated_files(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    write(log, "one", at=9_000.0)
    tail = Tail(tmp_path / "a.log*")
    tail.read()
    finish(tail, 4)
    write(log, "two", at=9_500.0)
    rotate(log)
    write(log, "three", at=9_600.0)
    assert lag_of(tail) == [(0, 0.0)], "it was looked at a moment ago"
    tail.now += 1.0
    assert sorted(lag_of(tail)) == [(4, 500.0), (6, 400.0)]


def test_a_part_of_a_line_and_a_compressed_file_have_no_lag(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    write(log, "one", at=9_000.0)
    with log.open("a") as file:
        file.write("tw")
    (tmp_path / "b.gz").write_bytes(gzip.compress(b"one\n"))
    tail = Tail([log, tmp_path / "b.gz"])
    tail.plan()
    assert [size for size, _ in lag_of(tail)] == [4]


def test_the_times_of_a_file_that_grows_for_long_take_little_memory() -> None:
    times = WriteTimes()
    for second in range(100_000):
        times.add(second + 1, float(second))
    assert len(times._ends) <= STEPS_MAX
    for position in (0, 50_000, 99_000, 99_999):
        written_s = times.of(position)
        assert written_s is not None
        assert 0 <= position - written_s < 2 * 100_000 / STEPS_MAX + 2
