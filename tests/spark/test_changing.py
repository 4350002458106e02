"""A topology on Spark whose shape changes: rebalanced while it runs, and back where its state cannot be divided."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from sparkbolt import BasicBolt, Config, PartitionedSpout, Range, Topology, TopologyBuilder
from sparkbolt.control.documents import TopologyState
from sparkbolt.control.operator import Operator
from sparkbolt.control.steering import Steering
from sparkbolt.driver.ledger.generations import SparkLog
from sparkbolt.driver.machine import DriverMachine
from sparkbolt.errors import WrongUseError
from sparkbolt.faces.cli import stored_state
from sparkbolt.files.local import LocalFiles
from sparkbolt.spark.checkpoint_files import open_files
from sparkbolt.spark.state_reading import StoredState
from tests.patience import PATIENCE_SECS
from tests.unit.control.test_home import wait_for

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(5 * PATIENCE_SECS)]
KEYS = 11


class Numbers(PartitionedSpout):
    """Numbers, as many as the file says."""

    outputs = ["n"]
    first_budget = 20

    def __init__(self, limit: str) -> None:
        self.limit = limit

    def next_ranges(self, progress: Mapping[str, int], budget: int) -> Sequence[Range]:
        start = progress.get("n", 0)
        end = min(int(Path(self.limit).read_text()), start + min(budget, 20))
        return [Range(0, "n", start, end)] if end > start else []

    def finished(self, progress: Mapping[str, int]) -> bool:
        return False

    def read(self, range_: Range) -> Iterator[tuple[int, list[int]]]:
        for number in range(range_.start, range_.end):
            yield number, [number % KEYS]


class CountKeys(BasicBolt):
    """Counts each key in a key-value state; writes each count into a file."""

    outputs: list[str] = []
    transient = ("out",)

    def __init__(self, out: str) -> None:
        self.out = out

    def init_state(self, state: Any) -> None:
        self.counts = state

    def execute(self, tup: Any, collector: Any) -> None:
        count = self.counts.get(tup["n"], 0) + 1
        self.counts.put(tup["n"], count)
        with open(self.out, "a") as file:  # one short line is written whole
            file.write(f"{tup['n']} {count}\n")


class CountAll(BasicBolt):
    """Counts under a name that is no key of its grouping."""

    def prepare(self, context: Any) -> None:
        self.counts = {"all": 0}

    def execute(self, tup: Any, collector: Any) -> None:
        self.counts["all"] += 1


def topology(directory: Path, tasks: int = 2, count: str = "count", **renamed: str) -> Topology:
    builder = TopologyBuilder("changing")
    builder.set_spout("numbers", Numbers(f"{directory}/limit"))
    keyed = builder.set_bolt(count, CountKeys(f"{directory}/counts"), tasks, **renamed)
    keyed.fields_grouping("numbers", ["n"])
    builder.set_bolt("all", CountAll(), 2).fields_grouping("numbers", ["n"])
    return builder.build()


def counted(directory: Path, limit: int) -> None:
    """Each key was counted without a gap, and without a repeat."""
    each = Counter(number % KEYS for number in range(limit))
    lines = Counter(Path(directory, "counts").read_text().splitlines())
    assert lines == Counter(f"{key} {n}" for key in each for n in range(1, each[key] + 1))


def test_a_running_topology_is_rebalanced_and_each_count_is_exact(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SPARKBOLT_HOME", str(tmp_path / "home"))
    state = str(tmp_path / "state")

    def grows_to(limit: int) -> None:
        Path(tmp_path, "new").write_text(str(limit))
        os.replace(tmp_path / "new", tmp_path / "limit")
        assert wait_for(lambda: running.metrics().of("numbers").acked == limit, PATIENCE_SECS)

    def rebalanced(request: dict[str, Any]) -> str:
        steering: Steering = running._presence.steering
        answer = steering.ask("rebalance", request, "ann")
        assert not answer["refused"], answer["text"]
        assert wait_for(lambda: running._supervisor._wanted is None, PATIENCE_SECS)
        assert wait_for(lambda: running._lifecycle.state == TopologyState.ACTIVE, PATIENCE_SECS)
        return answer["text"]

    Path(tmp_path, "limit").write_text("0")
    running: Any = topology(tmp_path).start(spark=spark, checkpoint=state)
    try:
        grows_to(60)
        assert "bolt 'count' moves: it has 5 tasks and had 2" in rebalanced({"executors": {"count": 5}})
        grows_to(120)
        assert [len(running.lane.topology.tasks(name)) for name in ("count", "all")] == [5, 2]
        rebalanced({"executors": {"count": 3}, "spark_partitions": 4})
        grows_to(180)
        assert running.lane.spark_partitions == 4
        now = running.state("count")
        assert (now.get(7), len(now), dict(now.items())[7]) == (16, KEYS, 16)
        assert sum(one["counts"]["all"] for one in running.state("all", now.micro_batch).attributes()) == 180
        assert read_counts(state, "count", 3) == {key: len(range(key, 180, KEYS)) for key in range(KEYS)}
        before = StoredState.of(state).micro_batch
        totals = [view.attributes()["counts"]["all"] for view in StoredState.of(state).tasks("all")]
        assert sum(totals) == 180
        sizes = {(one["component"], one["task"]): one["keys"] for one in StoredState.of(state).sizes()["tasks"]}
        assert sorted(sizes) == [("all", 0), ("all", 1), ("count", 0), ("count", 1), ("count", 2)]
        assert sum(sizes.values()) == KEYS

        rebalanced({"executors": {"all": 4}})  # whose key says nothing about its task
        assert wait_for(lambda: any(e["kind"] == "rebalance failed" for e in events(running)), PATIENCE_SECS)
        assert wait_for(lambda: running._lifecycle.state == TopologyState.ACTIVE, PATIENCE_SECS)
        grows_to(220)
        assert len(running.lane.topology.tasks("all")) == 2, "it goes on as before"
    finally:
        running.stop()
    counted(tmp_path, 220)

    running = topology(tmp_path, 2, "totals", renamed_from="count").start(spark=spark, checkpoint=state)
    assert len(running.topology.tasks("totals")) == 3, "the operator's number stays, under the new name"
    try:
        grows_to(260)
    finally:
        running.stop()
    counted(tmp_path, 260)
    assert sum(read_counts(state, "totals", 3).values()) == 260
    assert sum(read_counts(state, "count", 3, before).values()) == 180, "as of a micro-batch of an earlier generation"
    with pytest.raises(WrongUseError, match=r"there is no component 'total': did you mean 'totals'\?"):
        StoredState.of(state).tasks("total")
    with pytest.raises(WrongUseError, match="micro-batch 9999 is not there"):
        StoredState.of(state, 9999)
    capsys.readouterr()
    assert stored_state.state(state, "totals", "7") == 0
    assert re.search(r"totals\[\d\] +7 +23\n", capsys.readouterr().out)
    assert stored_state.state(state, "totals", export=f"{tmp_path}/totals.parquet") == 0
    exported = pq.read_table(tmp_path / "totals.parquet").to_pylist()
    assert {row["key"]: row["value"] for row in exported if row["key"] == "7"} == {"7": "23"}
    log = SparkLog(LocalFiles(state))
    assert log.numbers("commits")[-1] == log.last_commit > 0

    operator = Operator(open_files=open_files)
    assert operator.change(state, "rebalance", executors={"all": 4, "totals": 5}, by="ann")["done"]
    running = topology(tmp_path, 2, "totals").start(spark=spark, checkpoint=state)  # as if its driver had died
    try:
        assert wait_for(lambda: len(failed_rebalances(running)) == 2, PATIENCE_SECS)
        grows_to(270)
        assert [len(running.lane.topology.tasks(name)) for name in ("totals", "all")] == [3, 2]
    finally:
        running.stop()
    assert operator.change(state, "rebalance", executors={"totals": 5}, by="ann")["done"]
    running = topology(tmp_path, 2, "totals").start(spark=spark, checkpoint=state)
    try:
        grows_to(280)
        assert len(running.lane.topology.tasks("totals")) == 5, "nobody is asked again for a decision"
        assert wait_for(lambda: running._presence.steering.intent.before is None, PATIENCE_SECS)
    finally:
        running.stop()
    counted(tmp_path, 280)
    assert sum(read_counts(state, "totals", 5).values()) == 280


def read_counts(checkpoint: str, component: str, tasks: int, as_of: int | None = None) -> dict[int, int]:
    """The counts that a checkpoint holds, each key in one task."""
    views = StoredState.of(checkpoint, as_of).tasks(component)
    assert len(views) == tasks
    pairs = [pair for view in views for pair in view.items()]
    assert len(dict(pairs)) == len(pairs)
    return dict(pairs)


def failed_rebalances(running: Any) -> list[Any]:
    return [event for event in events(running) if event["kind"] == "rebalance failed"]


def events(running: Any) -> list[Any]:
    steering: Steering = running._presence.steering
    return steering.events.all()


def test_a_start_that_dies_before_its_first_commit_goes_on_with_either_shape(spark: Any, tmp_path: Path) -> None:
    state = str(tmp_path / "state")
    Path(tmp_path, "limit").write_text("40")

    def run_to(shape: Topology, limit: int) -> None:
        Path(tmp_path, "limit").write_text(str(limit))
        running: Any = shape.start(spark=spark, checkpoint=state, apply=True)
        try:
            assert wait_for(lambda: running.metrics().of("numbers").acked == limit, PATIENCE_SECS)
        finally:
            running.stop()

    def die(shape: Topology) -> None:
        """Begin a generation, and end before anything of it is committed."""
        commits = SparkLog(LocalFiles(state)).last_commit
        running: Any = shape.start(spark=spark, checkpoint=state, apply=True)
        running.close()
        assert SparkLog(LocalFiles(state)).last_commit == commits

    run_to(topology(tmp_path, 2), 40)
    die(topology(tmp_path, 5))
    run_to(topology(tmp_path, 5), 60)
    die(topology(tmp_path, 3))
    run_to(topology(tmp_path, 5), 80)
    die(topology(tmp_path, 2))
    run_to(topology(tmp_path, 4), 100)
    counted(tmp_path, 100)


class Ticked(CountAll):
    """Is in each plan by its name, for its tick."""


def test_what_was_planned_for_a_bolt_that_is_gone_is_planned_anew(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def built(is_ticked: bool) -> Topology:
        builder = TopologyBuilder("changing", Config(restarts_max=0))
        builder.set_spout("numbers", Numbers(f"{tmp_path}/limit"))
        counted = builder.set_bolt("count", CountKeys(f"{tmp_path}/counts"), 2)
        counted.fields_grouping("numbers", ["n"])
        if is_ticked:
            builder.set_bolt("ticked", Ticked(), tick_tuple_freq_secs=0.01).global_grouping("numbers")
        return builder.build()

    def fails(machine: DriverMachine, micro_batch_id: int, feedback: Any) -> Any:
        if micro_batch_id >= 2:
            raise OSError("the machine is off")
        return staged(machine, micro_batch_id, feedback)

    state, staged = str(tmp_path / "state"), DriverMachine.staged
    (tmp_path / "limit").write_text("60")
    with monkeypatch.context() as patched:
        patched.setattr(DriverMachine, "staged", fails)
        with built(True).start(spark=spark, checkpoint=state) as running:
            assert wait_for(lambda: running.failure is not None, PATIENCE_SECS)
    assert SparkLog(LocalFiles(state)).numbers("offsets")[-1] == 2
    with built(False).start(spark=spark, checkpoint=state, apply=True) as running:
        assert wait_for(lambda: running.metrics().of("numbers").acked == 60, PATIENCE_SECS), running.failure
