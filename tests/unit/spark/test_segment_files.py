"""Segment files: the newest of each name, and nothing that must be there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from sparkbolt.core.state.segments import physical_key
from sparkbolt.core.state.task_state import DIRECTORY_KEY, TaskState
from sparkbolt.spark import segment_files
from sparkbolt.spark.level_task import MapStateStore
from sparkbolt.spark.segment_files import FILE_BYTES_MIN, FOLDER_ENV, KEPT_OF_A_NAME, SegmentFiles

LARGE = bytes(FILE_BYTES_MIN)


class SparksState:
    """What Spark's ``MapState`` does, and how often it was asked for each key."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str], tuple[bytes]] = {}
        self.asked: list[str] = []

    def getValue(self, key: tuple[str]) -> tuple[bytes] | None:  # noqa: N802  Spark's name
        self.asked.append(key[0])
        return self.rows.get(key)

    def updateValue(self, key: tuple[str], value: tuple[bytes]) -> None:  # noqa: N802  Spark's name
        self.rows[key] = value

    def removeKey(self, key: tuple[str]) -> None:  # noqa: N802  Spark's name
        self.rows.pop(key, None)


def stored(files: SegmentFiles, names: list[str], count: int) -> list[str]:
    keys = [physical_key(name, stamp) for stamp in range(1, count + 1) for name in names]
    for key in keys:
        files.put(key, LARGE + key.encode(errors="replace"))
    return [key for key in keys if files.get(key) == LARGE + key.encode(errors="replace")]


def test_another_process_finds_the_newest_of_each_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER_ENV, str(tmp_path))
    found = stored(SegmentFiles.of("checkpoint", 1, 3), ["kv/b", "kv/d"], 10)
    newest = range(11 - KEPT_OF_A_NAME, 11)
    assert found == [physical_key(name, stamp) for stamp in newest for name in ("kv/b", "kv/d")]
    assert SegmentFiles.of("checkpoint", 1, 3).get(found[0]) == LARGE + found[0].encode()
    assert SegmentFiles.of("checkpoint", 1, 2).get(found[0]) is None, "it is another task's"


def test_all_files_of_a_task_have_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_files, "KEPT_BYTES_MAX", 3 * FILE_BYTES_MIN + 500)
    names = [f"window/{number}" for number in range(9)]
    assert stored(SegmentFiles(tmp_path / "task"), names, 1) == [physical_key(name, 1) for name in names[-3:]]


def test_what_a_dead_worker_was_writing_is_not_found_and_does_not_stay(tmp_path: Path) -> None:
    files, key = SegmentFiles(tmp_path), physical_key("kv/d", 99)
    for number in range(KEPT_OF_A_NAME):
        (tmp_path / f"kv_d@{99:016x}{number}.tmp").write_bytes(b"half of")
    assert files.get(key) is None
    stored(files, ["kv/d"], KEPT_OF_A_NAME)
    assert not list(tmp_path.glob("*.tmp"))


@pytest.mark.parametrize("size", [0, FILE_BYTES_MIN - 1])
def test_small_segments_are_left_to_spark(tmp_path: Path, size: int) -> None:
    SegmentFiles(tmp_path).put("kv/d@1", bytes(size))
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", ["a\0b", "\ud800", 300 * "long"])
def test_a_name_that_no_file_can_have_is_left_to_spark(tmp_path: Path, name: str) -> None:
    assert stored(SegmentFiles(tmp_path), [name], 2) == []


def test_without_a_folder_and_with_one_that_is_no_folder_nothing_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(FOLDER_ENV, raising=False)
    assert stored(SegmentFiles.of("checkpoint", 1, 3), ["kv/d"], 2) == []
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv(FOLDER_ENV, str(tmp_path / "file"))
    assert stored(SegmentFiles.of("checkpoint", 1, 3), ["kv/d"], 2) == []


@pytest.mark.parametrize("lost", [False, True], ids=["with the files", "without them"])
def test_a_worker_catches_up_with_another_one_without_asking_spark_for_what_is_large(
    tmp_path: Path, lost: bool
) -> None:
    spark, stamps, folder = SparksState(), iter(range(1, 100)), tmp_path / "task"
    one, other = TaskState(), TaskState()

    def run(state: TaskState, number: int) -> Any:
        state.begin(MapStateStore(spark, SegmentFiles(folder)))
        table = state.key_value()
        seen = table.get(f"key {number - 1}", None), table.get("key 0 of 2000", None)
        table.put_many([f"key {number}", *(f"key {key} of 2000" for key in range(2000))], [number] * 2001)
        state.commit(stamps.__next__)
        return seen

    for number in range(6):
        if lost and folder.exists():
            for file in folder.iterdir():
                file.unlink()
        spark.asked.clear()
        seen = run(one if number % 2 else other, number)
        assert seen == ((number - 1, number - 1) if number else (None, None))
        deltas = [key for key in spark.asked if key.startswith("kv/d")]
        assert bool(deltas) == (lost and number > 0)
        assert DIRECTORY_KEY in spark.asked, "only Spark says which segments count"


def test_a_segment_that_did_not_count_is_never_read(tmp_path: Path) -> None:
    spark, stamps = SparksState(), iter(range(1, 100))

    def run(value: int) -> Any:
        state = TaskState()
        state.begin(MapStateStore(spark, SegmentFiles(tmp_path)))
        seen = state.key_value().get("key 7", None)
        state.key_value().put_many([f"key {key}" for key in range(2000)], [value] * 2000)
        state.commit(stamps.__next__)
        return seen

    run(1)
    before = dict(spark.rows)
    run(2)
    spark.rows = before  # Spark forgets what an attempt wrote that failed afterwards
    assert run(3) == 1
