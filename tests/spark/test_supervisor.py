"""A query that fails for the engine's sake goes on: in the same driver, or from the same checkpoint."""

from __future__ import annotations

import errno
import json
import logging
import os
import shutil
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from sparkbolt import BasicBolt, Config, Spout, TopologyBuilder
from sparkbolt.api.topology import Topology
from sparkbolt.bolts import JsonLinesBolt
from sparkbolt.driver.machine import DriverMachine
from sparkbolt.errors import CheckpointError, EngineError
from sparkbolt.files.local import LocalFiles
from sparkbolt.spark.failure_text import query_failure
from sparkbolt.spark.running_on_spark import RunningOnSpark
from sparkbolt.spouts import GeneratorSpout
from tests.patience import PATIENCE_SECS
from tests.topologies import Numbers
from tests.unit.control.test_home import wait_for

pytestmark = [pytest.mark.spark]

COUNT = 2000
QUEUED = 20
HEARD: list[tuple[str, int]] = []
OPENED: list[int] = []


class Queue(Spout):
    """Twenty messages, given again when they fail; told in the driver, so the test hears of them."""

    outputs = ["n"]

    def open(self, context):
        OPENED.append(1)
        self.told = context.metrics.counter("told")
        self.left = deque(range(QUEUED))
        self.acked = 0

    def next_tuple(self, collector):
        if self.left:
            number = self.left.popleft()
            collector.emit([COUNT + number], message_id=number)

    def ack(self, message_id):
        HEARD.append(("ack", message_id))
        self.told.inc()
        self.acked += 1

    def fail(self, message_id):
        HEARD.append(("fail", message_id))
        self.left.append(message_id)

    @property
    def exhausted(self):
        return self.acked == QUEUED


class CountDigits(BasicBolt):
    outputs = ["digit", "count"]

    def prepare(self, context):
        self.counts = Counter()
        self.kinds = context.metrics.counter("kinds", "Numbers by kind", ["kind"])
        self.times = context.metrics.timer("times")

    def execute(self, tup, collector):
        digit = tup["n"] % 10 if tup["n"] < COUNT else "queued"
        with self.times.time():
            self.kinds.labels("digit" if tup["n"] < COUNT else "queued").inc()
        self.counts[digit] += 1
        collector.emit([digit, self.counts[digit]])


def build(directory: Path, queue: bool = False, **settings: Any) -> Topology:
    builder = TopologyBuilder("supervised", Config(**settings))
    builder.set_spout("numbers", Numbers(COUNT))
    counts = builder.set_bolt("count", CountDigits()).global_grouping("numbers")
    if queue:
        builder.set_spout("queue", Queue())
        counts.global_grouping("queue")
    builder.set_bolt("out", JsonLinesBolt(directory / "out"), fuse=False).shuffle_grouping("count")
    return builder.build()


def assert_exact(directory: Path) -> None:
    """Each count of each digit was written once."""
    written = Counter(
        (row["digit"], row["count"])
        for file in (directory / "out").glob("*.jsonl")
        for row in map(json.loads, file.read_text().splitlines())
        if row["digit"] != "queued"
    )
    assert written == {(digit, count): 1 for digit in range(10) for count in range(1, COUNT // 10 + 1)}


class FullDisk:
    """Stands in for ``LocalFiles.write``: from the ``first`` entry of the ledger on, so many writes find no room."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, first: int, times: int) -> None:
        self.left, self.first = times, first
        write = LocalFiles.write

        def refuse(files: LocalFiles, name: str, data: bytes) -> None:
            number = name.removeprefix("ledger/").removesuffix(".entry")
            if name.startswith("ledger/") and number.isdigit() and int(number) >= self.first and self.left:
                self.left -= 1
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), name)
            write(files, name, data)

        monkeypatch.setattr(LocalFiles, "write", refuse)


class Ticked(BasicBolt):
    """Has something to do all the time."""

    def execute(self, tup, collector):
        pass


def test_a_topology_that_is_killed_while_its_bolts_only_tick_leaves_nothing(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def end_when_staged(running: Any) -> None:
        until_s = time.monotonic() + 1.0
        while running._coordinator.ledger.staged is None and time.monotonic() < until_s:
            pass
        end(running)

    end = RunningOnSpark._end_everything
    monkeypatch.setattr(RunningOnSpark, "_end_everything", end_when_staged)
    builder = TopologyBuilder("ticked")
    builder.set_spout("numbers", Numbers(COUNT))
    builder.set_bolt("ticked", Ticked(), tick_tuple_freq_secs=0.001).shuffle_grouping("numbers")
    with builder.build().start(spark=spark) as running:
        assert wait_for(lambda: running.metrics().micro_batches > COUNT // 200, PATIENCE_SECS)
        running.kill(PATIENCE_SECS, "killed by a test")
        assert wait_for(lambda: not running.is_running, PATIENCE_SECS)
        assert running.stop(), "a micro-batch that only ticks is left for replay"


def test_a_failed_query_is_restarted_and_reports_it(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Two failures: one before micro-batch 2 is committed, one when micro-batch 5 is committed and not promoted."""
    FullDisk(monkeypatch, first=2, times=1)
    promote = DriverMachine.committed
    raised = []

    def raise_once(machine: DriverMachine, micro_batch_id: int) -> Any:
        if micro_batch_id == 5 and not raised:
            raised.append(1)
            raise ConnectionError("the planner was cut off")
        return promote(machine, micro_batch_id)

    monkeypatch.setattr(DriverMachine, "committed", raise_once)
    HEARD.clear()
    OPENED.clear()
    told: list[int] = []
    running = build(tmp_path, queue=True, restart_backoff_secs=0.2).start(spark=spark, checkpoint=str(tmp_path / "c"))
    try:
        running.on_micro_batch(lambda report: told.append(report.promotion.micro_batch_id))
        with caplog.at_level(logging.ERROR, "sparkbolt"):
            assert running.await_finished(PATIENCE_SECS)
        with pytest.raises(CheckpointError, match=r"is in use by this process: stop the .*running\.stop\(\)"):
            build(tmp_path, queue=True).start(spark=spark, checkpoint=str(tmp_path / "c"))
        metrics = running.metrics()
    finally:
        assert running.stop()
    lines = [record.getMessage() for record in caplog.records if "query failed" in record.getMessage()]
    assert len(lines) == 2
    assert lines[0].startswith("query failed: a disk is full (No space left on device)")
    assert lines[0].endswith("it is started again in 0.2 s (1 of 5)")
    assert "the planner was cut off" in lines[1]
    assert lines[1].endswith("it is started again in 0.4 s (2 of 5)")
    assert told == list(range(metrics.micro_batches)), "each promotion is told once, whatever life it is of"
    assert metrics.of("numbers").acked == COUNT
    assert metrics.value("kinds", {"kind": "digit"}) == COUNT, "what ran again counts once"
    assert metrics.value("times") == metrics.value("kinds") >= COUNT + QUEUED
    assert metrics.value("times_sum") > 0
    assert metrics.value("told") == QUEUED
    assert_exact(tmp_path)
    with pytest.raises(CheckpointError, match=rf"out belongs to topology 'supervised' with checkpoint {tmp_path}/c,"):
        build(tmp_path).start(spark=spark)
    assert_exact(tmp_path)
    assert OPENED == [1], "a spout's connection outlives the query"
    assert sorted(number for what, number in HEARD if what == "ack") == list(range(QUEUED))


@dataclass
class Refilled:
    """A topology that stopped at a full disk and was started again: what was acked, and its files."""

    directory: Path
    error: str
    acked: list[int]
    """When it had stopped, when it was started again, at its end."""


@pytest.fixture(scope="module")
def refilled(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Refilled:
    directory = tmp_path_factory.mktemp("full")
    topology = build(directory, restarts_max=1, restart_backoff_secs=0.1, compact_every=3)
    with pytest.MonkeyPatch.context() as patch:
        FullDisk(patch, first=3, times=10**9)
        running = topology.start(spark=spark, checkpoint=str(directory / "c"))
        with pytest.raises(EngineError) as raised:
            running.await_finished(PATIENCE_SECS)
        acked = [running.metrics().of("numbers").acked]
        running.stop()
    running = topology.start(spark=spark, checkpoint=str(directory / "c"))
    try:
        acked.append(running.metrics().of("numbers").acked)
        assert running.await_finished(PATIENCE_SECS)
        acked.append(running.metrics().of("numbers").acked)
    finally:
        running.stop()
    return Refilled(directory, str(raised.value), acked)


def test_a_topology_on_a_full_disk_stops_with_a_sentence_and_continues_when_there_is_space(refilled: Refilled) -> None:
    assert refilled.error.startswith("a disk is full (No space left on device), that of the checkpoint or")
    assert refilled.error.endswith("(it failed 1 times within 600 s before)")
    assert refilled.acked == [600, 600, COUNT], "what was committed before stays"
    assert_exact(refilled.directory)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 16 MB."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16m", "none", place], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"a file system may not be mounted here: {mounted.stderr.decode().strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def fill(file: Path) -> None:
    """Leave no room at all."""
    with file.open("wb", buffering=0) as filler:
        size = 1 << 20
        while size:
            try:
                filler.write(b"\0" * size)
            except OSError:
                size //= 2


@pytest.mark.campaign
def test_no_acked_tuple_is_lost_when_the_disk_is_full(spark: Any, tmp_path: Path, small_disk: Path) -> None:
    filler = small_disk / "filler"
    topology = build(tmp_path, restarts_max=1, restart_backoff_secs=0.1)
    running = topology.start(spark=spark, checkpoint=str(small_disk / "c"))

    def fill_later(report: Any) -> None:
        if report.promotion.micro_batch_id == 3:
            fill(filler)

    running.on_micro_batch(fill_later)
    with pytest.raises(EngineError, match="a disk is full"):
        running.await_finished(PATIENCE_SECS)
    acked = running.metrics().of("numbers").acked
    running.stop()
    assert 800 <= acked < COUNT
    filler.unlink()
    running = topology.start(spark=spark, checkpoint=str(small_disk / "c"))
    try:
        assert running.metrics().of("numbers").acked >= acked
        assert running.await_finished(PATIENCE_SECS)
        assert running.metrics().of("numbers").acked == COUNT
    finally:
        running.stop()
    assert_exact(tmp_path)


@pytest.fixture
def another_default(spark: Any) -> Iterator[None]:
    """Hadoop takes a file system by default on which nobody answers."""
    configuration = spark._jsc.hadoopConfiguration()
    before = configuration.get("fs.defaultFS")
    configuration.set("fs.defaultFS", "hdfs://127.0.0.1:9/")
    yield
    configuration.set("fs.defaultFS", before)


def test_a_checkpoint_that_lost_commits_in_a_power_cut_continues_from_the_rest(
    spark: Any, refilled: Refilled, tmp_path: Path, another_default: None, caplog: pytest.LogCaptureFixture
) -> None:
    """Compacted after micro-batches 2, 5, 8: commits from 7 on are gone, or empty, and the state of 6 is empty.

    The checkpoint is a URL, and Hadoop's default file system another one: all of it is in one place.
    """
    checkpoint = tmp_path / "c d"
    shutil.copytree(refilled.directory / "out", tmp_path / "out")
    shutil.copytree(refilled.directory / "c", checkpoint)
    topology = build(tmp_path, compact_every=3)
    last = max(int(path.name) for path in (checkpoint / "spark" / "commits").iterdir() if path.name.isdigit())
    assert last >= COUNT // 200 - 1
    snapshots = sorted(int(path.stem) for path in (checkpoint / "ledger").glob("*.snapshot"))
    state = json.loads((checkpoint / "spark" / "commits" / str(snapshots[0] + 1)).read_text().split("\n", 1)[1])
    for number, (unique_id,) in enumerate(state["stateUniqueIds"]["0"]):
        version = checkpoint / "spark" / "state" / "0" / str(number) / f"{snapshots[0] + 2}_{unique_id}.changelog"
        version.write_bytes(b"")
        version.with_name(f".{version.name}.crc").unlink(missing_ok=True)
    for number in range(snapshots[0] + 2, last + 1):
        commit = checkpoint / "spark" / "commits" / str(number)
        commit.write_bytes(b"") if number == last - 1 else commit.unlink()
        commit.with_name(f".{number}.crc").unlink(missing_ok=True)
    caplog.clear()
    running = topology.start(spark=spark, checkpoint=f"file://{checkpoint}")
    try:
        assert running.metrics().micro_batches == snapshots[0] + 1, "it goes on from the older snapshot"
        assert running.await_finished(PATIENCE_SECS)
        assert running.metrics().of("numbers").acked == COUNT
    finally:
        assert running.stop()
    assert f"spark/offsets/{last} is removed" in caplog.text
    assert_exact(tmp_path)


class Unkept(BasicBolt):
    """Its ``prepare`` makes what cannot be kept: no tuple is to blame."""

    outputs = ["n"]

    def prepare(self, context):
        self.readers = [(number for number in range(3))]

    def execute(self, tup, collector):
        collector.emit([tup["n"]])


def test_permanent_error_of_an_executor_is_recognized_by_type_and_not_restarted(spark: Any, tmp_path: Path) -> None:
    builder = TopologyBuilder("unkept", Config(restart_backoff_secs=0.1))
    builder.set_spout("numbers", Numbers(COUNT))
    builder.set_bolt("keep", Unkept()).global_grouping("numbers")
    running = builder.build().start(spark=spark, checkpoint=str(tmp_path / "c"))
    try:
        with pytest.raises(EngineError, match=r"^bolt 'keep': attribute .*not started again: it would fail again\)$"):
            running.await_finished(PATIENCE_SECS)
        assert running.trouble == running.failure
    finally:
        running.stop()


def test_a_python_process_that_does_not_start_is_recognized_by_the_exception_class_and_its_thrower(spark: Any) -> None:
    """Spark's own code throws it, 10 s after it has started a program that never connects."""
    python = spark._jvm.org.apache.spark.api.python
    factory = python.PythonWorkerFactory("/bin/true", "no.module", python.PythonUtils.toScalaMap({}), False)
    with pytest.raises(Py4JJavaError) as raised:
        factory.createSimpleWorker(True)
    assert query_failure(raised.value).free


def test_a_checkpoint_without_an_answering_driver_is_described_in_a_sentence(spark: Any, tmp_path: Path) -> None:
    topology = build(tmp_path)
    for place, said in {
        "s3a://bucket/state": r"no file system for s3a:// \(.*: name .* here org.apache.hadoop:hadoop-aws:\d",
        "nothing://bucket/state": r"no file system for nothing:// \(No FileSystem for scheme",
        "hdfs://no-such-host.invalid/state": r"no name node answers there \(no-such-host.invalid:8020: ",
        "hdfs://127.0.0.1:9/state": r"no name node answers there \(127.0.0.1:9: Connection refused\)",
    }.items():
        with pytest.raises(CheckpointError, match=said) as raised:
            topology.start(spark=spark, checkpoint=place)
        assert raised.value.__suppress_context__ or raised.value.__cause__ is None, "no traceback of Java's below it"
        assert "\n" not in str(raised.value)


def test_workers_with_another_python_give_a_one_sentence_error_and_free_the_checkpoint(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = tmp_path / "python3"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S -E "$@"\n')
    bare.chmod(0o755)
    builder = TopologyBuilder("numbers")
    builder.set_spout("numbers", GeneratorSpout(lambda: [[n] for n in range(5)], outputs=["n"]))
    topology = builder.build()
    with monkeypatch.context() as patched:
        patched.setattr(spark.sparkContext, "pythonExec", str(bare))
        for _ in range(2):
            with pytest.raises(EngineError, match=f"Spark's workers run the Python '{bare}'.* PYSPARK_PYTHON"):
                topology.start(spark=spark, checkpoint=str(tmp_path / "state"))
    with topology.start(spark=spark, checkpoint=str(tmp_path / "state")) as running:
        assert running.await_finished(PATIENCE_SECS)
        assert running.metrics().of("numbers").acked == 5
