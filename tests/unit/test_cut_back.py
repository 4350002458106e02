"""Power cuts: Spark's small files are not flushed to the disk, the ledger's are, so the one log may be behind.

entries      0 1 2 3 4 5 6 7 8 9 .
snapshots            |         |        written after 4 and after 9; the entries since 4 stay
commits left 0 1 2 3 4 5 6 7            what was on the disk when the power went
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from sparkbolt import BasicBolt, Config, Range, Spout, Topology, TopologyBuilder
from sparkbolt.driver.ledger import ledger_files
from sparkbolt.driver.ledger.generations import Generation, Generations
from sparkbolt.driver.ledger.ledger import Ledger
from sparkbolt.driver.ledger.ledger_settings import ledger_settings
from sparkbolt.errors import CheckpointError
from sparkbolt.files.local import LocalFiles
from sparkbolt.files.memory import MemoryFiles
from sparkbolt.sim.engine import LocalEngine
from sparkbolt.spark.checkpoint import Checkpoint
from tests.unit.driver.test_coordinator import Keep, Numbers

EVERY = 5


class Few(Numbers):
    """Three numbers at a time."""

    def next_ranges(self, progress: Mapping[str, int], budget: int) -> Sequence[Range]:
        return super().next_ranges(progress, min(budget, 3))


def few() -> Topology:
    """Numbers that are held until they time out, and are given again then."""
    builder = TopologyBuilder("few", Config(message_timeout_secs=5))
    builder.set_spout("numbers", Few())
    builder.set_bolt("keep", Keep()).fields_grouping("numbers", ["number"])
    return builder.build()


class Logged:
    """A ledger that is compacted every so many micro-batches, with what it was after each of them."""

    def __init__(self, files: Any, micro_batches: int) -> None:
        self.files = files
        self.engine = LocalEngine(few())
        self.after: dict[int, bytes] = {-1: self._empty().snapshot()}
        for number in range(micro_batches):
            self.step(number)

    def step(self, number: int) -> None:
        self.engine.now_ms += 900
        assert self.engine.step() is not None
        ledger_files.write_entry(self.files, number, self.engine.log[-1])
        self.files.write(f"plans/{number}-0", b"a plan")
        metrics = self.engine.ledger.metrics
        metrics.micro_batch_ms = metrics.complete_latency_ms = None  # what is not in the log
        self.after[number] = self.engine.ledger.snapshot()
        if (number + 1) % EVERY == 0:
            ledger_files.compact(self.files, number, self.engine.ledger.snapshot())

    def _empty(self) -> Ledger:
        return Ledger(**ledger_settings(self.engine.lane))

    def load(self, last_commit: int) -> Ledger:
        settings = ledger_settings(self.engine.lane)
        return ledger_files.load_ledger(
            self.files,
            last_commit,
            lambda _, state: Ledger(**settings, state=state),
        )


@pytest.mark.parametrize(("micro_batches", "oldest"), [(4, -1), (5, -1), (7, -1), (10, 4), (12, 4), (15, 9), (19, 9)])
def test_the_ledger_is_found_from_the_rest_of_a_commit_log_that_lost_its_end(micro_batches: int, oldest: int) -> None:
    logged = Logged(MemoryFiles(), micro_batches)
    files = dict(logged.files.files)
    for last_commit in range(oldest, micro_batches):
        logged.files.files = dict(files)
        gone = ledger_files.cut_back(logged.files, last_commit)
        assert gone == [number for number in range(EVERY - 1, micro_batches, EVERY) if number > last_commit][-2:]
        loaded = logged.load(last_commit)
        assert loaded.last_promoted == last_commit
        assert loaded.snapshot() == logged.after[last_commit]
        plan = f"{last_commit + 1}-0"
        assert last_commit + 1 == micro_batches or plan in logged.files.names("plans"), "it may have to run again"


def test_a_snapshot_of_a_rolled_back_micro_batch_is_not_used_for_the_one_that_replaces_it() -> None:
    """Without cutting back, a driver that dies behind micro-batch 9 would load what another micro-batch 9 had made."""
    logged = Logged(MemoryFiles(), 10)
    ledger_files.cut_back(logged.files, 7)
    assert logged.files.read("ledger/9.snapshot") is None
    ledger = logged.load(7)
    ledger.begin_life(5)
    assert ledger_files.cut_back(logged.files, 7) == []
    assert logged.load(9).life == 0, "entries of before, until they are replaced"


def test_commit_older_than_the_ledger_is_reported_and_nothing_is_removed() -> None:
    logged = Logged(MemoryFiles(), 19)
    before = dict(logged.files.files)
    said = "the last commit of Spark's is that of micro-batch 3, and the oldest thing .* was after micro-batch 9"
    with pytest.raises(CheckpointError, match=said):
        ledger_files.cut_back(logged.files, 3)
    with pytest.raises(CheckpointError, match=said):
        logged.load(3)
    assert logged.files.files == before


def acking(files: Any, micro_batches: int, spout: Any) -> LocalEngine:
    """Micro-batches of three numbers, or of one job of a queue, whose trees are acked at once."""
    builder = TopologyBuilder("acking")
    builder.set_spout("numbers", spout)
    builder.set_bolt("count", Passes()).shuffle_grouping("numbers")
    engine = LocalEngine(builder.build())
    for number in range(micro_batches):
        assert engine.step() is not None
        ledger_files.write_entry(files, number, engine.log[-1])
    return engine


class Passes(BasicBolt):
    def execute(self, tup: Any, collector: Any) -> None:
        pass


class OneByOne(Spout):
    outputs = ["number"]

    def open(self, context: Any) -> None:
        self.given = 0

    def next_tuple(self, collector: Any) -> None:
        if collector.room:
            self.given += 1
            collector.emit([self.given], message_id=self.given)


@pytest.mark.parametrize(
    ("last_commit", "last_offset", "told"),
    [
        (4, 5, None),
        (3, 4, "micro-batch 4 has been counted"),  # its entry, and one after it, tell so
        (3, 5, "micro-batch 4 has been counted"),
        (1, 5, "3 micro-batches, 2 to 4, have been counted"),
        (-1, 5, "5 micro-batches, 0 to 4, have been counted"),
        (-1, -1, "5 micro-batches, 0 to 4, have been counted"),
    ],
)
def test_promoted_micro_batches_that_are_no_longer_committed_are_counted(
    last_commit: int, last_offset: int, told: str | None
) -> None:
    files = MemoryFiles()
    acking(files, 6, Few())
    found = ledger_files.undone(files, last_commit, last_offset)
    assert (found is None) == (told is None)
    if found is not None:
        count = found.last - last_commit
        assert (found.last, found.acked, found.failed, found.forgotten) == (4, 3 * count, 0, 0)
        assert str(found).startswith(str(told))
        assert f"with at least {3 * count} acked and 0 failed tree(s)" in str(found)
        assert "again, and what was told of them comes again" in str(found)


def test_entries_of_an_earlier_life_that_are_not_replaced_yet_are_not_counted_again() -> None:
    files = MemoryFiles()
    engine = acking(files, 6, Few())
    engine.last_commit = 1
    engine.restart()
    assert engine.step() is not None
    ledger_files.write_entry(files, 2, engine.log[-1])
    assert ledger_files.undone(files, 2, 3) is None
    assert ledger_files.undone(files, 1, 2) is None


def test_records_of_a_queue_that_are_not_redelivered_are_counted() -> None:
    files = MemoryFiles()
    acking(files, 3, OneByOne())
    found = ledger_files.undone(files, 0, 2)
    assert found is not None
    assert (found.first, found.last, found.forgotten) == (1, 1, found.acked)
    assert "record(s) of a Spout, or read at most once, are not given again" in str(found)


# Spark's own logs.


class SparkLogs(Checkpoint):
    """A checkpoint in which Spark has committed micro-batches 0 to 11 and planned 12, without Spark."""

    def __init__(self, directory: Path) -> None:
        self.directory = str(directory)
        self.files = LocalFiles(self.directory)
        self._lock: Any = None
        self._generations = Generations([Generation()])
        for number in range(13):
            offset = f'v1\n{{"batchWatermarkMs":0}}\n{{"v": 1, "n": {number}}}'
            self.files.write(f"spark/offsets/{number}", offset.encode())
            self.files.write(f"spark/offsets/.{number}.crc", b"crc")
        for number in range(12):
            self.files.write(f"spark/commits/{number}", b'v2\n{"nextBatchWatermarkMs":0}')
        self.files.write("spark/metadata", b'{"id":"an id"}')
        Logged(self.files, 12)

    def left(self) -> tuple[int, int]:
        """The last commit, and the last offset."""
        return self.last_commit(), max(self.log.numbers("offsets"))


@pytest.fixture
def checkpoint(tmp_path: Path) -> SparkLogs:
    for folder in ("spark/offsets", "spark/commits"):
        (tmp_path / folder).mkdir(parents=True)
    return SparkLogs(tmp_path)


def test_offsets_beyond_the_next_one_are_removed_because_spark_would_begin_with_the_newest(
    checkpoint: SparkLogs, caplog: pytest.LogCaptureFixture
) -> None:
    for number in (9, 10, 11):
        checkpoint.files.remove(f"spark/commits/{number}")
    with caplog.at_level(logging.WARNING, "sparkbolt"):
        checkpoint.cut_back()
    assert checkpoint.left() == (8, 9)
    assert checkpoint.files.read("spark/offsets/.12.crc") is None
    assert sorted(checkpoint.files.names("ledger"))[-1] == "9.entry"
    assert "4.snapshot" in checkpoint.files.names("ledger")
    assert "9.snapshot" not in checkpoint.files.names("ledger")
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 5
    assert "3 micro-batches, 9 to 11, have been counted, with at least " in lines[1]
    assert "spark/offsets/12 is removed: it comes after commit 8, the last that is left" in lines[2]


@pytest.mark.parametrize("rest", [b"", b"v2\n", b'v2\n{"nextBatchWa', b"\0" * 60])
def test_an_incomplete_commit_does_not_count(checkpoint: SparkLogs, rest: bytes) -> None:
    checkpoint.files.write("spark/commits/11", rest)
    checkpoint.cut_back()
    assert checkpoint.left() == (10, 11)


def test_an_incomplete_offset_discards_its_commit_too(checkpoint: SparkLogs) -> None:
    checkpoint.files.write("spark/offsets/12", b"")
    checkpoint.cut_back()
    assert checkpoint.left() == (11, 11), "what was planned and not committed is planned anew"
    checkpoint.files.write("spark/offsets/11", b"v1\n{}")
    checkpoint.files.write("spark/offsets/10", b"v1\n")
    checkpoint.cut_back()
    assert checkpoint.left() == (9, 9)


def test_the_commit_of_a_snapshot_is_on_disk_before_it_replaces_entries(
    checkpoint: SparkLogs, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    flush, write = LocalFiles.flush, LocalFiles.write
    monkeypatch.setattr(LocalFiles, "flush", lambda own, name: (done.append(name), flush(own, name)))
    monkeypatch.setattr(LocalFiles, "write", lambda own, name, data: (done.append(name), write(own, name, data)))
    checkpoint.compact(11, b"a snapshot")
    assert done == ["spark/offsets/11", "spark/commits/11", "ledger/11.snapshot"]


def test_a_commit_with_empty_state_does_not_count_and_one_with_state_elsewhere_does(
    checkpoint: SparkLogs, tmp_path: Path
) -> None:
    folder = tmp_path / "spark" / "state" / "0" / "1"
    folder.mkdir(parents=True)
    for number, form, content in ((10, "changelog", b"some"), (11, "zip", b"")):
        body = f'v2\n{{"nextBatchWatermarkMs":0,"stateUniqueIds":{{"0":[["a-{number}"],["b-{number}"]]}}}}'
        checkpoint.files.write(f"spark/commits/{number}", body.encode())
        (folder / f"{number + 1}_b-{number}.{form}").write_bytes(content)
    checkpoint.cut_back()
    assert checkpoint.left() == (10, 11)
    (folder / "11_b-10.changelog").unlink()
    checkpoint.cut_back()
    assert checkpoint.left() == (10, 11), "nobody knows where else Spark has it"
