"""Segment files: the newest, while their run lasts, and nothing that must be there."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from sparkbolt.spark import segment_files
from sparkbolt.spark.level_task import MapStateStore
from sparkbolt.spark.segment_files import FILE_BYTES_MIN, FOLDER_ENV, SegmentFiles
from sparkbolt.worker.state.segments import physical_key
from sparkbolt.worker.state.task_state import DIRECTORY_KEY, TaskState

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

    def keys(self) -> list[tuple[str]]:
        return list(self.rows)


def stored(files: SegmentFiles, names: list[str], count: int) -> list[str]:
    """Put segments, as many micro-batches would; returns those that are kept, oldest first."""
    keys = [physical_key(name, stamp) for stamp in range(1, count + 1) for name in names]
    for age, key in enumerate(keys, start=-len(keys)):
        files.put(key, LARGE + key.encode(errors="replace"))
        if files.get(key) is not None:
            path = files._path(files._folder, key)
            os.utime(path, (path.stat().st_mtime + age, path.stat().st_mtime + age))  # clocks of disks are coarse
        files.drop_old()
    return [key for key in keys if files.get(key) == LARGE + key.encode(errors="replace")]


def begun(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the driver begins a run."""
    (root / "run").mkdir()
    monkeypatch.setenv(FOLDER_ENV, str(root))


def test_another_process_finds_the_newest_segments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_files, "KEPT_FILES_MAX", 8)
    begun(tmp_path, monkeypatch)
    found = stored(SegmentFiles.of("run", 1, 3), ["kv/b", "kv/d"], 10)
    assert found == [physical_key(name, stamp) for stamp in range(7, 11) for name in ("kv/b", "kv/d")]
    assert SegmentFiles.of("run", 1, 3).get(found[0]) == LARGE + found[0].encode()
    assert SegmentFiles.of("run", 1, 2).get(found[0]) is None, "it is another task's"
    assert SegmentFiles.of("other", 1, 3).get(found[0]) is None, "it is another run's"


def test_all_files_of_a_task_have_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_files, "KEPT_BYTES_MAX", 3 * FILE_BYTES_MIN + 500)
    names = [f"window/{number}" for number in range(9)]
    assert stored(SegmentFiles(tmp_path / "task"), names, 1) == [physical_key(name, 1) for name in names[-3:]]
    files = SegmentFiles(tmp_path / "at once")
    for name in names:
        files.put(name, LARGE)
    assert len(os.listdir(tmp_path / "at once")) == 3, "also while a micro-batch runs"
    files.drop_old()
    files.put(names[-1], LARGE)
    assert files.get(names[-1]) is not None


def test_keys_removed_from_spark_state_are_removed_from_segment_files_too(tmp_path: Path) -> None:
    spark, stamps, folder = SparksState(), iter(range(1, 10_000)), tmp_path / "task"
    state = TaskState()
    for number in range(300):
        state.begin(MapStateStore(spark, SegmentFiles(folder)))
        state.write(f"window/{number}", LARGE)
        if number:
            state.write(f"window/{number - 1}", None)
        state.commit(stamps.__next__)
        kept = {path.name for path in folder.iterdir()}
        assert kept == {key.replace("/", "_") for (key,) in spark.rows if key != DIRECTORY_KEY}
    assert len(kept) == 1


def test_what_a_dead_worker_was_writing_is_not_found_and_does_not_stay(tmp_path: Path) -> None:
    files, key = SegmentFiles(tmp_path), physical_key("kv/d", 99)
    (tmp_path / f".kv_d@{99:016x}.4711-0a1b2c3d.tmp").write_bytes(b"half of")
    assert files.get(key) is None
    stored(files, ["kv/d"], 1)
    assert not list(tmp_path.glob(".*.tmp"))


def test_a_full_disk_leaves_no_half_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*paths: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    SegmentFiles(tmp_path).put("kv/d@1", LARGE)
    assert os.listdir(tmp_path) == []


def test_nothing_is_kept_without_a_folder_or_with_a_path_that_is_not_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(FOLDER_ENV, raising=False)
    assert stored(SegmentFiles.of("run", 1, 3), ["kv/d"], 2) == []
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv(FOLDER_ENV, str(tmp_path / "file"))
    assert stored(SegmentFiles.of("run", 1, 3), ["kv/d"], 2) == []


@pytest.mark.parametrize("lost", [False, True], ids=["with the files", "without them"])
def test_a_worker_catches_up_with_another_one_without_reading_large_data_from_spark(tmp_path: Path, lost: bool) -> None:
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
