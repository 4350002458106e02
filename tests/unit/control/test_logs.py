"""Logs: what is written to the files of a topology's log, and what is read from them."""

from __future__ import annotations

import json
import logging
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkbolt.control import logs
from sparkbolt.control.log_reading import LogFollower, last_lines
from sparkbolt.control.logs import (
    LogFormat,
    LogInUseError,
    LogLine,
    TopologyLog,
    as_json,
    as_text,
    current_log,
    log_path,
    read_line,
)

ENGINE = logging.getLogger("sparkbolt")
FIELDS = {"component": "count", "task": 1, "micro_batch": 7, "root": "9f3c00000000abcd"}


@pytest.fixture(autouse=True)
def level() -> Iterator[None]:
    before = ENGINE.level
    ENGINE.setLevel(logging.INFO)
    yield
    ENGINE.setLevel(before)


@pytest.fixture(params=[LogFormat.TEXT, LogFormat.JSON])
def form(request: pytest.FixtureRequest) -> LogFormat:
    return LogFormat(request.param)


def texts(directory: Path, **options: object) -> list[str]:
    return [line["text"] for line in last_lines(str(directory), "words", **options)]  # type: ignore[arg-type]


# Writing.


def test_a_line_has_its_time_and_its_fields_in_both_formats(tmp_path: Path, form: LogFormat) -> None:
    with TopologyLog(tmp_path, "words", form):
        ENGINE.warning("it %s", "hangs", extra=FIELDS)
    (line,) = last_lines(str(tmp_path), "words")
    assert line == {**FIELDS, "time_ms": line["time_ms"], "level": "WARNING", "topology": "words", "text": "it hangs"}
    assert line["time_ms"] > 1_700_000_000_000


def test_json_has_one_object_a_line_with_all_fields(tmp_path: Path) -> None:
    with TopologyLog(tmp_path, "words", LogFormat.JSON):
        ENGINE.error("two\nlines")
    (written,) = Path(log_path(str(tmp_path), "words")).read_text().splitlines()
    assert list(json.loads(written)) == list(LogLine.__annotations__)
    assert json.loads(written)["component"] is None


def test_a_traceback_belongs_to_its_line(tmp_path: Path, form: LogFormat) -> None:
    with TopologyLog(tmp_path, "words", form):
        try:
            raise ValueError("no good")
        except ValueError:
            ENGINE.exception("it failed")
    (text,) = texts(tmp_path)
    assert text.startswith("it failed\nTraceback (most recent call last):\n  File ")
    assert text.endswith("\nValueError: no good")


def test_files_are_rotated_and_read_by_their_owner_only(tmp_path: Path) -> None:
    directory = tmp_path / "new"
    with TopologyLog(directory, "words", bytes_max=500, files_max=3):
        for number in range(100):
            ENGINE.info("line %d", number)
    names = sorted(path.name for path in directory.iterdir())
    assert names == ["words.log", "words.log.1", "words.log.2", "words.log.lock"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()} == {0o600}
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert all(path.stat().st_size <= 500 for path in directory.iterdir())
    assert texts(directory, last=5) == [f"line {number}" for number in range(95, 100)]


def test_a_second_process_is_refused_with_the_process_id_of_the_first(tmp_path: Path) -> None:
    with TopologyLog(tmp_path, "words"), pytest.raises(LogInUseError, match=rf"process {os.getpid()} .*--log-dir"):
        TopologyLog(tmp_path, "words")
    with TopologyLog(tmp_path, "words"), TopologyLog(tmp_path, "other"):
        ENGINE.info("after its end it is free, and another topology has its own file")


def test_log_of_this_process_is_registered_while_it_is_open(tmp_path: Path) -> None:
    assert current_log() is None
    with TopologyLog(tmp_path, "words") as log:
        assert current_log() is log
        assert log.directory == str(tmp_path)
    assert current_log() is None
    assert not any(isinstance(one, logs._Files | logs._FromOthers) for one in ENGINE.handlers + logging.root.handlers)


def test_a_full_disk_is_reported_once_and_fails_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with TopologyLog(tmp_path, "words") as log:
        (tmp_path / "words.log").unlink()
        (tmp_path / "words.log").symlink_to("/dev/full")
        log.write("INFO", "lost")
        log.write("INFO", "lost, too")
        with pytest.raises(OSError, match="No space left"):
            log._files.stream.close()
        log._files.stream = None  # type: ignore[assignment]
    assert capfd.readouterr().err.count("cannot be written, and lines are lost: [Errno 28]") == 1


# Prints.


def test_printed_output_is_logged_by_line_and_still_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sys.stdout
    with TopologyLog(tmp_path, "words") as log:
        with log.prints_taken():
            print("one", end=" ")
            print("line")
            with log.not_taken():
                print("known already")
        log.printed("of a task\n\n", {"component": "count", "task": 0})
    assert sys.stdout is before
    assert capsys.readouterr().out == "one line\nknown already\n"
    found = last_lines(str(tmp_path), "words")
    assert [(line["level"], line["component"], line["text"]) for line in found] == [
        ("PRINT", None, "one line"),
        ("PRINT", "count", "of a task"),
        ("PRINT", "count", ""),
    ]


# Formats.

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=80)
NAME = st.from_regex(r"[A-Za-z_][\w. -]{0,10}\w", fullmatch=True)


@given(
    st.builds(
        LogLine,
        time_ms=st.integers(0, 4_000_000_000_000),
        level=st.sampled_from(["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL", "PRINT"]),
        topology=st.just("words"),
        component=st.just("count") | NAME,
        task=st.none() | st.integers(0, 999),
        micro_batch=st.none() | st.integers(0, 10**9),
        root=st.none() | st.from_regex(r"[0-9a-f]{16}", fullmatch=True),
        text=TEXT,
    )
)
def test_written_log_line_is_read_back(line: LogLine) -> None:
    assert read_line("words", as_text(line)) == line
    assert read_line("words", as_json(line)) == line
    assert len(as_json(line).split("\n")) == 1


# Reading.


def test_lines_are_searched_by_component_and_text(tmp_path: Path, form: LogFormat) -> None:
    with TopologyLog(tmp_path, "words", form):
        ENGINE.info("begins")
        ENGINE.info("it is Slow", extra={"component": "count"})
        ENGINE.info('a "quoted" text', extra={"component": "split"})
        ENGINE.info("bolt 'count' is out")
    assert texts(tmp_path, component="count") == ["it is Slow", "bolt 'count' is out"]
    assert texts(tmp_path, search="slow") == ["it is Slow"]
    assert texts(tmp_path, search='"QUOTED"') == ['a "quoted" text']
    assert texts(tmp_path, component="count", search="out", last=1) == ["bolt 'count' is out"]
    assert texts(tmp_path, component="nobody") == []


def test_only_the_end_of_a_large_log_is_read(tmp_path: Path) -> None:
    path = Path(log_path(str(tmp_path), "words"))
    with path.open("wb") as file:
        file.seek(1 << 40)  # a file with a hole of a terabyte, which nobody could read to its end
        file.write(b"\n")
        for number in range(300):
            file.write(f"2026-01-01 00:00:00.123Z  INFO     | line {number}\n".encode())
    assert texts(tmp_path, last=3) == ["line 297", "line 298", "line 299"]
    assert texts(tmp_path, last=3, component="nobody", bytes_max=100_000) == []


def test_a_follower_reads_each_line_once_through_all_rotations(tmp_path: Path, form: LogFormat) -> None:
    with TopologyLog(tmp_path, "words", form, bytes_max=600, files_max=10):
        ENGINE.info("before")
        follower = LogFollower(str(tmp_path), "words")
        assert follower.lines() == []
        got = []
        for number in range(200):
            ENGINE.info("line %d", number)
            if number % 11 == 0:
                got += follower.lines()
        got += follower.lines()
        follower.close()
    assert [line["text"] for line in got] == [f"line {number}" for number in range(200)]


def test_a_follower_waits_for_a_log_that_does_not_exist_yet_and_for_the_end_of_a_line(tmp_path: Path) -> None:
    follower = LogFollower(str(tmp_path), "words", search="come")
    path = Path(log_path(str(tmp_path), "words"))
    path.write_text("2026-01-01 00:00:00.123Z  INFO     | it co")
    assert follower.lines() == []
    with path.open("a") as file:
        file.write("mes\n2026-01-01 00:00:00.123Z  INFO     | not this\n")
    assert [line["text"] for line in follower.lines()] == ["it comes"]
    path.write_text("2026-01-01 00:00:00.123Z  INFO     | comes\n")  # emptied and begun again
    assert [line["text"] for line in follower.lines()] == ["comes"]
    follower.close()
