"""Topologies with SparkSpouts whose state moves: Spark's sources go on where they were, and each count is exact."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from sparkbolt import BasicBolt, Topology, TopologyBuilder
from sparkbolt.control.intent import Intent
from sparkbolt.driver.ledger.generations import Generations
from sparkbolt.errors import CheckpointError
from sparkbolt.files.local import LocalFiles
from sparkbolt.spouts import SparkSpout
from tests.patience import PATIENCE_SECS
from tests.unit.control.test_home import wait_for

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(5 * PATIENCE_SECS)]
TABLE = 30


class CountKeys(BasicBolt):
    """Counts each number, and writes each count into a file."""

    outputs: list[str] = []
    transient = ("out",)
    keyed = True

    def __init__(self, out: str) -> None:
        self.out = out

    def init_state(self, state: Any) -> None:
        self.counts = state

    def execute(self, tup: Any, collector: Any) -> None:
        count = self.counts.get(tup["n"], 0) + 1
        self.counts.put(tup["n"], count)
        with open(self.out, "a") as file:  # one short line is written whole
            file.write(f"{tup.source_component} {tup['n']} {count}\n")


def write(folder: Path, name: str, numbers: range) -> None:
    folder.mkdir(exist_ok=True)
    (folder / f".{name}").write_text("".join(json.dumps({"n": n}) + "\n" for n in numbers))
    (folder / f".{name}").rename(folder / name)


def files_of(folder: Path, *, distinct: bool = False) -> SparkSpout:
    def frame(session: Any) -> Any:
        rows = session.readStream.schema("n long").json(str(folder))
        return rows.dropDuplicates(["n"]) if distinct else rows

    return SparkSpout(frame, outputs=["n"])


def topology(
    directory: Path, tasks: int, table: str = "table", *, more: bool = False, distinct: bool = False
) -> Topology:
    builder = TopologyBuilder("moving")
    builder.set_spout("rows", files_of(directory / "rows", distinct=distinct))
    old = "table" if table != "table" else None
    spouts, numbers = ["rows", table], SparkSpout(lambda session: session.range(TABLE).toDF("n"), outputs=["n"])
    builder.set_spout(table, numbers, renamed_from=old)
    if more:
        builder.set_spout("alpha", files_of(directory / "alpha"))  # whose name comes before the others
        spouts.append("alpha")
    count = builder.set_bolt("count", CountKeys(f"{directory}/counts"), tasks)
    for spout in spouts:
        count.fields_grouping(spout, ["n"])
    return builder.build()


def test_the_sources_of_sparkspouts_go_on_where_they_were_when_state_moves(spark: Any, tmp_path: Path) -> None:
    state = str(tmp_path / "state")

    def run_to(shape: Topology, **acked: int) -> None:
        running: Any = shape.start(spark=spark, checkpoint=state, apply=True)
        try:
            counts = running.metrics
            assert wait_for(lambda: {name: counts().of(name).acked for name in acked} == acked, PATIENCE_SECS)
        finally:
            running.stop()

    def die(shape: Topology) -> None:
        """Begin a generation, and end before anything of it is committed."""
        running: Any = shape.start(spark=spark, checkpoint=state, apply=True)
        running.close()

    write(tmp_path / "rows", "a", range(100))
    run_to(topology(tmp_path, 2), rows=100, table=TABLE)
    write(tmp_path / "rows", "b", range(100, 150))
    die(topology(tmp_path, 4))
    run_to(topology(tmp_path, 3), rows=150, table=TABLE)
    write(tmp_path / "rows", "c", range(150, 170))
    write(tmp_path / "alpha", "a", range(40))
    run_to(topology(tmp_path, 3, "zeros", more=True), rows=170, zeros=TABLE, alpha=40)
    write(tmp_path / "rows", "d", range(170, 200))
    write(tmp_path / "alpha", "b", range(40, 60))
    run_to(topology(tmp_path, 2, "zeros", more=True), rows=200, zeros=TABLE, alpha=60)
    lines = [line.split() for line in (tmp_path / "counts").read_text().splitlines()]
    assert Counter(spout if spout != "zeros" else "table" for spout, *_ in lines) == {
        "rows": 200,
        "table": TABLE,
        "alpha": 60,
    }
    assert all(len({count for _, n, count in lines if n == str(number)}) == 3 for number in range(TABLE))
    generations = Generations.read(LocalFiles(state), state)
    assert len({one.folder for one in generations}) == 4, "each has moved into a folder of its own"


def test_a_running_topology_with_a_sparkspout_is_rebalanced_also_while_it_is_inactive(
    spark: Any, tmp_path: Path
) -> None:
    state = str(tmp_path / "state")
    write(tmp_path / "rows", "a", range(50))
    running: Any = topology(tmp_path, 2).start(spark=spark, checkpoint=state)
    steering = running._presence.steering
    try:
        assert wait_for(lambda: running.metrics().of("rows").acked == 50, PATIENCE_SECS)
        running.deactivate()
        assert not steering.ask("rebalance", {"executors": {"count": 3}}, "ann")["refused"]
        assert wait_for(lambda: steering.intent.before is None and steering.intent != Intent(), PATIENCE_SECS)
        assert len(running.lane.topology.tasks("count")) == 3
        running.activate()
        write(tmp_path / "rows", "b", range(50, 80))
        assert wait_for(lambda: running.metrics().of("rows").acked == 80, PATIENCE_SECS)
    finally:
        running.stop()
    assert len((tmp_path / "counts").read_text().splitlines()) == 80 + TABLE


def test_state_that_spark_keeps_for_a_dataframe_does_not_move(spark: Any, tmp_path: Path) -> None:
    state = str(tmp_path / "state")
    write(tmp_path / "rows", "a", range(50))
    running: Any = topology(tmp_path, 2, distinct=True).start(spark=spark, checkpoint=state)
    try:
        assert wait_for(lambda: running.metrics().of("rows").acked == 50, PATIENCE_SECS)
    finally:
        running.stop()
    with pytest.raises(CheckpointError, match="spout 'rows' is refused: Spark keeps state of its DataFrame, such as"):
        topology(tmp_path, 3, distinct=True).start(spark=spark, checkpoint=state, apply=True)
