"""Files that had no whole line yet when they were seen: they are known, and found again under another name."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkbolt.connectors.files.file_identity import FileId, path_of
from tests.unit.connectors.files.tails import Tail, append, rotate


@pytest.mark.parametrize("is_down", [True, False])
@pytest.mark.parametrize("begun", ["", "hal"])
@pytest.mark.parametrize("is_replaced", [True, False])
def test_a_file_that_was_rotated_before_its_first_line_was_read_is_read(
    tmp_path: Path, is_down: bool, begun: str, is_replaced: bool
) -> None:
    log = tmp_path / "a.log"
    log.write_text(begun)
    tail = Tail(log)
    assert tail.read() == []
    append(log, "f1", "f2")
    rotate(log)
    if is_replaced:
        append(log, "n1")
    if is_down:
        tail.start()
    assert sorted(tail.read()) == sorted([f"{begun}f1", "f2"] + ["n1"] * is_replaced)
    append(Path(f"{log}.1"), "late")
    assert tail.read() == ["late"]
    assert {path_of(source) for source in tail.progress} == {str(log)}


def test_a_file_that_stays_empty_is_planned_once_and_not_again_after_a_restart(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.touch()
    tail = Tail(log)
    for _ in range(2):
        tail.read()
        tail.start()
    (mark,) = tail.progress
    assert tail.plan() == []
    append(log, "one")
    tail.start()
    assert tail.read() == ["one"]
    tail.start()
    assert tail.read() == []
    assert [FileId.parse(source).is_mark for source in tail.progress] == [True, False]  # type: ignore[union-attr]
    assert mark in tail.progress


def test_a_mark_is_read_without_a_line_though_its_file_has_one_by_then(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.touch()
    tail = Tail(log)
    planned = tail.plan()
    append(log, "one")
    assert tail.lines_of(planned) == []
    assert tail.read() == ["one"]
    assert not tail.failed


@pytest.mark.parametrize("is_down", [True, False])
def test_a_file_truncated_and_then_rotated_is_read_with_its_new_content(tmp_path: Path, is_down: bool) -> None:
    log = tmp_path / "a.log"
    append(log, "one", "two")
    tail = Tail(log)
    tail.read()
    log.write_text("")
    assert tail.read() == []
    append(log, "three")
    rotate(log)
    append(log, "four")
    if is_down:
        tail.start()
    assert sorted(tail.read()) == ["four", "three"]
    tail.start()
    assert tail.read() == []


def test_a_file_is_empty_between_two_rotations_and_loses_no_line(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    append(log, 0)
    tail = Tail(log)
    found = tail.read()
    for number in range(1, 6):
        rotate(log)
        log.touch()
        found += tail.lines_of(tail.plan())
        append(log, number)
    assert sorted(found + tail.read()) == list("012345")


def test_without_times_of_creation_a_mark_is_dropped_once_its_file_has_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparkbolt.connectors.files.plain_file._statx", lambda: None)
    log = tmp_path / "a.log"
    log.touch()
    tail = Tail(log)
    tail.read()
    append(log, "one")
    rotate(log)
    tail.start()
    assert tail.read() == ["one"]
    tail.start()
    assert tail.read() == []


def test_files_waiting_for_their_turn_are_still_known_after_a_restart(tmp_path: Path) -> None:
    logs = [tmp_path / f"{number}.log" for number in range(40)]
    for log in logs:
        append(log, *[log.name] * 100)
    tail = Tail(tmp_path / "*.log")
    found = tail.lines_of(tail.plan(budget=100))
    for log in logs:
        rotate(log)
        append(log, "new")
    tail.start()
    found += tail.read()
    assert sorted(found) == sorted([log.name for log in logs] * 100 + ["new"] * 40)
