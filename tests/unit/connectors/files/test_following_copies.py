"""What was planned, or waits for a retry, is read from the copy that a rotation leaves of its file."""

from __future__ import annotations

import gzip
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.connectors.files.tails import Tail, append


def copied_and_emptied(log: Path) -> None:
    shutil.copy(log, f"{log}.1")
    os.truncate(log, 0)


def renamed_and_packed(log: Path) -> None:
    Path(f"{log}.1.gz").write_bytes(gzip.compress(log.read_bytes()))
    log.unlink()


def copied_with_its_date(log: Path) -> None:
    shutil.copy(log, log.with_name("app-20261126.log"))
    os.truncate(log, 0)


@pytest.mark.parametrize("rotated", [copied_and_emptied, renamed_and_packed, copied_with_its_date])
def test_lines_planned_before_a_rotation_are_read_from_the_copy(
    tmp_path: Path, rotated: Callable[[Path], None]
) -> None:
    log = tmp_path / "app.log"
    append(log, "a", "b", "c", "d")
    tail = Tail(log)
    first = tail.plan(1)
    (rest,) = tail.plan()
    assert tail.lines_of(first) == ["a"]
    rotated(log)
    append(log, "new")
    assert tail.lines_of([rest]) == ["b", "c", "d"]
    assert tail.lines_of([replace(rest, start=rest.start + 2, end=rest.start + 3)]) == ["c"]  # a retry of one line
    assert (tail.read(), tail.failed) == (["new"], [])


def test_of_copies_that_differ_where_it_was_planned_none_is_read(tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    header = 600 * "#"  # longer than what identifies a file
    append(log, header, "b")
    tail = Tail(log)
    tail.plan(1)
    (rest,) = tail.plan()
    copied_and_emptied(log)
    (tmp_path / "app.log.2").write_text(f"{header}\nx\n")
    assert tail.lines_of([rest]) == []
    assert len(tail.failed) == 1


@pytest.mark.parametrize("content", ["x\nb\nc\n", "a\nbbb\n", "a\n"])
def test_a_file_with_another_beginning_or_other_lines_is_not_a_copy(tmp_path: Path, content: str) -> None:
    log = tmp_path / "app.log"
    append(log, "a", "b", "c")
    tail = Tail(log)
    tail.plan(1)
    (rest,) = tail.plan()
    log.unlink()
    (tmp_path / "app.log.1").write_text(content)
    assert tail.lines_of([replace(rest, start=4)]) == []
    assert len(tail.failed) == 1
